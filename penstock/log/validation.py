"""Checks of batches before a leader takes them in, with Kafka's answers and in Kafka's order (LogValidator).

Most are decided by the header. Only where a rule cannot be kept otherwise (compacted topics, another codec, bounds on
timestamps) a batch is opened: `inspect` is pure, so that large ones can go through it in another process first.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.base.settings import LogConfig
from penstock.log.record_checks import examine, refusal
from penstock.log.results import RecordError
from penstock.protocol import codecs
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    InvalidBatch,
    patch_timestamp,
    read_payload,
    seal_batch,
)
from penstock.protocol.codecs import CODEC_BY_NAME, Codec, CodecError, TooLarge
from penstock.protocol.crc import crc32c
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import InvalidRecords, count_framed_records

Buffer = bytes | bytearray | memoryview

CHECKED_RECORDS_MAX: Final = 16
"""Uncompressed batches of up to so many records have their count checked; a loop over more has no place there."""

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, two lengths and the number of headers, a byte each."""

INLINE_INSPECTION_MAX_BYTES: Final = 64 * 1024
INLINE_COMPRESSED_MAX_BYTES: Final = 2 * 1024
INLINE_RECORDS_MAX: Final = 1000
"""Larger batches are inspected in a process of their own (`inspector`)."""

_FOREVER: Final = 2**63 - 1
_LENGTH: Final = Struct(">i")
_MIN_LENGTH_FIELD: Final = 14  # Kafka reads anything smaller as corruption, whatever the format
_MAX_RATIO: Final = 65536  # more than any codec can gain
_MAX_UNCOMPRESSED_BYTES: Final = 64 * 1024 * 1024


class Fault(NamedTuple):
    """Why a batch is refused: `detail` for our log, `message` where Kafka tells the client.

    `early` faults are found while the request is read, before any log is asked: their answer has no log start.
    """

    error: ErrorCode
    detail: str
    message: str | None = None
    early: bool = False


class Inspection(NamedTuple):
    """What was found: an error with its records, or the batch to append (rebuilt if the codec differs)."""

    error: ErrorCode
    batch: Buffer
    record_errors: tuple[RecordError, ...] = ()
    message: str | None = None
    detail: str | None = None


# -- by the header


def next_batch_size(data: Buffer, position: int) -> int | Fault:
    """Size of the batch at `position` as Kafka's request reader sees it; 0 if no whole one is there."""
    left = len(data) - position
    if left < LOG_OVERHEAD_BYTES:
        return 0
    length = _LENGTH.unpack_from(data, position + 8)[0]
    if length < _MIN_LENGTH_FIELD:
        text = f"Record size {length} is less than the minimum record overhead ({_MIN_LENGTH_FIELD})"
        return Fault(ErrorCode.CORRUPT_MESSAGE, text, text, early=True)
    if left <= MAGIC_POSITION:
        return 0
    magic = data[position + MAGIC_POSITION]
    if magic > MAGIC:
        text = f"Invalid magic found in record: {magic if magic < 128 else magic - 256}"
        return Fault(ErrorCode.CORRUPT_MESSAGE, text, text, early=True)
    return length + LOG_OVERHEAD_BYTES if length + LOG_OVERHEAD_BYTES <= left else 0


