"""Fetch on the wire, versions 4 to 18, by hand. Record bytes never appear here: answers carry regions of files."""

from __future__ import annotations

from struct import Struct
from typing import Any

from penstock.broker.network.outbox import FileRegion
from penstock.broker.network.wire import (
    INT16,
    INT32,
    MOST_TAGGED_FIELDS,
    NO_TAGS,
    MalformedFrame,
    begin_frame,
    compact_string,
    end_frame,
    read_varint,
    skip_tagged_fields,
    string,
    varint,
)
from penstock.broker.produce.codec import Leader, encode_node_endpoints

FIRST_WITH_SESSIONS = 7
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_ID = 13
FIRST_WITH_LEADER_HINTS = 16

_HEAD_V4 = Struct(">iiiib").unpack_from
_HEAD_V15 = Struct(">iiib").unpack_from
_PAIR = Struct(">ii").unpack_from
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_REPLICA_STATE = Struct(">iq").unpack_from
_int16 = INT16.unpack_from
_int32 = INT32.unpack_from
_RESULT_V4 = Struct(">ihqq").pack
_RESULT_V5 = Struct(">ihqqq").pack
_ABORTED = Struct(">qq").pack
_EPOCH_AND_OFFSET = Struct(">iq").pack
_NODE = Struct(">ii").pack


class FetchPartition:
    """One partition that is fetched: what was asked, and (inside a session) what was last told."""

    __slots__ = ("current_leader_epoch", "index", "last_fetched_epoch", "log_start_offset", "max_bytes", "name",
                 "offset", "replica", "told_high_watermark", "told_log_start_offset", "turn")  # fmt: skip

    def __init__(
        self,
        name: bytes,
        index: int,
        current_leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        max_bytes: int,
    ) -> None:
        self.name = name  # on the wire: topic name, or the 16 bytes of its id from v13
        self.index = index
        self.current_leader_epoch = current_leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset  # of the asking follower
        self.max_bytes = max_bytes
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.turn = 0
        self.replica: Any = None  # where it was read last


class FetchRequest:
    __slots__ = ("forgotten", "isolation_level", "max_bytes", "max_wait_ms", "min_bytes", "partitions", "rack_id",
                 "replica_epoch", "replica_id", "session_epoch", "session_id", "version")  # fmt: skip

    def __init__(self, version: int) -> None:
        self.version = version
        self.replica_id = -1
        self.replica_epoch = -1
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = 0x7FFFFFFF
        self.isolation_level = 0
        self.session_id = 0
        self.session_epoch = -1
        self.partitions: list[FetchPartition] = []
        self.forgotten: list[tuple[bytes, int]] = []
        self.rack_id = ""


def parse_fetch(buffer: Any, version: int, position: int, end: int) -> FetchRequest:
    request = FetchRequest(version)
    if version >= 15:
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = _HEAD_V15(buffer, position)
        position += 13
    else:
        (
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
        ) = _HEAD_V4(buffer, position)
        position += 17
    if version >= FIRST_WITH_SESSIONS:
        request.session_id, request.session_epoch = _PAIR(buffer, position)
        position += 8
    if version >= FIRST_FLEXIBLE:
        position = _parse_flexible(request, buffer, version, position, end)
    else:
        position = _parse_plain(request, buffer, version, position, end)
    if position > end:  # bytes left behind its end are nobody's, as in Kafka
        raise MalformedFrame("fetch request runs over the frame")
    return request


def _parse_plain(request: FetchRequest, buffer: Any, version: int, position: int, end: int) -> int:
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    (topic_count,) = _int32(buffer, position)
    position += 4
    for _ in range(topic_count):
        name, position = _plain_name(buffer, position)
        (partition_count,) = _int32(buffer, position)
        position += 4
        for _ in range(partition_count):
            fields = layout.unpack_from(buffer, position)
            position += layout.size
            if position > end:
                raise MalformedFrame("partition runs over the frame")
            if version >= 9:
                index, epoch, offset, log_start_offset, max_bytes = fields
            elif version >= 5:
                (index, offset, log_start_offset, max_bytes), epoch = fields, -1
            else:
                (index, offset, max_bytes), epoch, log_start_offset = fields, -1, -1
            request.partitions.append(FetchPartition(name, index, epoch, offset, -1, log_start_offset, max_bytes))
        if position > end:
            raise MalformedFrame("topic runs over the frame")
    if version >= FIRST_WITH_SESSIONS:
        (topic_count,) = _int32(buffer, position)
        position += 4
        for _ in range(topic_count):
            name, position = _plain_name(buffer, position)
            (partition_count,) = _int32(buffer, position)
            position += 4
            if position + 4 * max(partition_count, 0) > end:
                raise MalformedFrame("forgotten partitions run over the frame")
            for _ in range(partition_count):
                request.forgotten.append((name, _int32(buffer, position)[0]))
                position += 4
    if version >= 11:
        rack, position = _plain_name(buffer, position)
        request.rack_id = str(rack, "utf-8", "replace")
    return position


def _plain_name(buffer: Any, position: int) -> tuple[bytes, int]:
    (size,) = _int16(buffer, position)
    if size < 0:
        raise MalformedFrame("a string that may not be null is null")
    return bytes(buffer[position + 2 : position + 2 + size]), position + 2 + size


