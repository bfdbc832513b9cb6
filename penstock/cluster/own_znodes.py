"""The nodes that Kafka's tree does not have, under /penstock: replicas on record, tombstones, missed brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.base.outside_json import load_json
from penstock.cluster.znodes import MalformedNode, decode_topic_id, dump, encode_topic_id, load


def encode_replica_notes(
    topic_id: uuid.UUID, new: Mapping[int, tuple[int, ...]], offline: Mapping[int, tuple[int, ...]]
) -> bytes:
    """Which replicas their brokers have not made yet, and which they have lost."""
    return dump(
        {
            "version": 1,
            "topic_id": encode_topic_id(topic_id),
            "new": {str(index): list(replicas) for index, replicas in sorted(new.items())},
            "offline": {str(index): list(replicas) for index, replicas in sorted(offline.items())},
        }
    )


@dataclass(frozen=True, slots=True)
class TopicReplicaNotes:
    topic_id: uuid.UUID
    new: Mapping[int, tuple[int, ...]]
    offline: Mapping[int, tuple[int, ...]]


def decode_replica_notes(path: str, data: bytes) -> TopicReplicaNotes:
    body = load(path, data)
    try:
        new, offline = (
            {int(index): tuple(int(r) for r in replicas) for index, replicas in body[key].items()}
            for key in ("new", "offline")
        )
        return TopicReplicaNotes(decode_topic_id(body["topic_id"]), new, offline)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_tombstone(topic: str, brokers: Iterable[int]) -> bytes:
    """A deleted topic and who still has to drop replicas of it; the node's name is the topic's id."""
    return dump({"version": 1, "topic": topic, "brokers": sorted(brokers)})


def decode_tombstone(path: str, data: bytes) -> tuple[str, frozenset[int]]:
    body = load(path, data)
    try:
        return str(body["topic"]), frozenset(int(broker) for broker in body["brokers"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_missed(controller_epoch: int, brokers: Iterable[int]) -> bytes:
    return dump({"version": 1, "controller_epoch": controller_epoch, "brokers": sorted(brokers)})


def decode_missed(data: bytes, controller_epoch: int) -> frozenset[int]:
    """Whom the controller of that epoch missed when it stepped aside; nobody if the note is another one's."""
    try:
        body = load_json(data or b"{}")
        return frozenset(map(int, body["brokers"])) if body.get("controller_epoch") == controller_epoch else frozenset()
    except (ValueError, KeyError, TypeError, AttributeError):
        return frozenset()
