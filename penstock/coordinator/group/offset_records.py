"""Committed offsets as records (type 1; type 0 is the legacy form, read only).

State keeps them encoded: the key without its group, and the value. A million offsets load in seconds because nobody
decodes them before somebody asks. Values are written in version 3, which every Kafka since 2.1 reads.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord, Reader

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


class OffsetAndMetadata(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


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


def encode_offset(offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int) -> bytes:
    text = metadata.encode()
    return _FRONT.pack(3, offset, leader_epoch, len(text)) + text + _I64.pack(commit_timestamp_ms)


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
        return OffsetAndMetadata(offset, reader.i32(), reader.compact_string(), reader.i64())
    raise MalformedRecord(f"version {version} of a committed offset is not known")