def _parse_flexible(request: FetchRequest, buffer: Any, version: int, position: int, end: int) -> int:
    layout = _PARTITION_V12
    topic_count, position = read_varint(buffer, position)
    for _ in range(topic_count - 1):
        name, position = _flexible_name(buffer, version, position)
        partition_count, position = read_varint(buffer, position)
        for _ in range(partition_count - 1):
            request.partitions.append(FetchPartition(name, *layout.unpack_from(buffer, position)))
            position = skip_tagged_fields(buffer, position + layout.size, end)
        position = skip_tagged_fields(buffer, position, end)
    topic_count, position = read_varint(buffer, position)
    for _ in range(topic_count - 1):
        name, position = _flexible_name(buffer, version, position)
        partition_count, position = read_varint(buffer, position)
        if position + 4 * (partition_count - 1) > end:
            raise MalformedFrame("forgotten partitions run over the frame")
        for _ in range(partition_count - 1):
            request.forgotten.append((name, _int32(buffer, position)[0]))
            position += 4
        position = skip_tagged_fields(buffer, position, end)
    size, position = read_varint(buffer, position)
    if size > 1:
        request.rack_id = str(buffer[position : position + size - 1], "utf-8", "replace")
        position += size - 1
    return _parse_top_tags(request, buffer, position, end)


def _flexible_name(buffer: Any, version: int, position: int) -> tuple[bytes, int]:
    if version >= FIRST_WITH_TOPIC_ID:
        return bytes(buffer[position : position + 16]), position + 16
    size, position = read_varint(buffer, position)
    if size == 0:
        raise MalformedFrame("topic without a name")
    return bytes(buffer[position : position + size - 1]), position + size - 1


def _parse_top_tags(request: FetchRequest, buffer: Any, position: int, end: int) -> int:
    count, position = read_varint(buffer, position)
    if count > MOST_TAGGED_FIELDS:
        raise MalformedFrame(f"{count} tagged fields")
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if position + size > end:
            raise MalformedFrame("tagged field beyond the end")
        if tag == 1 and size >= 12:  # replica state, in the place of the replica id since v15
            request.replica_id, request.replica_epoch = _REPLICA_STATE(buffer, position)
        position += size
    return position


def encode_fetch(
    version: int,
    correlation_id: int,
    error: int,
    session_id: int,
    results: list[tuple[FetchPartition, Any]],
    leaders: dict[tuple[bytes, int], Leader] | None = None,
    throttle_time_ms: int = 0,
) -> list[Any]:
    """Buffers and file regions of the whole answer. `results`: replication's Fetched for each partition, in order."""
    flexible = version >= FIRST_FLEXIBLE
    out = begin_frame(correlation_id, flexible)
    head = out
    out += INT32.pack(throttle_time_ms)
    if version >= FIRST_WITH_SESSIONS:
        out += INT16.pack(error) + INT32.pack(session_id)
    topics = _by_topic(results)
    out += varint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    parts: list[Any] = [head]
    following = 0
    for name, partitions in topics:
        if version >= FIRST_WITH_TOPIC_ID:
            out += name
        else:
            out += compact_string(name) if flexible else string(name)
        out += varint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for asked, fetched in partitions:
            _encode_partition(out, version, asked.index, fetched)
            region = fetched.region
            if region is not None and region.length:
                parts.append(FileRegion(region.file.fd, region.position, region.length, region.file))
                following += region.length
                out = bytearray()
                parts.append(out)
            if flexible:
                _encode_partition_tags(out, version, (asked.name, asked.index), fetched, leaders)
        if flexible:
            out += NO_TAGS
    if flexible:
        if leaders and version >= FIRST_WITH_LEADER_HINTS:
            nodes = encode_node_endpoints(leaders)
            out += b"\x01\x00" + varint(len(nodes)) + nodes
        else:
            out += NO_TAGS
    if len(parts) > 1:
        following += sum(len(part) for part in parts[1:] if type(part) is bytearray)
        if not parts[-1]:
            parts.pop()
    end_frame(head, following)
    return parts


def _by_topic(results: list[tuple[FetchPartition, Any]]) -> list[tuple[bytes, list[tuple[FetchPartition, Any]]]]:
    """Neighbours of one topic together, the order of partitions unchanged."""
    if len(results) == 1:
        return [(results[0][0].name, results)]
    topics: list[tuple[bytes, list[tuple[FetchPartition, Any]]]] = []
    for asked, fetched in results:
        if not topics or topics[-1][0] != asked.name:
            topics.append((asked.name, []))
        topics[-1][1].append((asked, fetched))
    return topics


def _encode_partition(out: bytearray, version: int, index: int, fetched: Any) -> None:
    if version >= 5:
        out += _RESULT_V5(
            index, fetched.error, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset
        )
    else:
        out += _RESULT_V4(index, fetched.error, fetched.high_watermark, fetched.last_stable_offset)
    aborted = fetched.aborted
    flexible = version >= FIRST_FLEXIBLE
    if aborted is None:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        out += varint(len(aborted) + 1) if flexible else INT32.pack(len(aborted))
        for entry in aborted:
            out += _ABORTED(entry.producer_id, entry.first_offset)
            if flexible:
                out += NO_TAGS
    if version >= 11:
        out += INT32.pack(fetched.preferred_replica)
    region = fetched.region
    length = 0 if region is None else region.length
    out += varint(length + 1) if flexible else INT32.pack(length)


def _encode_partition_tags(
    out: bytearray, version: int, key: tuple[bytes, int], fetched: Any, leaders: dict[tuple[bytes, int], Leader] | None
) -> None:
    leader = leaders.get(key) if leaders and version >= FIRST_WITH_LEADER_HINTS else None
    diverging = fetched.diverging_epoch
    if leader is None and diverging is None:
        out += NO_TAGS
        return
    out += varint((leader is not None) + (diverging is not None))
    if diverging is not None:
        out += b"\x00\x0d" + _EPOCH_AND_OFFSET(*diverging) + NO_TAGS
    if leader is not None:
        out += b"\x01\x09" + _NODE(leader[0], leader[1]) + NO_TAGS
