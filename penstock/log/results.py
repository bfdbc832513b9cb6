"""What a log answers: the results of appends and reads, and the faults that are exceptions."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.log.files import LogFile

UNKNOWN_OFFSET: Final = -1


class Origin(Enum):
    """Who appends; it decides which producer rules apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # epochs are checked, sequences are not; may write control batches
    REPLICATION = "replication"


class RecordError(NamedTuple):
    """One bad record of a refused batch."""

    batch_index: int
    message: str | None


class AppendResult(NamedTuple):
    """Outcome of one leader append; offsets are -1 and `log_start_offset` is filled as Kafka does when refused.

    `duplicate` says that the batch was appended before: offsets and time are those of the first append.
    `message` is what Kafka tells the client (only for refused records), `detail` is for our own log.
    """

    error: ErrorCode
    base_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[RecordError, ...] = ()
    message: str | None = None
    duplicate: bool = False
    detail: str | None = None


class FollowerAppend(NamedTuple):
    """What a follower append took in; `last_offset` is -1 when nothing was new."""

    first_offset: int
    last_offset: int
    batches: int


class Region(NamedTuple):
    """Whole or cut batches in a file, ready for sendfile. Holding it keeps the file open, even if it is unlinked.

    `length` 0 means that there is nothing to read below the bound (yet). `next_offset` is an upper bound of the
    offsets inside: every record of the region is below it.
    """

    file: LogFile | None
    position: int
    length: int
    first_offset: int
    next_offset: int


class OffsetOutOfRange(NamedTuple):
    """The asked offset is below the log start or above the log end."""

    offset: int
    log_start_offset: int
    log_end_offset: int


class TimestampOffset(NamedTuple):
    """Result of a lookup by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class AbortedTransaction(NamedTuple):
    """What a read_committed fetch tells a consumer."""

    producer_id: int
    first_offset: int


class LogWriteError(Exception):
    """Staged bytes could not be written. The log is back at its last good end: all staged appends are void.

    `directory_failed` is False when there was just no space: then the log goes on once there is some.
    """

    def __init__(self, message: str, *, directory_failed: bool) -> None:
        super().__init__(message)
        self.directory_failed = directory_failed


class LogDirectoryFailed(Exception):
    """The folder of a log cannot be used: its partitions are off line until a restart."""
