"""The records of `__transaction_state`: key type 0, value versions 0 and 1 (flexible), byte for byte Kafka's.

Value version 1 is written (transaction.version ≥ 1); both are read. A null value forgets the id.
"""

from __future__ import annotations

import struct

from penstock.coordinator.transaction.state import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState
from penstock.coordinator.wire import MalformedRecord, Reader, Writer

KEY_TYPE = 0
NEWEST_VALUE_VERSION = 1

_FIXED = struct.Struct(">hqhib")  # value version, producer id, producer epoch, time-out, state
_TIMES = struct.Struct(">qq")  # last update, start


class UnreadableRecord(Exception):
    """A key or value that this code cannot read: another version, or damaged bytes."""


def encode_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return struct.pack(">hh", KEY_TYPE, len(name)) + name


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None for a key type of a later release, which a reader skips."""
    try:
        key_type, length = struct.unpack_from(">hh", key)
        if key_type != KEY_TYPE:
            return None
        if length < 0 or 4 + length > len(key):
            raise UnreadableRecord(f"a key of {len(key)} bytes claims an id of {length}")
        return bytes(key[4 : 4 + length]).decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise UnreadableRecord(str(error)) from error


def encode_value(transaction: Transaction, version: int = NEWEST_VALUE_VERSION) -> bytes:
    t = transaction
    out = Writer()
    out.data += _FIXED.pack(version, t.producer_id, t.producer_epoch, t.timeout_ms, t.state)
    flexible = version >= 1
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(t.partitions):
        by_topic.setdefault(topic, []).append(partition)
    _write_length(out, -1 if t.state is TransactionState.EMPTY else len(by_topic), flexible)
    if t.state is not TransactionState.EMPTY:
        for topic, partitions in by_topic.items():
            _write_topic(out, topic, partitions, flexible)
    out.data += _TIMES.pack(t.last_update_ms, t.start_ms)
    if flexible:
        out.tags(_tags(t))
    return out.done()


def _write_topic(out: Writer, topic: str, partitions: list[int], flexible: bool) -> None:
    if flexible:
        out.compact_string(topic)
    else:
        out.string(topic)
    _write_length(out, len(partitions), flexible)
    out.data += struct.pack(f">{len(partitions)}i", *partitions)
    if flexible:
        out.tags()


def _write_length(out: Writer, length: int, flexible: bool) -> None:
    """Of an array; -1: null."""
    if flexible:
        out.uvarint(length + 1)
    else:
        out.i32(length)


def _tags(t: Transaction) -> dict[int, bytes]:
    tags: dict[int, bytes] = {}
    if t.previous_producer_id != NO_PRODUCER_ID:
        tags[0] = struct.pack(">q", t.previous_producer_id)
    if t.next_producer_id != NO_PRODUCER_ID:
        tags[1] = struct.pack(">q", t.next_producer_id)
    if t.client_version != 0:
        tags[2] = struct.pack(">h", t.client_version)
    if t.next_producer_epoch != NO_EPOCH:
        tags[3] = struct.pack(">h", t.next_producer_epoch)
    return tags


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    try:
        version, producer_id, epoch, timeout_ms, state = _FIXED.unpack_from(value)
        if version not in (0, 1):
            raise UnreadableRecord(f"value version {version}")
        flexible = version >= 1
        reader = Reader(value, _FIXED.size)
        topics = reader.compact_array if flexible else reader.array
        found = topics(lambda: _read_topic(reader, flexible))
        last_update_ms, start_ms = reader.i64(), reader.i64()
        tags = reader.tags() if flexible else {}
        return Transaction(
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            TransactionState(state),
            frozenset((topic, partition) for topic, partitions in found for partition in partitions),
            last_update_ms,
            start_ms,
            previous_producer_id=struct.unpack(">q", tags[0])[0] if 0 in tags else NO_PRODUCER_ID,
            next_producer_id=struct.unpack(">q", tags[1])[0] if 1 in tags else NO_PRODUCER_ID,
            client_version=struct.unpack(">h", tags[2])[0] if 2 in tags else 0,
            next_producer_epoch=struct.unpack(">h", tags[3])[0] if 3 in tags else NO_EPOCH,
        )
    except (struct.error, MalformedRecord, ValueError) as error:
        raise UnreadableRecord(f"{transactional_id}: {error}") from error


def _read_topic(reader: Reader, flexible: bool) -> tuple[str, list[int]]:
    if not flexible:
        return reader.string(), reader.array(reader.i32)
    topic, partitions = reader.compact_string(), reader.compact_array(reader.i32)
    reader.tags()
    return topic, partitions