def only_batch(data: Buffer) -> Buffer | Fault:
    """The one batch that a produce request may carry for a partition; a cut one behind it does not count."""
    size = next_batch_size(data, 0)
    if isinstance(size, Fault):
        return size
    if size == 0:
        return Fault(ErrorCode.INVALID_RECORD, "no whole batch", early=True)
    if data[MAGIC_POSITION] != MAGIC:
        return Fault(ErrorCode.INVALID_RECORD, f"magic {data[MAGIC_POSITION]} is not supported", early=True)
    if size < HEADER_BYTES:
        return Fault(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes cannot hold a batch header")
    second = next_batch_size(data, size)
    if isinstance(second, Fault):
        return second
    if second:
        return Fault(ErrorCode.INVALID_RECORD, "more than one batch", early=True)
    return data[:size]


def check_client_batch(batch: Buffer, max_message_bytes: int) -> Fault | None:
    """The first rule that a client's batch (of `only_batch`) breaks; None if the log's quick test was too strict."""
    size = len(batch)
    fields = HEADER.unpack_from(batch)
    base_offset, _, _, _, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = fields
    if base_offset != 0:
        return Fault(ErrorCode.INVALID_RECORD, f"base offset {base_offset} from a client")
    if size > max_message_bytes:
        return Fault(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes, {max_message_bytes} allowed")
    if crc32c(memoryview(batch)[CRC_START:]) != crc:
        return Fault(ErrorCode.CORRUPT_MESSAGE, "the checksum differs")
    if attributes & CODEC_MASK > Codec.ZSTD:
        return Fault(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown codec id {attributes & CODEC_MASK}")
    if last_delta < 0 or count <= 0 or last_delta + 1 != count:
        return Fault(ErrorCode.INVALID_RECORD, f"{count} records in an offset range of {last_delta + 1}")
    if attributes & CONTROL_BIT:
        return Fault(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if producer_id >= 0 > sequence:
        return Fault(ErrorCode.INVALID_RECORD, f"sequence {sequence} of producer {producer_id}")
    room = (size - HEADER_BYTES) * (_MAX_RATIO if attributes & CODEC_MASK else 1)
    if count * MIN_RECORD_BYTES > room:
        return Fault(ErrorCode.INVALID_RECORD, f"{count} records cannot lie in {size} bytes")
    if not attributes & CODEC_MASK and count <= CHECKED_RECORDS_MAX and not is_framed(batch, count):
        return Fault(ErrorCode.INVALID_RECORD, f"the batch does not hold {count} records")
    return None


def is_framed(batch: Buffer, count: int) -> bool:
    """Whether the lengths in front of `count` uncompressed records fill the batch exactly."""
    size = len(batch)
    if size < HEADER_BYTES + count * MIN_RECORD_BYTES:
        return False
    if count == 1:  # by far the most frequent case, and the one that must cost nothing
        low = batch[HEADER_BYTES]
        if low < 0x80:
            return HEADER_BYTES + 1 + (low >> 1) == size and not low & 1
        high = batch[HEADER_BYTES + 1]
        if high < 0x80:
            return HEADER_BYTES + 2 + ((low & 0x7F | high << 7) >> 1) == size and not low & 1
    return count_framed_records(memoryview(batch)[HEADER_BYTES:], count) == count


# -- by the records


def may_open(config: LogConfig) -> bool:
    """Whether a topic with these settings ever wants batches opened for their content."""
    return (
        config.cleanup_compact
        or config.compression_type != "producer"
        or (config.message_timestamp_before_max_ms < _FOREVER and not config.log_append_time)
    )


def must_open(attributes: int, config: LogConfig) -> bool:
    """Whether a batch with these attributes must be opened."""
    if config.cleanup_compact or (config.message_timestamp_before_max_ms < _FOREVER and not config.log_append_time):
        return True
    return config.compression_type != "producer" and CODEC_BY_NAME[config.compression_type] != attributes & CODEC_MASK


def needs_inspection(batch: Buffer, config: LogConfig) -> bool:
    """Cheap: whether the broker should have this batch inspected by another process before the append.

    False for small ones: the log inspects those itself; and for those that are refused by their size.
    """
    if not may_open(config) or not HEADER_BYTES <= len(batch) <= config.max_message_bytes:
        return False
    fields = HEADER.unpack_from(batch)
    return must_open(fields[5], config) and not is_quickly_inspected(batch, fields[5], fields[12])


def is_quickly_inspected(batch: Buffer, attributes: int, count: int) -> bool:
    """Whether opening the batch on the loop is fine. Compressed bytes say little about what comes out of them."""
    if not attributes & CODEC_MASK:
        return len(batch) <= INLINE_INSPECTION_MAX_BYTES and count <= INLINE_RECORDS_MAX
    if len(batch) > INLINE_COMPRESSED_MAX_BYTES or count > INLINE_RECORDS_MAX:
        return False
    try:
        codecs.decompress(Codec(attributes & CODEC_MASK), batch[HEADER_BYTES:], INLINE_INSPECTION_MAX_BYTES)
    except TooLarge:
        return False
    except (CodecError, ValueError):
        return True  # refused as quickly as that was found
    return True


def judged_by_header(batch: Buffer, attributes: int, in_the_future: bool, config: LogConfig) -> Inspection:
    """For a large batch with odd times: what its header says decides, it is not opened just to list bad records."""
    if in_the_future or (attributes & LOG_APPEND_TIME_BIT and config.log_append_time):
        text = "One or more records have been rejected due to invalid timestamp"
        return Inspection(ErrorCode.INVALID_TIMESTAMP, batch, (), text)
    return Inspection(ErrorCode.NONE, batch)


def inspect(batch: Buffer, config: LogConfig, now_ms: int, name: str = "") -> Inspection:
    """Open, check and if needed rebuild the batch of a client or coordinator. Pure and slow.

    `name` is the partition's, for the sentences that Kafka shows.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        return Inspection(ErrorCode.INVALID_RECORD, batch)
    try:
        header = BatchHeader.parse(batch)
        if header.size == size and crc32c(memoryview(batch)[CRC_START:]) != header.crc:
            return Inspection(ErrorCode.CORRUPT_MESSAGE, batch)
        payload = read_payload(batch, header, max(_MAX_UNCOMPRESSED_BYTES, config.max_message_bytes))
        found = examine(payload, header, config, now_ms, name)
    except TooLarge as error:
        return Inspection(ErrorCode.MESSAGE_TOO_LARGE, batch, message=None, detail=str(error))
    except CodecError as error:
        # Kafka meets broken compressed data with an exception that no error code stands for.
        return Inspection(ErrorCode.UNKNOWN_SERVER_ERROR, batch, message=None, detail=str(error))
    except (InvalidRecords, InvalidBatch) as error:
        return Inspection(ErrorCode.INVALID_RECORD, batch, message=None, detail=str(error))
    if found.fault_count:
        code, text = refusal(found)
        return Inspection(code, batch, found.errors, text)
    return Inspection(ErrorCode.NONE, _rebuilt(batch, header, payload, found.max_timestamp, config))


def _rebuilt(batch: Buffer, header: BatchHeader, payload: bytes, latest: int, config: LogConfig) -> Buffer:
    """The batch in the topic's codec, with the max timestamp that its records really have."""
    max_timestamp = header.max_timestamp
    if not config.log_append_time and not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = latest
    codec = header.codec if config.compression_type == "producer" else CODEC_BY_NAME[config.compression_type]
    if codec is header.codec:
        if max_timestamp == header.max_timestamp:
            return batch
        patched = bytearray(batch)
        patch_timestamp(patched, header.attributes, max_timestamp)
        return patched
    return seal_batch(
        codecs.compress(codec, payload, _level(codec, config)),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )


def _level(codec: Codec, config: LogConfig) -> int | None:
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    return None
