"""Produce on the wire, versions 3 to 13, by hand: record bytes are never copied while parsing."""

from __future__ import annotations

from struct import Struct
from typing import Any

from penstock.broker.network.wire import (
    INT16,
    INT32,
    NO_TAGS,
    MalformedFrame,
    begin_frame,
    compact_nullable_string,
    compact_string,
    end_frame,
    nullable_string,
    read_varint,
    skip_tagged_fields,
    string,
    varint,
)

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 13
FIRST_WITH_LEADER_HINTS = 10
MOST_PARTITIONS = 20_000  # in one request, as many topics: all of them are answered in one go
MOST_TAGGED_PLACES = 1000  # topics and partitions with tagged fields; Kafka knows none for them

_ACKS_TIMEOUT_COUNT = Struct(">hii").unpack_from
_ACKS_TIMEOUT = Struct(">hi").unpack_from
_INDEX_SIZE = Struct(">ii").unpack_from
_int16 = INT16.unpack_from
_int32 = INT32.unpack_from
_RESULT_V2 = Struct(">ihqq").pack
_RESULT_V5 = Struct(">ihqqq").pack
_NODE = Struct(">ii").pack

PartitionData = tuple[int, int, int]
"""(partition index, position of its records, their size; -1 for null records)."""


class ProduceRequest:
    """Positions refer to the connection's buffer and die with the dispatch of the frame."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics: list[tuple[bytes, list[PartitionData]]] = []  # name (or id from v13) → partitions


class PartitionResult:
    __slots__ = ("append_time_ms", "base_offset", "error", "index", "log_start_offset", "message", "partition",
                 "record_errors", "required_offset")  # fmt: skip

    def __init__(self, index: int, error: int = 0, message: str | None = None) -> None:
        self.index = index
        self.error = error
        self.message = message
        self.base_offset = -1
        self.append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: Any = ()
        self.partition: Any = None  # where it was appended
        self.required_offset = -1  # what the high watermark must reach for acks=all


def parse_produce(buffer: Any, version: int, position: int, end: int, most: int = MOST_PARTITIONS) -> ProduceRequest:
    """`most`: so many topics, and so many partitions, may be named."""
    if version >= FIRST_FLEXIBLE:
        return _parse_flexible(buffer, version, position, end, most)
    (size,) = _int16(buffer, position)
    position += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(buffer[position : position + size], "utf-8")
        position += size
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT(buffer, position)
    position += 10
    request = ProduceRequest(transactional_id, acks, timeout_ms)
    if topic_count > most:
        raise MalformedFrame(f"produce request with {topic_count} topics")
    for _ in range(topic_count):
        (size,) = _int16(buffer, position)
        position += 2
        if size < 0:
            raise MalformedFrame("topic without a name")
        name = bytes(buffer[position : position + size])
        position += size
        (partition_count,) = _int32(buffer, position)
        position += 4
        if partition_count > most:
            raise MalformedFrame(f"produce request with {partition_count} partitions more")
        most -= partition_count if partition_count > 0 else 0
        partitions: list[PartitionData] = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE(buffer, position)
            position += 8
            partitions.append((index, position, size))
            if size > 0:
                position += size
            if position > end:
                raise MalformedFrame("records run over the frame")
        if position > end:
            raise MalformedFrame("topic runs over the frame")
        request.topics.append((name, partitions))
    if position > end:  # bytes left behind its end are nobody's, as in Kafka
        raise MalformedFrame("produce request runs over the frame")
    return request


def _parse_flexible(buffer: Any, version: int, position: int, end: int, most: int) -> ProduceRequest:
    size = buffer[position]
    position += 1
    transactional_id = None
    if size:
        size, position = read_varint(buffer, position - 1)
        transactional_id = str(buffer[position : position + size - 1], "utf-8")
        position += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT(buffer, position)
    topic_count, position = read_varint(buffer, position + 6)
    request = ProduceRequest(transactional_id, acks, timeout_ms)
    tagged = 0
    if topic_count > most + 1:
        raise MalformedFrame(f"produce request with {topic_count} topics")
    for _ in range(topic_count - 1):
        if version >= FIRST_WITH_TOPIC_ID:
            name = bytes(buffer[position : position + 16])
            position += 16
        else:
            size, position = read_varint(buffer, position)
            if size == 0:
                raise MalformedFrame("topic without a name")
            name = bytes(buffer[position : position + size - 1])
            position += size - 1
        partition_count, position = read_varint(buffer, position)
        if partition_count > most + 1:
            raise MalformedFrame(f"produce request with {partition_count} partitions more")
        most -= partition_count - 1
        partitions: list[PartitionData] = []
        for _ in range(partition_count - 1):
            (index,) = _int32(buffer, position)
            size, position = read_varint(buffer, position + 4)
            partitions.append((index, position, size - 1))
            if size:
                position += size - 1
            if position >= end:
                raise MalformedFrame("records run over the frame")
            if buffer[position] == 0:
                position += 1
            else:
                position = skip_tagged_fields(buffer, position, end)
                tagged += 1
                if tagged > MOST_TAGGED_PLACES:
                    raise MalformedFrame("tagged fields everywhere")
        if position >= end:
            raise MalformedFrame("topic runs over the frame")
        if buffer[position] == 0:
            position += 1
        else:
            position = skip_tagged_fields(buffer, position, end)
            tagged += 1
            if tagged > MOST_TAGGED_PLACES:
                raise MalformedFrame("tagged fields everywhere")
        request.topics.append((name, partitions))
    position = skip_tagged_fields(buffer, position, end)
    if position > end:  # bytes left behind its end are nobody's, as in Kafka
        raise MalformedFrame("produce request runs over the frame")
    return request


Results = list[tuple[bytes, list[PartitionResult]]]
Leader = tuple[int, int, str, int, str | None]
"""(leader id, leader epoch, host, port, rack): what a client needs to go to the right broker at once."""


def encode_produce(
    version: int,
    correlation_id: int,
    results: Results,
    throttle_time_ms: int,
    leaders: dict[tuple[bytes, int], Leader] | None = None,
) -> bytearray:
    if version >= FIRST_FLEXIBLE:
        return _encode_flexible(version, correlation_id, results, throttle_time_ms, leaders)
    out = begin_frame(correlation_id, False)
    out += INT32.pack(len(results))
    for name, partitions in results:
        out += string(name)
        out += INT32.pack(len(partitions))
        for r in partitions:
            if version < 5:
                out += _RESULT_V2(r.index, r.error, r.base_offset, r.append_time_ms)
                continue
            out += _RESULT_V5(r.index, r.error, r.base_offset, r.append_time_ms, r.log_start_offset)
            if version >= 8:
                out += INT32.pack(len(r.record_errors))
                for batch_index, message in r.record_errors:
                    out += INT32.pack(batch_index)
                    out += nullable_string(message)
                out += nullable_string(r.message)
    out += INT32.pack(throttle_time_ms)
    return end_frame(out)


def _encode_flexible(
    version: int,
    correlation_id: int,
    results: Results,
    throttle_time_ms: int,
    leaders: dict[tuple[bytes, int], Leader] | None,
) -> bytearray:
    out = begin_frame(correlation_id, True)
    out += varint(len(results) + 1)
    for name, partitions in results:
        out += name if version >= FIRST_WITH_TOPIC_ID else compact_string(name)
        out += varint(len(partitions) + 1)
        for r in partitions:
            out += _RESULT_V5(r.index, r.error, r.base_offset, r.append_time_ms, r.log_start_offset)
            if r.error == 0 and not r.record_errors:
                out += b"\x01\x00\x00"  # no record errors, no message, no tags
                continue
            out += varint(len(r.record_errors) + 1)
            for batch_index, message in r.record_errors:
                out += INT32.pack(batch_index) + compact_nullable_string(message) + NO_TAGS
            out += compact_nullable_string(r.message)
            leader = leaders.get((name, r.index)) if leaders else None
            if leader is None or version < FIRST_WITH_LEADER_HINTS:
                out += NO_TAGS
            else:
                out += b"\x01\x00\x09" + _NODE(leader[0], leader[1]) + NO_TAGS
        out += NO_TAGS
    out += INT32.pack(throttle_time_ms)
    if leaders and version >= FIRST_WITH_LEADER_HINTS:
        nodes = encode_node_endpoints(leaders)
        out += b"\x01\x00" + varint(len(nodes)) + nodes
    else:
        out += NO_TAGS
    return end_frame(out)


def encode_node_endpoints(leaders: dict[tuple[bytes, int], Leader]) -> bytes:
    """Each named leader once (KIP-951), as Produce v10+ and Fetch v16+ carry them."""
    nodes = {leader[0]: leader for leader in leaders.values()}
    out = bytearray(varint(len(nodes) + 1))
    for node_id, _, host, port, rack in nodes.values():
        out += INT32.pack(node_id) + compact_string(host.encode()) + INT32.pack(port)
        out += compact_nullable_string(rack) + NO_TAGS
    return bytes(out)
