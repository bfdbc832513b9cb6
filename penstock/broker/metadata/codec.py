"""Metadata on the wire, versions 0 to 13, by hand: clients ask often, and for thousands of partitions at once.

A topic is encoded once per image and version class; images are immutable, so the bytes stay right until the next one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from penstock.broker.network.wire import (
    INT16,
    INT32,
    NO_TAGS,
    MalformedFrame,
    compact_nullable_string,
    compact_string,
    nullable_string,
    read_varint,
    skip_tagged_fields,
    string,
    varint,
)

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 10
NOT_ASKED = -(1 << 31)  # authorized operations that nobody asked for
ZERO_ID = bytes(16)

_int16 = INT16.unpack_from
_int32 = INT32.unpack_from
_PARTITION_V7 = Struct(">hiii").pack
_PARTITION_V0 = Struct(">hii").pack


class MetadataRequest(NamedTuple):
    """`topics` is None for all; else (topic id, name): a zero id or a missing name says which one was asked by."""

    topics: list[tuple[bytes, str | None]] | None
    allow_auto_topic_creation: bool
    include_cluster_operations: bool
    include_topic_operations: bool


class BrokerRow(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionRow(NamedTuple):
    error: int
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


def parse_metadata(buffer: Any, version: int, position: int, end: int) -> MetadataRequest:
    topics: list[tuple[bytes, str | None]] | None = []
    flexible = version >= FIRST_FLEXIBLE
    if flexible:
        count, position = read_varint(buffer, position)
        count -= 1
    else:
        (count,) = _int32(buffer, position)
        position += 4
    if count < 0 or (version == 0 and count == 0):
        topics = None
    for _ in range(max(count, 0)):
        topic_id = ZERO_ID
        if version >= FIRST_WITH_TOPIC_ID:
            topic_id = bytes(buffer[position : position + 16])
            position += 16
        name, position = _name(buffer, position, flexible)
        if flexible:
            position = skip_tagged_fields(buffer, position, end)
        if position > end:
            raise MalformedFrame("topics run over the frame")
        if name is None and version < FIRST_WITH_TOPIC_ID:
            raise MalformedFrame("topic without a name")
        assert topics is not None
        topics.append((topic_id, name))
    allow, cluster_operations, topic_operations = True, False, False
    if version >= 4:
        allow, position = bool(buffer[position]), position + 1
    if 8 <= version <= 10:
        cluster_operations, position = bool(buffer[position]), position + 1
    if version >= 8:
        topic_operations, position = bool(buffer[position]), position + 1
    if flexible:
        position = skip_tagged_fields(buffer, position, end)
    # librdkafka leaves three bytes behind when it asks for all topics in a flexible version; Kafka does not mind.
    if position > end:
        raise MalformedFrame("a metadata request runs over its frame")
    return MetadataRequest(topics, allow, cluster_operations, topic_operations)


def _name(buffer: Any, position: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        size, position = read_varint(buffer, position)
        size -= 1
    else:
        (size,) = _int16(buffer, position)
        position += 2
    if size < 0:
        return None, position
    return str(buffer[position : position + size], "utf-8", "replace"), position + size


def encode_brokers(version: int, brokers: list[BrokerRow], cluster_id: str | None, controller_id: int) -> bytes:
    """Everything before the topics, from the throttle time on."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray()
    if version >= 3:
        out += INT32.pack(0)
    out += varint(len(brokers) + 1) if flexible else INT32.pack(len(brokers))
    for node_id, host, port, rack in brokers:
        out += INT32.pack(node_id)
        out += compact_string(host.encode()) if flexible else string(host.encode())
        out += INT32.pack(port)
        if version >= 1:
            out += compact_nullable_string(rack) if flexible else nullable_string(rack)
        if flexible:
            out += NO_TAGS
    if version >= 2:
        out += compact_nullable_string(cluster_id) if flexible else nullable_string(cluster_id)
    if version >= 1:
        out += INT32.pack(controller_id)
    return bytes(out)


def encode_topic(
    version: int,
    error: int,
    name: str | None,
    topic_id: bytes,
    is_internal: bool,
    partitions: list[PartitionRow],
) -> bytes:
    """One topic without its authorized operations, which depend on who asks; see `encode_topic_end`."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(INT16.pack(error))
    if version >= 12:
        out += compact_nullable_string(name)
    else:
        encoded = (name or "").encode()
        out += compact_string(encoded) if flexible else string(encoded)
    if version >= FIRST_WITH_TOPIC_ID:
        out += topic_id
    if version >= 1:
        out.append(is_internal)
    out += varint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
    for row in partitions:
        if version >= 7:
            out += _PARTITION_V7(row.error, row.number, row.leader, row.leader_epoch)
        else:
            out += _PARTITION_V0(row.error, row.number, row.leader)
        out += _ids(row.replicas, flexible)
        out += _ids(row.isr, flexible)
        if version >= 5:
            out += _ids(row.offline, flexible)
        if flexible:
            out += NO_TAGS
    return bytes(out)


def encode_topic_end(version: int, operations: int) -> bytes:
    out = INT32.pack(operations) if version >= 8 else b""
    return out + NO_TAGS if version >= FIRST_FLEXIBLE else out


def encode_end(version: int, cluster_operations: int) -> bytes:
    out = INT32.pack(cluster_operations) if 8 <= version <= 10 else b""
    if version >= 13:
        out += INT16.pack(0)
    return out + NO_TAGS if version >= FIRST_FLEXIBLE else out


def encode_count(version: int, count: int) -> bytes:
    return varint(count + 1) if version >= FIRST_FLEXIBLE else INT32.pack(count)


_ids_cache: dict[tuple[tuple[int, ...], bool], bytes] = {}


def _ids(ids: tuple[int, ...], flexible: bool) -> bytes:
    """An array of broker ids; there are few different ones, so they are remembered."""
    key = (ids, flexible)
    found = _ids_cache.get(key)
    if found is None:
        if len(_ids_cache) > 10_000:
            _ids_cache.clear()
        found = (varint(len(ids) + 1) if flexible else INT32.pack(len(ids))) + b"".join(map(INT32.pack, ids))
        _ids_cache[key] = found
    return found
