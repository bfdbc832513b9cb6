"""Requests of every API and version, rendered from the schemas: full, bare, tagged, several of everything.

Values are chosen by the name of their field, so that a request means something to a broker with the topic `World.topic`
in it: it gets past the first checks and into the handlers. Names that a request may destroy are made up anew each time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from penstock.coordinator.group.consumer_protocol import Subscription, encode_subscription
from penstock.protocol import kio_schema, messages
from penstock.protocol.batch import build_batch
from penstock.protocol.kio_schema import FieldSchema, StructSchema
from penstock.protocol.records import new_record

SHAPES = ("full", "bare", "untagged", "several", "unknown topic")

# Never the topic that the other requests need.
_DESTRUCTIVE = frozenset({"delete_topics", "create_topics", "create_partitions", "alter_partition_reassignments"})
_TOPIC_FIELDS = frozenset({"topic_name", "topic", "topics", "topic_names", "subscribed_topic_names"})
_STRUCTS_OF_TOPICS = ("topic", "Topic")


@dataclass
class World:
    """What requests may speak of."""

    topic: str
    topic_id: UUID
    broker_id: int = 1
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def fresh(self, what: str) -> str:
        return f"{what}-{next(self.numbers)}"


def shapes(name: str, version: int, world: World) -> Iterator[tuple[str, Any]]:
    """(shape, request) of one version of an API."""
    schema = kio_schema.message_schema(name, version, "request")
    for shape in SHAPES:
        yield shape, _Renderer(name, shape, world).struct(schema)


class _Renderer:
    def __init__(self, name: str, shape: str, world: World) -> None:
        self.api = messages.api(name)
        self.name = name
        self.shape = shape
        self.world = world
        self.group = world.fresh("group")

    def struct(self, schema: StructSchema) -> Any:
        made = self.api.request_struct(schema.name)()
        for one in schema.fields:
            if one.tag is not None and self.shape in ("bare", "untagged"):
                continue
            setattr(made, one.name, self._value(one, schema.name))
        return made

    def _value(self, one: FieldSchema, owner: str) -> Any:
        if self.shape == "bare":
            if one.nullable:
                return None
            if one.is_array:
                return []
        if one.is_array:
            return [self._single(one, owner) for _ in range(3 if self.shape == "several" else 1)]
        return self._single(one, owner)

    def _single(self, one: FieldSchema, owner: str) -> Any:
        if one.struct is not None:
            return self.struct(one.struct)
        if one.kind == "string":
            return self._text(one.name, owner)
        if one.kind == "uuid":
            return UUID(int=77) if self.shape == "unknown topic" else self.world.topic_id
        if one.kind == "bytes":
            return self._bytes(one.name)
        if one.kind == "bool":
            return _TRUE.get(one.name, False)
        if one.kind == "float64":
            return 1.0
        return _NUMBERS.get(one.name, 1 if "id" in one.name and "broker" in one.name else 0)

    def _text(self, name: str, owner: str) -> str:
        if name in _TOPIC_FIELDS or (name == "name" and any(word in owner for word in _STRUCTS_OF_TOPICS)):
            if self.shape == "unknown topic":
                return "no-such-topic"
            return self.world.fresh("doomed") if self.name in _DESTRUCTIVE else self.world.topic
        if name in ("group_id", "key", "coordinator_keys", "groups", "groups_names", "group_ids"):
            return self.group
        return _TEXTS.get(name, "x")

    def _bytes(self, name: str) -> bytes:
        if name == "records":
            return bytes(build_batch([new_record(b"k", b"v", int(time.time() * 1000))]))
        if name == "metadata":
            return encode_subscription(Subscription([self.world.topic], version=1))
        return b""


_TRUE = {"include_synonyms": True, "include_documentation": True, "require_stable": True, "validate_only": True}
_NUMBERS = {
    "timeout_ms": 1_000,
    "timeout": 1_000,
    "session_timeout_ms": 6_000,
    "rebalance_timeout_ms": 1_000,
    "transaction_timeout_ms": 1_000,
    "max_wait_ms": 1,
    "min_bytes": 0,
    "max_bytes": 1_000,
    "partition_max_bytes": 1_000,
    "acks": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "session_epoch": -1,
    "timestamp": -1,
    "resource_type": 2,
    "config_resource_type": 2,
    "response_partition_limit": 100,
    "retention_time_ms": -1,
    "isolation_level": 1,
    "max_num_offsets": 1,
    "duration_filter": -1,
    # An ACL with a kind that does not exist is not well-formed: Kafka closes the connection, and so do we.
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}  # fmt: skip
_TEXTS = {
    "protocol_type": "consumer",
    "protocol_name": "range",
    "client_software_name": "shapes",
    "client_software_version": "1",
    "mechanism": "PLAIN",
    "resource_name": "x",
    "principal": "User:x",
    "principal_filter": "User:x",
    "host": "*",
    "host_filter": "*",
}
