"""Single records of a v2 batch: their encoding and decoding.

Nothing here belongs on the broker's hot path, where batches stay opaque. Users: the cleaner, validation of compacted
topics, coordinators, tools and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]


class InvalidRecords(Exception):
    """The bytes are not the records that the batch header announces."""


class Record(NamedTuple):
    """One record; `offset` and `timestamp` are absolute (offset is ignored when a new batch is built)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def new_record(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> Record:
    """A record that has no offset yet."""
    return Record(0, timestamp, key, value, headers)


def encode_varint(value: int) -> bytes:
    """Zig-zag variable-length form, for 32 and 64 bits alike."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL_VARINTS = tuple(encode_varint(value) for value in range(8192))


def _varint(value: int) -> bytes:
    return _SMALL_VARINTS[value] if 0 <= value < 8192 else encode_varint(value)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it); InvalidRecords if it is cut or longer than ten bytes."""
    shift = 0
    zigzag = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1), position
            shift += 7
            if shift > 63:
                raise InvalidRecords("a variable-length number is too long")
    except IndexError:
        raise InvalidRecords("a variable-length number is cut") from None


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """The record with its length in front."""
    parts = [b"\x00", _varint(timestamp_delta), _varint(offset_delta)]
    _put_bytes(parts, key)
    _put_bytes(parts, value)
    parts.append(_varint(len(headers)))
    for name, content in headers:
        _put_bytes(parts, name.encode())
        _put_bytes(parts, content)
    body = b"".join(parts)
    return _varint(len(body)) + body


def _put_bytes(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(b"\x01")  # -1
    else:
        parts.append(_varint(len(content)))
        parts.append(content)


def decode_records(
    payload: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> list[Record]:
    """All `count` records of a plain payload, strictly as Kafka reads them.

    With `append_time` (LogAppendTime batches) every record carries that time and its own delta is ignored.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    records: list[Record] = []
    position = 0
    for _ in range(count):
        length, position = decode_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise InvalidRecords(f"a record of {length} bytes does not fit into its batch")
        timestamp_delta, position = decode_varint(data, position + 1)
        offset_delta, position = decode_varint(data, position)
        key, position = _take_bytes(data, position, end)
        value, position = _take_bytes(data, position, end)
        header_count, position = decode_varint(data, position)
        headers: Headers = ()
        if header_count:
            headers, position = _take_headers(data, position, end, header_count)
        if position != end:
            raise InvalidRecords(f"a record says {length} bytes but holds {length + position - end}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    if position != len(data):
        raise InvalidRecords(f"{len(data) - position} bytes are left over behind {count} records")
    return records


def _take_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(data, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise InvalidRecords("a key, value or header reaches beyond its record")
    return data[position:stop], stop


def _take_headers(data: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if count < 0 or count > end - position:
        raise InvalidRecords(f"invalid number of headers: {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _take_bytes(data, position, end)
        if name is None:
            raise InvalidRecords("a header key is null")
        content, position = _take_bytes(data, position, end)
        headers.append((name.decode("utf-8", "replace"), content))
    return headers, position


def count_framed_records(payload: Buffer, limit: int) -> int:
    """How many length-framed records fill `payload` exactly; -1 if they do not fill it; stops beyond `limit`."""
    position = 0
    end = len(payload)
    count = 0
    try:
        while position < end:
            if count >= limit:
                return limit + 1
            length, position = decode_varint(payload, position)
            if length < 6:  # attributes, two deltas, two lengths and a header count take a byte each
                return -1
            position += length
            count += 1
    except InvalidRecords:
        return -1
    return count if position == end else -1


class ScannedRecord(NamedTuple):
    """What compaction looks at; `raw` is the whole record with its length, the two positions lie inside `raw`."""

    raw: bytes
    body: int
    after_timestamp: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def scan_records(payload: bytes, count: int) -> list[ScannedRecord]:
    """The records of a plain payload without decoding values and headers."""
    records: list[ScannedRecord] = []
    position = 0
    end_of_payload = len(payload)
    for _ in range(count):
        start = position
        length, body = decode_varint(payload, start)
        end = body + length
        if length < 0 or end > end_of_payload:
            raise InvalidRecords(f"a record of {length} bytes does not fit into its batch")
        timestamp_delta, after_timestamp = decode_varint(payload, body + 1)
        offset_delta, position = decode_varint(payload, after_timestamp)
        key, position = _take_bytes(payload, position, end)
        value_length, position = decode_varint(payload, position)
        records.append(
            ScannedRecord(
                payload[start:end],
                body - start,
                after_timestamp - start,
                timestamp_delta,
                offset_delta,
                key,
                value_length >= 0,
            )
        )
        position = end
    if position != end_of_payload:
        raise InvalidRecords(f"{end_of_payload - position} bytes are left over behind {count} records")
    return records
