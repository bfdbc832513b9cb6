"""Images and deltas as bytes: the body of the internal ImagePush message (API key 10000) and of its answer.

JSON with a format version in it. A reader takes every version from OLDEST_FORMAT to its own and ignores keys that it
does not know, so a newer controller may add keys as long as an older broker can live without them. A change that cannot
be ignored raises FORMAT: brokers register the formats that they read (feature IMAGE_FEATURE), and the controller writes
the newest that the receiver knows. So brokers of two releases run side by side while a cluster is upgraded.

Format 0 is plain JSON. Format 1 is the same deflated: the image of ten thousand partitions shrinks from 1 MB to 60 KB.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.outside_json import load_json
from penstock.cluster.image import (
    BrokerRegistration,
    Endpoint,
    ImageDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from penstock.cluster.topic_names import name_problem

IMAGE_PUSH_KEY = 10000
IMAGE_FEATURE = "penstock.image"
OLDEST_FORMAT = 0
FORMAT = 1
DEFLATED = 1
MAX_IMAGE_BYTES = 256 * 1024 * 1024
"""A message that would inflate beyond this is refused."""
ALWAYS_INFLATED_BYTES = 1024 * 1024
MAX_INFLATION = 100
"""Images shrink to a fifteenth; what claims much more than that is no image."""
MAX_COMPLAINT_CHARACTERS = 200


class ImageFormatError(ValueError):
    """A pushed image that this broker cannot read."""


@dataclass(frozen=True, slots=True)
class ImagePush:
    """Controller → broker. Exactly one of `full` and `delta` is set."""

    cluster_id: str
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    """The registration of the receiver that the controller means; another life of that broker must refuse it."""
    full: MetadataImage | None = None
    delta: ImageDelta | None = None


@dataclass(frozen=True, slots=True)
class ImagePushAnswer:
    """Broker → controller: where the broker stands now. `error_code` STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH means
    refused; `needs_full` that a delta did not fit what the broker has. `offline` are the replicas whose logs it cannot
    reach (None from a release that does not tell), `given_up` those of them that an operator has declared lost,
    `unmade` those that it serves although a crash would leave no trace of them: their disk had no room for a folder."""

    error_code: int
    controller_epoch: int
    version: int
    needs_full: bool = False
    offline: tuple[tuple[str, int], ...] | None = ()
    given_up: tuple[tuple[str, int], ...] = ()
    reaches_controller: bool = True
    """False: the controller reaches this broker, but what this broker asks of it has not come through for long."""
    unmade: tuple[tuple[str, int], ...] = ()


def encode_push(push: ImagePush, version: int = FORMAT) -> bytes:
    body: dict[str, Any] = {
        "format": version,
        "cluster_id": push.cluster_id,
        "controller_id": push.controller_id,
        "controller_epoch": push.controller_epoch,
        "broker_epoch": push.broker_epoch,
    }
    if push.full is not None:
        body["full"] = image_to_json(push.full)
    if push.delta is not None:
        body["delta"] = delta_to_json(push.delta)
    data = _dump(body)
    return zlib.compress(data, 1) if version >= DEFLATED else data


def format_for(broker: BrokerRegistration) -> int:
    """The newest format that both sides know."""
    return max(OLDEST_FORMAT, min(FORMAT, broker.features.get(IMAGE_FEATURE, (0, 0))[1]))


def decode_push(data: bytes | memoryview) -> ImagePush:
    body = _load(data)
    full, delta = body.get("full"), body.get("delta")
    try:
        return ImagePush(
            cluster_id=body["cluster_id"],
            controller_id=body["controller_id"],
            controller_epoch=body["controller_epoch"],
            broker_epoch=body["broker_epoch"],
            full=image_from_json(full) if full is not None else None,
            delta=delta_from_json(delta) if delta is not None else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ImageFormatError(_shortened(f"malformed image push: {error!r}")) from error


def encode_answer(answer: ImagePushAnswer) -> bytes:
    return _dump(
        {
            "format": OLDEST_FORMAT,
            "error_code": answer.error_code,
            "controller_epoch": answer.controller_epoch,
            "version": answer.version,
            "needs_full": answer.needs_full,
            "offline": answer.offline,
            "given_up": answer.given_up,
            "reaches_controller": answer.reaches_controller,
            "unmade": answer.unmade,
        }
    )


def decode_answer(data: bytes | memoryview) -> ImagePushAnswer:
    body = _load(data)
    try:
        offline = body.get("offline")
        return ImagePushAnswer(
            body["error_code"],
            body["controller_epoch"],
            body["version"],
            bool(body.get("needs_full", False)),
            None if offline is None else tuple((str(t), int(p)) for t, p in offline),
            tuple((str(t), int(p)) for t, p in body.get("given_up", ())),
            bool(body.get("reaches_controller", True)),
            tuple((str(t), int(p)) for t, p in body.get("unmade", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ImageFormatError(f"malformed answer to an image push: {error!r}") from error


def image_to_json(image: MetadataImage) -> dict[str, Any]:
    return {
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "controller_epoch": image.controller_epoch,
        "version": image.version,
        "brokers": [_broker_to_json(b) for b in image.brokers.values()],
        "topics": [_topic_to_json(t) for t in image.topics.values()],
        "configs": _configs_to_json(image.configs),
        "deleted": sorted(topic_id.hex for topic_id in image.deleted),
        "unreadable": dict(image.unreadable),
    }


def image_from_json(body: Mapping[str, Any]) -> MetadataImage:
    topics = {t.name: t for t in map(_topic_from_json, body["topics"])}
    return MetadataImage(
        cluster_id=body["cluster_id"],
        controller_id=body["controller_id"],
        controller_epoch=body["controller_epoch"],
        version=body["version"],
        brokers={b.broker_id: b for b in map(_broker_from_json, body["brokers"])},
        topics=topics,
        configs=_configs_from_json(body["configs"]),
        topic_names={t.topic_id: t.name for t in topics.values()},
        deleted=frozenset(uuid.UUID(hex=hexed) for hexed in body.get("deleted", ())),
        unreadable=body.get("unreadable", {}),
    )


def delta_to_json(delta: ImageDelta) -> dict[str, Any]:
    return {
        "controller_id": delta.controller_id,
        "controller_epoch": delta.controller_epoch,
        "base_version": delta.base_version,
        "version": delta.version,
        "brokers_changed": [_broker_to_json(b) for b in delta.brokers_changed.values()],
        "brokers_removed": list(delta.brokers_removed),
        "topics_removed": {name: topic_id.hex for name, topic_id in delta.topics_removed.items()},
        "topics_changed": [_topic_to_json(t) for t in delta.topics_changed.values()],
        "configs_changed": _configs_to_json(delta.configs_changed),
    }


def delta_from_json(body: Mapping[str, Any]) -> ImageDelta:
    return ImageDelta(
        controller_id=body["controller_id"],
        controller_epoch=body["controller_epoch"],
        base_version=body["base_version"],
        version=body["version"],
        brokers_changed={b.broker_id: b for b in map(_broker_from_json, body["brokers_changed"])},
        brokers_removed=tuple(body["brokers_removed"]),
        topics_removed={name: uuid.UUID(hex=hexed) for name, hexed in body["topics_removed"].items()},
        topics_changed={t.name: t for t in map(_topic_from_json, body["topics_changed"])},
        configs_changed=_configs_from_json(body["configs_changed"]),
    )


def _broker_to_json(broker: BrokerRegistration) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "epoch": broker.epoch,
        "endpoints": {name: [e.host, e.port, e.security_protocol] for name, e in broker.endpoints.items()},
        "rack": broker.rack,
        "shutting_down": broker.shutting_down,
        "fenced": broker.fenced,
        "features": {name: list(levels) for name, levels in broker.features.items()},
        "incarnation": broker.incarnation,
        "clean_since": broker.clean_since,
        "clean_stop": broker.clean_stop,
        "machine": broker.machine,
    }


def _broker_from_json(body: Mapping[str, Any]) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=body["id"],
        epoch=body["epoch"],
        endpoints={name: Endpoint(e[0], e[1], e[2]) for name, e in body["endpoints"].items()},
        rack=body.get("rack"),
        shutting_down=bool(body.get("shutting_down", False)),
        fenced=bool(body.get("fenced", False)),
        features={name: (levels[0], levels[1]) for name, levels in body.get("features", {}).items()},
        incarnation=body.get("incarnation", -1),
        clean_since=body.get("clean_since", -1),
        clean_stop=body.get("clean_stop", -1),
        machine=body.get("machine"),
    )


def _topic_to_json(topic: TopicImage) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.topic_id.hex,
        "partitions": [
            [
                index,
                p.replicas,
                p.isr,
                p.leader,
                p.leader_epoch,
                p.partition_epoch,
                p.adding,
                p.removing,
                p.offline,
                int(p.recovering),
                _more_of(p),
            ]
            for index, p in topic.partitions.items()
        ],
    }


def _more_of(p: PartitionRegistration) -> dict[str, Any]:
    """What partitions did not always have, by name and only where there is something to say."""
    more: dict[str, Any] = {"min_isr": p.min_isr} if p.min_isr else {}
    if p.eligible:
        more |= {"elr": p.eligible, "elr_epochs": p.eligible_epochs}
    if p.last_known:
        more["last_known"] = p.last_known
    if p.new is not None:
        more["new"] = p.new
    return more


def _topic_from_json(body: Mapping[str, Any]) -> TopicImage:
    partitions = {}
    for row in body["partitions"]:
        if type(row[0]) is not int or row[0] < 0:
            raise ValueError("a partition's index is a number")
        index, replicas, isr, leader, leader_epoch, partition_epoch, adding, removing, offline, recovering = row[:10]
        more = row[10] if len(row) > 10 else {}
        partitions[index] = PartitionRegistration(
            tuple(replicas),
            tuple(isr),
            leader,
            leader_epoch,
            partition_epoch,
            tuple(adding),
            tuple(removing),
            tuple(offline),
            bool(recovering),
            min_isr=more.get("min_isr", 0),
            eligible=tuple(more.get("elr", ())),
            eligible_epochs=tuple(more.get("elr_epochs", ())),
            last_known=tuple(more.get("last_known", ())),
            new=tuple(more["new"]) if "new" in more else None,
        )
    name = body["name"]
    problem = name_problem(name) if isinstance(name, str) else "A topic's name is a text."
    if problem is not None:
        raise ValueError(problem)  # it becomes the name of a folder
    return TopicImage(name, uuid.UUID(hex=body["id"]), partitions)


def _configs_to_json(configs: Mapping[tuple[str, str], Mapping[str, str]]) -> list[Any]:
    return [[kind, name, dict(overrides)] for (kind, name), overrides in configs.items()]


def _configs_from_json(rows: list[Any]) -> dict[tuple[str, str], Mapping[str, str]]:
    return {(row[0], row[1]): row[2] for row in rows}


def _dump(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _inflated(data: bytes) -> bytes:
    if data.startswith(b"{"):
        return data
    inflater = zlib.decompressobj()
    limit = min(MAX_IMAGE_BYTES, max(ALWAYS_INFLATED_BYTES, MAX_INFLATION * len(data)))
    inflated = inflater.decompress(data, limit)
    if not inflater.eof:
        raise ValueError("cut off, or larger than any image")
    return inflated


def _load(data: bytes | memoryview) -> dict[str, Any]:
    try:
        body = load_json(_inflated(bytes(data)))
    except (ValueError, zlib.error, RecursionError) as error:
        raise ImageFormatError(_shortened(f"not an image message: {error}")) from error
    if not isinstance(body, dict):
        raise ImageFormatError(f"an image message is not a {type(body).__name__}")
    told = body.get("format")
    if type(told) is not int or not OLDEST_FORMAT <= told <= FORMAT:
        raise ImageFormatError(_shortened(f"image message of format {told!r}, readable: {FORMAT}"))
    return body


def _shortened(complaint: str) -> str:
    """A message that nobody could read must not fill the log."""
    if len(complaint) <= MAX_COMPLAINT_CHARACTERS:
        return complaint
    return f"{complaint[:MAX_COMPLAINT_CHARACTERS]}… ({len(complaint)} characters)"
