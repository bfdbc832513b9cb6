"""Looking inside batches, where a rule cannot be kept from the header alone: compacted topics, another codec.

`inspect` is pure, so that large batches can go through it in a worker thread before the append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.log.results import RecordError
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.base.settings import LogConfig

Buffer = bytes | bytearray | memoryview


class Inspection(NamedTuple):
    """What was found: an error with its records, or the batch to append (rebuilt if the codec differs)."""

    error: ErrorCode
    batch: Buffer
    record_errors: tuple[RecordError, ...] = ()
    message: str | None = None


def needs_inspection(batch: Buffer, config: LogConfig) -> bool:
    """Cheap: whether this batch must be opened before it may be appended to a topic with these settings."""
    raise NotImplementedError


def inspect(batch: Buffer, config: LogConfig, now_ms: int) -> Inspection:
    """Open, check and if needed rebuild the batch. Pure and slow: above 64 KB run it in a worker thread."""
    raise NotImplementedError
