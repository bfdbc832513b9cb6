"""What Kafka checks of a produce before it looks for the log: is there one whole batch of version 2, may it be here?"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.broker.network.large_frames import ReceiveBuffer
from penstock.broker.produce.codec import ProduceRequest
from penstock.protocol.errors import ErrorCode

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 22  # the low byte
TRANSACTIONAL: Final = 0x10
CODEC_MASK: Final = 0x07
_ZSTD: Final = 4
_SMALLEST_LENGTH: Final = 14
_NONE: Final = 0
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)

length_at: Final = Struct(">i").unpack_from


def has_transactional_batch(request: ProduceRequest, buffer: ReceiveBuffer) -> bool:
    """Row 1: transactional records in a request that names no transaction fail the whole request."""
    for _, partitions in request.topics:
        for _, start, size in partitions:
            if size >= HEADER_BYTES and buffer[start + MAGIC_AT] == 2 and buffer[start + ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
    return False


def first_batch(records: Buffer, version: int) -> tuple[Buffer, int, str | None]:
    """(batch, error, message) for what Kafka checks first: one batch of version 2; zstd only from v7 on.

    A cut batch counts as none, as in Kafka: behind a whole one it is dropped, alone it is an error.
    """
    size = len(records)
    if size < HEADER_BYTES or records[MAGIC_AT] != 2 or length_at(records, 8)[0] != size - LOG_OVERHEAD_BYTES:
        records, error, message = _cut_out(records, size, version)
        if error:
            return b"", error, message
    if version < 7 and records[ATTRIBUTES_AT] & CODEC_MASK == _ZSTD:
        return (
            b"",
            int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return records, _NONE, None


def refused_by_head(records: Buffer, max_message_bytes: int) -> bool:
    """Whether its header alone decides that a partition's data is refused, whatever comes behind it."""
    first, error, _ = _batch_bytes(records, 0, len(records))
    if error or not first or records[MAGIC_AT] != 2:
        return True
    return first == len(records) > max_message_bytes


def _cut_out(records: Buffer, size: int, version: int) -> tuple[Buffer, int, str | None]:
    allowed = f"Produce requests with version {version} are only allowed to contain"
    first, error, message = _batch_bytes(records, 0, size)
    if error:
        return b"", error, message
    if not first:
        none = f"Produce requests with version {version} must have at least one record batch per partition"
        return b"", _INVALID_RECORD, none
    if records[MAGIC_AT] != 2:
        return b"", _INVALID_RECORD, f"{allowed} record batches with magic version 2"
    if first < HEADER_BYTES:
        return b"", int(ErrorCode.CORRUPT_MESSAGE), f"Record batch of {first} bytes cannot hold its header"
    second, error, message = _batch_bytes(records, first, size)
    if error:
        return b"", error, message
    if second:
        return b"", _INVALID_RECORD, f"{allowed} exactly one record batch per partition"
    return records[:first], _NONE, None


def _batch_bytes(records: Buffer, position: int, size: int) -> tuple[int, int, str | None]:
    """Bytes of the batch at `position`, 0 if it is not all there; or what is wrong with it."""
    left = size - position
    corrupt = int(ErrorCode.CORRUPT_MESSAGE)
    if left < LOG_OVERHEAD_BYTES:
        return 0, _NONE, None
    length = length_at(records, position + 8)[0]
    if length < _SMALLEST_LENGTH:
        return 0, corrupt, f"Record size {length} is less than the minimum record overhead ({_SMALLEST_LENGTH})"
    if left <= MAGIC_AT:
        return 0, _NONE, None
    magic = records[position + MAGIC_AT]
    if magic > 2:
        return 0, corrupt, f"Invalid magic found in record: {magic}"
    return (length + LOG_OVERHEAD_BYTES if length + LOG_OVERHEAD_BYTES <= left else 0), _NONE, None
