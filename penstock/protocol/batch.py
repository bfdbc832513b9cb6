"""The record batch, format version 2: a view of its 61-byte header, iteration over a buffer, and a builder.

A broker treats what follows the header as opaque. Whoever needs the records calls `read_records`.
Byte offsets below are those of Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.protocol import codecs
from penstock.protocol.codecs import Codec, CodecError
from penstock.protocol.crc import crc32c
from penstock.protocol.records import (
    InvalidRecords,
    Record,
    decode_records,
    encode_record,
)

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base offset and batch length, which the length field does not count
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21  # the checksum covers everything from the attributes on

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
# From the attributes on: what the checksum covers.
_CHECKED: Final = struct.Struct(">hiqqqhii")
_FRONT: Final = struct.Struct(">qiibI")
_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
# The only record of a marker as every broker writes it: length, attributes, both deltas and the length of the key in a
# byte each; key; length of the value; value; no headers.
_MARKER_RECORD: Final = struct.Struct(">5BhhBhiB")
_MARKER_SHAPE: Final = (32, 0, 0, 0, 8)

_SEQUENCES: Final = 1 << 31


class InvalidBatch(Exception):
    """The bytes are no batch of version 2: cut, of another magic, or with a wrong checksum."""


class BatchHeader(NamedTuple):
    """The fields in file order, then the position of the batch in the buffer it was parsed from."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int

    @classmethod
    def parse(cls, buffer: Buffer, position: int = 0) -> BatchHeader:
        """Header at `position`; InvalidBatch when the buffer is too short or the format is not version 2."""
        if len(buffer) - position < HEADER_BYTES:
            raise InvalidBatch(f"{len(buffer) - position} bytes cannot hold a batch header")
        header = cls._make((*HEADER.unpack_from(buffer, position), position))
        if header.magic != MAGIC:
            raise InvalidBatch(f"magic {header.magic} is not supported")
        if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise InvalidBatch(f"batch length {header.batch_length} is too small")
        return header

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def codec(self) -> Codec:
        """ValueError for the three ids that mean nothing."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go; None while the cleaner has not set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


class Marker(NamedTuple):
    """What a control batch says; only ABORT and COMMIT have a coordinator epoch."""

    control_type: int
    coordinator_epoch: int


def iterate_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Every whole batch in order; a cut one at the end is left out, anything else wrong raises InvalidBatch."""
    stop = len(buffer) if end is None else end
    position = start
    while stop - position >= LOG_OVERHEAD_BYTES:
        length = _INT32.unpack_from(buffer, position + 8)[0]
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise InvalidBatch(f"batch length {length} is too small")
        if length + LOG_OVERHEAD_BYTES > stop - position:
            return
        yield BatchHeader.parse(buffer, position)
        position += length + LOG_OVERHEAD_BYTES


def batch_bytes(buffer: Buffer, header: BatchHeader) -> memoryview:
    """The whole batch as a view."""
    return memoryview(buffer)[header.position : header.position + header.size]


def crc_matches(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the checksum in the header is that of the bytes."""
    start = header.position
    return crc32c(memoryview(buffer)[start + CRC_START : start + header.size]) == header.crc


def read_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    max_uncompressed_bytes: int = codecs.DEFAULT_MAX_UNCOMPRESSED_BYTES,
) -> list[Record]:
    """All records of one batch with absolute offsets and times; raises InvalidRecords, CodecError or InvalidBatch."""
    if header is None:
        header = BatchHeader.parse(batch)
    payload = read_payload(batch, header, max_uncompressed_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    return decode_records(payload, header.record_count, header.base_offset, header.base_timestamp, append_time)


def read_payload(
    batch: Buffer, header: BatchHeader, max_uncompressed_bytes: int = codecs.DEFAULT_MAX_UNCOMPRESSED_BYTES
) -> bytes:
    """The records' bytes, decompressed."""
    start = header.position
    if start + header.size > len(batch):
        raise InvalidBatch("the batch is cut")
    try:
        codec = header.codec
    except ValueError as error:
        raise CodecError(f"unknown codec id {header.attributes & CODEC_MASK}") from error
    payload = memoryview(batch)[start + HEADER_BYTES : start + header.size]
    return codecs.decompress(codec, payload, max_uncompressed_bytes)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    codec_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
) -> bytes:
    """A batch of these records at consecutive offsets; `append_time_ms` makes it a LogAppendTime batch."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    payload = b"".join(
        [
            encode_record(delta, record.timestamp - base_timestamp, record.key, record.value, record.headers)
            for delta, record in enumerate(records)
        ]
    )
    attributes = int(codec)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    max_timestamp = max(record.timestamp for record in records)
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = append_time_ms
    return seal_batch(
        payload if codec is Codec.NONE else codecs.compress(codec, payload, codec_level),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def seal_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """A header with a right length and checksum in front of a payload that is already in its wire form."""
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) + bytes(payload)
    length = CRC_START - LOG_OVERHEAD_BYTES + len(checked)
    return _FRONT.pack(base_offset, length, leader_epoch, MAGIC, crc32c(checked)) + checked


def patch_offset_and_epoch(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """What a leader writes at append; both fields lie outside the checksum."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, LOG_OVERHEAD_BYTES, leader_epoch)


def patch_timestamp(batch: bytearray, attributes: int, max_timestamp: int) -> None:
    """New attributes and max timestamp, and the checksum that they need."""
    struct.pack_into(">h", batch, CRC_START, attributes)
    _OFFSET.pack_into(batch, 35, max_timestamp)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


def build_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a transaction in a partition."""
    return seal_batch(
        _MARKER_RECORD.pack(
            *_MARKER_SHAPE, 0, CONTROL_COMMIT if commit else CONTROL_ABORT, 12, 0, coordinator_epoch, 0
        ),
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def read_marker(batch: Buffer, header: BatchHeader | None = None) -> Marker | None:
    """What a control batch says; None for an emptied one or a type that is not ours to know."""
    if header is None:
        header = BatchHeader.parse(batch)
    if header.record_count == 0:
        return None
    if header.size == HEADER_BYTES + _MARKER_RECORD.size and not header.attributes & CODEC_MASK:
        *shape, _, control_type, value_length, _, epoch, headers = _MARKER_RECORD.unpack_from(
            batch, header.position + HEADER_BYTES
        )
        if (*shape, value_length, headers) == (*_MARKER_SHAPE, 12, 0) and control_type in (
            CONTROL_ABORT,
            CONTROL_COMMIT,
        ):
            return Marker(control_type, epoch)
    record = read_records(batch, header)[0]
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise InvalidRecords("a control record needs a key of at least four bytes")
    control_type = _MARKER_KEY.unpack_from(record.key)[1]
    if control_type not in (CONTROL_ABORT, CONTROL_COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise InvalidRecords("the value of a transaction marker is cut")
    return Marker(control_type, _MARKER_VALUE.unpack_from(record.value)[1])
