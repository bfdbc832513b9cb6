"""Fetch (key 1, version 17) as followers speak it, written by hand: record bytes stay views of the received frame."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.replication.fetch_plan import Plan
from penstock.replication.following import FetchAnswer

FETCH_KEY = 1
FETCH_VERSION = 17

_HEAD = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqib")
_REPLICA_STATE = struct.Struct(">iqb")
_ANSWER_HEAD = struct.Struct(">ihi")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_INT = struct.Struct(">i")
_DIVERGING_EPOCH = struct.Struct(">iq")


class FetchLimits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class AnswerHead(NamedTuple):
    throttle_time_ms: int
    error: int
    session_id: int


def encode_request(plan: Plan, limits: FetchLimits, replica_id: int, replica_epoch: int) -> bytes:
    out = bytearray(
        _HEAD.pack(limits.max_wait_ms, limits.min_bytes, limits.max_bytes, 0, plan.session_id, plan.session_epoch)
    )
    by_topic: dict[bytes, list[bytes]] = {}
    for partition, at in plan.named:
        by_topic.setdefault(partition.topic_id.bytes, []).append(
            _PARTITION.pack(
                partition.index,
                at.leader_epoch,
                at.fetch_offset,
                at.last_fetched_epoch,
                at.log_start_offset,
                limits.partition_max_bytes,
                0,
            )
        )
    _topics(out, by_topic)
    forgotten: dict[bytes, list[bytes]] = {}
    for partition in plan.forgotten:
        forgotten.setdefault(partition.topic_id.bytes, []).append(_INT.pack(partition.index))
    _topics(out, forgotten)
    out += b"\x01"  # no rack
    out += b"\x01\x01"  # one tagged field: the replica state
    state = _REPLICA_STATE.pack(replica_id, replica_epoch, 0)
    out.append(len(state))
    out += state
    return bytes(out)


def _topics(out: bytearray, by_topic: dict[bytes, list[bytes]]) -> None:
    _write_uvarint(out, len(by_topic) + 1)
    for topic_id, parts in by_topic.items():
        out += topic_id
        _write_uvarint(out, len(parts) + 1)
        out += b"".join(parts)
        out.append(0)


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def decode_head(body: memoryview) -> AnswerHead:
    return AnswerHead(*_ANSWER_HEAD.unpack_from(body))


def decode_partitions(body: memoryview) -> Iterator[tuple[bytes, int, FetchAnswer]]:
    """(topic id, partition, answer) for each partition that the answer names."""
    topics, at = _uvarint(body, _ANSWER_HEAD.size)
    for _ in range(topics - 1):
        topic_id = bytes(body[at : at + 16])
        partitions, at = _uvarint(body, at + 16)
        for _ in range(partitions - 1):
            index, answer, at = _partition(body, at)
            yield topic_id, index, answer
        at = _skip_tags(body, at)


def _partition(body: memoryview, at: int) -> tuple[int, FetchAnswer, int]:
    index, error, high_watermark, _last_stable, log_start_offset = _ANSWER_PARTITION.unpack_from(body, at)
    aborted, at = _uvarint(body, at + _ANSWER_PARTITION.size)
    for _ in range(aborted - 1):
        at = _skip_tags(body, at + 16)
    size, at = _uvarint(body, at + 4)  # behind the preferred replica
    records = body[at : at + size - 1] if size > 1 else b""
    at += max(size - 1, 0)
    diverging: tuple[int, int] | None = None
    tags, at = _uvarint(body, at)
    for _ in range(tags):
        tag, at = _uvarint(body, at)
        length, at = _uvarint(body, at)
        if tag == 0:
            epoch, end_offset = _DIVERGING_EPOCH.unpack_from(body, at)
            if epoch >= 0:
                diverging = (epoch, end_offset)
        at += length
    return index, FetchAnswer(error, high_watermark, log_start_offset, diverging, records), at


def _skip_tags(body: memoryview, at: int) -> int:
    tags, at = _uvarint(body, at)
    for _ in range(tags):
        _, at = _uvarint(body, at)
        length, at = _uvarint(body, at)
        at += length
    return at


def _uvarint(body: memoryview, at: int) -> tuple[int, int]:
    value = body[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    shift = 7
    while True:
        at += 1
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 35:
            raise ValueError("a number in the fetch answer is too long")
