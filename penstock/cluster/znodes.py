"""Kafka's layout of the tree: which node holds what, and the JSON in it (of Kafka 3.9, which still had ZooKeeper).

Readers are lenient (unknown keys are ignored, older versions of a node are taken), writers exact.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.outside_json import load_json
from penstock.cluster.events import ReplicaAssignment, TopicPartition, TopicRecord
from penstock.cluster.image import BrokerRegistration, ConfigKey, Endpoint, PartitionRegistration

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
CONFIG_CHANGES = "/config/changes"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
REPLICA_NOTES = "/penstock/replicas"
TOMBSTONES = "/penstock/deletions"
MISSED_BROKERS = "/penstock/missed"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CLUSTER_ID = "/cluster/id"

PERSISTENT_PATHS = (
    "/cluster",
    "/consumers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    REPLICA_NOTES,
    TOMBSTONES,
    MISSED_BROKERS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/groups",
)
"""Made empty by every broker that starts."""

CONFIG_FOLDERS = {
    "topic": "topics",
    "broker": "brokers",
    "client": "clients",
    "user": "users",
    "ip": "ips",
    "group": "groups",
}
_KIND_OF_FOLDER = {folder: kind for kind, folder in CONFIG_FOLDERS.items()}
DEFAULT_ENTITY = "<default>"


class MalformedNode(ValueError):
    """A node whose content no reader understands. The message names the path."""


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def deletion_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def replica_notes_path(topic: str) -> str:
    return f"{REPLICA_NOTES}/{topic}"


def tombstone_path(topic_id: uuid.UUID) -> str:
    return f"{TOMBSTONES}/{encode_topic_id(topic_id)}"


def sanitize(name: str) -> str:
    """Names of users, clients and groups as they appear in paths; a name of one or two dots would be a path itself."""
    return name.replace(".", "%2E") if name in (".", "..") else urllib.parse.quote(name, safe="-._")


def desanitize(name: str) -> str:
    return urllib.parse.unquote(name)


def config_entity_path(key: ConfigKey) -> str:
    """`topics/T`, `brokers/1`, `brokers/<default>`, `users/U/clients/C`: as config change notifications name it."""
    kind, name = key
    return f"{CONFIG_FOLDERS[kind]}/{name or DEFAULT_ENTITY}"


def config_path(key: ConfigKey) -> str:
    return f"/config/{config_entity_path(key)}"


def config_key(entity_path: str) -> ConfigKey | None:
    folder, _, name = entity_path.partition("/")
    kind = _KIND_OF_FOLDER.get(folder)
    if kind is None or not name:
        return None
    return kind, "" if kind == "broker" and name == DEFAULT_ENTITY else name


def dump(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    try:
        body = load_json(data)
    except ValueError as error:
        raise MalformedNode(f"{path}: {error}") from error
    if not isinstance(body, dict):
        raise MalformedNode(f"{path}: expected a JSON object")
    return body


def encode_topic_id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def encode_topic(topic_id: uuid.UUID, assignments: Mapping[int, ReplicaAssignment]) -> bytes:
    ordered = sorted(assignments.items())
    return dump(
        {
            "version": 3,
            "topic_id": encode_topic_id(topic_id),
            "partitions": {str(index): list(a.replicas) for index, a in ordered},
            "adding_replicas": {str(index): list(a.adding) for index, a in ordered if a.adding},
            "removing_replicas": {str(index): list(a.removing) for index, a in ordered if a.removing},
        }
    )


def decode_topic(topic: str, data: bytes, version: int) -> TopicRecord:
    path = topic_path(topic)
    body = load(path, data)
    try:
        adding, removing = body.get("adding_replicas") or {}, body.get("removing_replicas") or {}
        assignments = {
            int(index): ReplicaAssignment(tuple(replicas), tuple(adding.get(index, ())), tuple(removing.get(index, ())))
            for index, replicas in body["partitions"].items()
        }
        # Topics of clusters older than 2.8 have no id; the controller gives them one.
        encoded = body.get("topic_id")
        topic_id = decode_topic_id(encoded) if encoded else uuid.UUID(int=0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error
    return TopicRecord(topic_id, dict(sorted(assignments.items())), version)


def encode_state(
    partition: PartitionRegistration, controller_epoch: int, broker_epochs: Mapping[int, int] | None = None
) -> bytes:
    """Kafka's content with some keys more: the registrations under which the members of ISR and ELR were in sync, so
    that a controller which takes over later can tell a member that died and came back meanwhile; the ELR, the last
    known leader, and the min ISR by which the ELR was reckoned."""
    body: dict[str, Any] = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.recovering:
        body["leader_recovery_state"] = 1
    if partition.min_isr:
        body["min_isr"] = partition.min_isr
    if partition.eligible:
        body["elr"] = list(partition.eligible)
    if partition.last_known:
        body["last_known_elr"] = list(partition.last_known)
    epochs = {r: broker_epochs[r] for r in partition.isr if broker_epochs and r in broker_epochs}
    epochs |= dict(zip(partition.eligible, partition.eligible_epochs, strict=True))
    if epochs:
        body["broker_epochs"] = {str(r): epoch for r, epoch in epochs.items()}
    return dump(body)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The content of a partition's state node; `version` is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovering: bool
    controller_epoch: int
    version: int
    broker_epochs: Mapping[int, int]
    min_isr: int = 0
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


def decode_state(path: str, data: bytes, version: int) -> PartitionState:
    body = load(path, data)
    try:
        return PartitionState(
            leader=int(body["leader"]),
            leader_epoch=int(body["leader_epoch"]),
            isr=tuple(int(b) for b in body["isr"]),
            recovering=body.get("leader_recovery_state", 0) == 1,
            controller_epoch=int(body.get("controller_epoch", 0)),
            version=version,
            broker_epochs={int(r): int(epoch) for r, epoch in (body.get("broker_epochs") or {}).items()},
            min_isr=int(body.get("min_isr", 0)),
            eligible=tuple(int(b) for b in body.get("elr", ())),
            last_known=tuple(int(b) for b in body.get("last_known_elr", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_broker(broker: BrokerRegistration, now_ms: int) -> bytes:
    plaintext = next((e for e in broker.endpoints.values() if e.security_protocol == "PLAINTEXT"), None)
    body: dict[str, Any] = {
        "version": 5,
        "host": plaintext.host if plaintext else None,
        "port": plaintext.port if plaintext else -1,
        "endpoints": [f"{name}://{_bracketed(e.host)}:{e.port}" for name, e in broker.endpoints.items()],
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "listener_security_protocol_map": {n: e.security_protocol for n, e in broker.endpoints.items()},
        "features": {name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()},
    }
    if broker.rack is not None:
        body["rack"] = broker.rack
    if broker.incarnation >= 0:
        body["incarnation"] = broker.incarnation
    if broker.clean_stop >= 0:
        body["clean_stop"] = [broker.clean_since, broker.clean_stop]
    if broker.machine is not None:
        body["machine"] = broker.machine
    return dump(body)


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerRegistration:
    path = broker_path(broker_id)
    body = load(path, data)
    try:
        protocols = body.get("listener_security_protocol_map") or {}
        endpoints = {}
        for text in body.get("endpoints") or [f"PLAINTEXT://{body['host']}:{body['port']}"]:
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            endpoints[name] = Endpoint(host.strip("[]"), int(port), protocols.get(name, name))
        features = {
            name: (int(levels["min_version"]), int(levels["max_version"]))
            for name, levels in (body.get("features") or {}).items()
        }
        clean_since, clean_stop = body.get("clean_stop") or (-1, -1)
        return BrokerRegistration(
            broker_id,
            epoch,
            endpoints,
            body.get("rack"),
            features=features,
            incarnation=int(body.get("incarnation", -1)),
            clean_since=int(clean_since),
            clean_stop=int(clean_stop),
            machine=body.get("machine"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return dump({"version": 1, "config": dict(overrides)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    config = load(path, data).get("config", {})
    if not isinstance(config, dict) or not all(isinstance(v, str) for v in config.values()):
        raise MalformedNode(f"{path}: config must map names to strings")
    return config


def encode_config_change(key: ConfigKey) -> bytes:
    return dump({"version": 2, "entity_path": config_entity_path(key)})


def decode_config_change(path: str, data: bytes) -> ConfigKey | None:
    """The changed resource, None for a kind that this release does not know."""
    body = load(path, data)
    entity_path = body.get("entity_path")
    if entity_path is None:
        entity_path = f"{body.get('entity_type')}/{body.get('entity_name')}"
    return config_key(str(entity_path))


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    try:
        return int(load(CONTROLLER, data)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{CONTROLLER}: {error!r}") from error


def encode_partition_list(partitions: Iterable[TopicPartition]) -> bytes:
    return dump({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_partition_list(path: str, data: bytes) -> list[TopicPartition]:
    try:
        return [(str(row["topic"]), int(row["partition"])) for row in load(path, data)["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        rows = load(REASSIGN_PARTITIONS, data)["partitions"]
        return {(str(r["topic"]), int(r["partition"])): tuple(int(b) for b in r["replicas"]) for r in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{REASSIGN_PARTITIONS}: {error!r}") from error


def encode_log_dir_event(broker_id: int, partitions: Iterable[TopicPartition]) -> bytes:
    """Kafka's event with one key more: which replicas are lost (Kafka's controller would ask the broker for them)."""
    lost = [{"topic": t, "partition": p} for t, p in partitions]
    return dump({"version": 1, "broker": broker_id, "event": 1, "partitions": lost})


def decode_log_dir_event(path: str, data: bytes) -> tuple[int, list[TopicPartition]]:
    body = load(path, data)
    try:
        return int(body["broker"]), [(str(r["topic"]), int(r["partition"])) for r in body.get("partitions", ())]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block_end(data: bytes) -> int:
    """The last producer id that is given away; -1 before the first block."""
    if not data:
        return -1
    try:
        return int(load(PRODUCER_ID_BLOCK, data)["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{PRODUCER_ID_BLOCK}: {error!r}") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    try:
        return str(load(CLUSTER_ID, data)["id"])
    except KeyError as error:
        raise MalformedNode(f"{CLUSTER_ID}: no id") from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
