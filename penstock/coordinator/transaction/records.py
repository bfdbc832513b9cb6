"""The records of `__transaction_state`: key type 0, value versions 0 and 1 (flexible), byte for byte Kafka's.

Value version 1 is written (transaction.version ≥ 1); both are read. A null value forgets the id.
"""

from __future__ import annotations

import struct

from penstock.coordinator.transaction.state import NO_EPOCH, NO_PRODUCER_ID, Transaction, TransactionState

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
    out = bytearray(_FIXED.pack(version, t.producer_id, t.producer_epoch, t.timeout_ms, t.state))
    flexible = version >= 1
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(t.partitions):
        by_topic.setdefault(topic, []).append(partition)
    if t.state is TransactionState.EMPTY:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        _write_length(out, len(by_topic), flexible)
        for topic, partitions in by_topic.items():
            _write_topic(out, topic, partitions, flexible)
    out += _TIMES.pack(t.last_update_ms, t.start_ms)
    if flexible:
        _write_tags(out, t)
    return bytes(out)


def _write_topic(out: bytearray, topic: str, partitions: list[int], flexible: bool) -> None:
    name = topic.encode()
    if flexible:
        _write_uvarint(out, len(name) + 1)
    else:
        out += struct.pack(">h", len(name))
    out += name
    _write_length(out, len(partitions), flexible)
    out += struct.pack(f">{len(partitions)}i", *partitions)
    if flexible:
        out.append(0)


def _write_tags(out: bytearray, t: Transaction) -> None:
    tags: list[tuple[int, bytes]] = []
    if t.previous_producer_id != NO_PRODUCER_ID:
        tags.append((0, struct.pack(">q", t.previous_producer_id)))
    if t.next_producer_id != NO_PRODUCER_ID:
        tags.append((1, struct.pack(">q", t.next_producer_id)))
    if t.client_version != 0:
        tags.append((2, struct.pack(">h", t.client_version)))
    if t.next_producer_epoch != NO_EPOCH:
        tags.append((3, struct.pack(">h", t.next_producer_epoch)))
    _write_uvarint(out, len(tags))
    for tag, payload in tags:
        _write_uvarint(out, tag)
        _write_uvarint(out, len(payload))
        out += payload


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    try:
        version, producer_id, epoch, timeout_ms, state = _FIXED.unpack_from(value)
        if version not in (0, 1):
            raise UnreadableRecord(f"value version {version}")
        flexible = version >= 1
        partitions, position = _read_partitions(value, _FIXED.size, flexible)
        last_update_ms, start_ms = _TIMES.unpack_from(value, position)
        tags = _read_tags(value, position + _TIMES.size) if flexible else {}
        return Transaction(
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            TransactionState(state),
            partitions,
            last_update_ms,
            start_ms,
            previous_producer_id=struct.unpack(">q", tags[0])[0] if 0 in tags else NO_PRODUCER_ID,
            next_producer_id=struct.unpack(">q", tags[1])[0] if 1 in tags else NO_PRODUCER_ID,
            client_version=struct.unpack(">h", tags[2])[0] if 2 in tags else 0,
            next_producer_epoch=struct.unpack(">h", tags[3])[0] if 3 in tags else NO_EPOCH,
        )
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise UnreadableRecord(f"{transactional_id}: {error}") from error


def _read_partitions(value: bytes, position: int, flexible: bool) -> tuple[frozenset[tuple[str, int]], int]:
    topic_count, position = _read_length(value, position, flexible)
    partitions: list[tuple[str, int]] = []
    for _ in range(max(topic_count, 0)):
        if flexible:
            name_length, position = _read_length(value, position, True)
        else:
            (name_length,) = struct.unpack_from(">h", value, position)
            position += 2
        topic = bytes(value[position : position + name_length]).decode()
        count, position = _read_length(value, position + name_length, flexible)
        numbers = struct.unpack_from(f">{max(count, 0)}i", value, position)
        position += 4 * len(numbers)
        partitions += [(topic, number) for number in numbers]
        if flexible:
            position = _skip_tags(value, position)
    return frozenset(partitions), position


def _read_tags(value: bytes, position: int) -> dict[int, bytes]:
    tags: dict[int, bytes] = {}
    count, position = _read_uvarint(value, position)
    for _ in range(count):
        tag, position = _read_uvarint(value, position)
        size, position = _read_uvarint(value, position)
        tags[tag] = bytes(value[position : position + size])
        position += size
    return tags


def _skip_tags(value: bytes, position: int) -> int:
    count, position = _read_uvarint(value, position)
    for _ in range(count):
        _, position = _read_uvarint(value, position)
        size, position = _read_uvarint(value, position)
        position += size
    return position


def _write_length(out: bytearray, length: int, flexible: bool) -> None:
    if flexible:
        _write_uvarint(out, length + 1)
    else:
        out += struct.pack(">i", length)


def _read_length(value: bytes, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, position = _read_uvarint(value, position)
        return length - 1, position
    return struct.unpack_from(">i", value, position)[0], position + 4


def _write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_uvarint(value: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = value[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 28:
            raise UnreadableRecord("a length takes more than five bytes")
