"""Committed offsets as records (type 1; type 0 is the legacy form, read only).

State keeps them encoded: the key without its group, and the value. A million offsets load in seconds because nobody
decodes them before somebody asks. Values are written in version 4 with the id of the topic that they were committed
for, so that a topic of the same name that comes later does not inherit them; without an id in version 3, and with a
retention of their own in version 1, the only one that has a field for it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord, Reader, Writer

__all__ = [
    "OffsetAndMetadata",
    "decode_offset",
    "decode_slot",
    "encode_offset",
    "offset_slot",
    "offset_tombstone",
]

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_FRONT = struct.Struct(">hqih")  # version, offset, leader epoch, length of metadata
_I64 = struct.Struct(">q")
_KEY_FRONT = struct.Struct(">hh")
_EXPIRING = struct.Struct(">hqh")  # version, offset, length of metadata
_TIMES = struct.Struct(">qq")
_UNTOLD = struct.Struct(">hqiBq")  # version, offset, leader epoch, empty metadata, commit time
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field, number 0, 16 bytes


class OffsetAndMetadata(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = b""
    """Empty in versions that do not carry it."""


def offset_slot(topic: str, partition: int) -> bytes:
    """The key of a committed offset within its group: topic and partition, encoded."""
    name = topic.encode()
    return _I16.pack(len(name)) + name + _I32.pack(partition)


def decode_slot(slot: bytes) -> tuple[str, int]:
    length = _I16.unpack_from(slot)[0]
    return slot[2 : 2 + length].decode(), _I32.unpack_from(slot, 2 + length)[0]


def group_prefix(group: str) -> bytes:
    """What every offset key of the group starts with."""
    name = group.encode()
    return _KEY_FRONT.pack(1, len(name)) + name


def offset_tombstone(group: str, slot: bytes) -> Record:
    return Record(group_prefix(group) + slot, None)


def encode_offset(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = -1,
    topic_id: bytes = b"",
) -> bytes:
    text = metadata.encode()
    if expire_timestamp_ms >= 0:
        return _EXPIRING.pack(1, offset, len(text)) + text + _TIMES.pack(commit_timestamp_ms, expire_timestamp_ms)
    if not topic_id:
        return _FRONT.pack(3, offset, leader_epoch, len(text)) + text + _I64.pack(commit_timestamp_ms)
    if not text:
        return _UNTOLD.pack(4, offset, leader_epoch, 1, commit_timestamp_ms) + _TOPIC_ID_TAG + topic_id
    writer = Writer().i16(4).i64(offset).i32(leader_epoch).compact_string(metadata).i64(commit_timestamp_ms)
    return writer.tags({0: topic_id}).done()


def decode_offset(value: bytes) -> OffsetAndMetadata:
    version, offset = struct.unpack_from(">hq", value)
    if version == 3:
        _, offset, leader_epoch, length = _FRONT.unpack_from(value)
        text = value[_FRONT.size : _FRONT.size + length].decode()
        return OffsetAndMetadata(offset, leader_epoch, text, _I64.unpack_from(value, _FRONT.size + length)[0])
    reader = Reader(value, 10)
    if version in (0, 2):
        return OffsetAndMetadata(offset, -1, reader.string(), reader.i64())
    if version == 1:
        return OffsetAndMetadata(offset, -1, reader.string(), reader.i64(), reader.i64())
    if version == 4:
        fields = offset, reader.i32(), reader.compact_string(), reader.i64()
        return OffsetAndMetadata(*fields, topic_id=reader.tags().get(0, b""))
    raise MalformedRecord(f"version {version} of a committed offset is not known")
