"""One replica's log: segments in order, what is appended and what is read. Single-threaded: only the loop calls it.

Appends are staged in memory and written by `write_staged`, once per wake-up of the loop. Nothing staged may be
acknowledged or served before that; a failed write takes the log back to its last good end.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log.results import (
    AbortedTransaction,
    AppendResult,
    FollowerAppend,
    OffsetOutOfRange,
    Origin,
    Region,
    TimestampOffset,
)

if TYPE_CHECKING:
    from penstock.base.settings import LogConfig
    from penstock.log.producer_state import ProducerEntry, VerificationGuard
    from penstock.log.validation import Inspection

Buffer = bytes | bytearray | memoryview


class Log:
    """See the module. Offsets are attributes, so that reading them costs nothing; only the log changes them."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    directory: Path
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int

    def append_as_leader(
        self,
        batch: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        inspection: Inspection | None = None,
        guard: VerificationGuard | None = None,
        transaction_version: int = 1,
    ) -> AppendResult:
        """Check one batch, give it offsets and stage it. May raise LogWriteError when it has to roll first.

        Markers come with Origin.COORDINATOR and the `transaction_version` of their coordinator.
        """
        raise NotImplementedError

    def append_as_follower(self, batches: Buffer) -> FollowerAppend:
        """Stage whole batches from the leader as they are; a cut one at the end is ignored. InvalidBatch if corrupt."""
        raise NotImplementedError

    def write_staged(self) -> None:
        """Write everything staged, with one system call. LogWriteError voids all of it."""
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> Region | OffsetOutOfRange:
        """Where the batches from the one holding `offset` lie, below the bound (None: the log end)."""
        raise NotImplementedError

    def read_bytes(self, offset: int, max_bytes: int, upper_bound_offset: int | None = None) -> bytes:
        """The same as bytes, for loaders and tools; empty when out of range or nothing is there."""
        raise NotImplementedError

    def set_high_watermark(self, offset: int) -> None:
        """Clamp to [log start, log end] and derive the last stable offset."""
        raise NotImplementedError

    def raise_log_start_offset(self, offset: int) -> bool:
        """True if it rose. Never above the high watermark."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; True if something went."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all, begin an empty log at `offset`."""
        raise NotImplementedError

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Remember where a leader epoch begins (on becoming leader, before anything is written)."""
        raise NotImplementedError

    def latest_epoch(self) -> int | None:
        """Newest known leader epoch."""
        raise NotImplementedError

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) if undefined."""
        raise NotImplementedError

    def epoch_at(self, offset: int) -> int | None:
        """Leader epoch of a record offset."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """First record at or after `timestamp` (may scan: run in a thread for cold logs)."""
        raise NotImplementedError

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """First record that carries the highest timestamp."""
        raise NotImplementedError

    def aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """What a read_committed reader of [start, upper bound) must skip."""
        raise NotImplementedError

    def producers(self) -> list[ProducerEntry]:
        """State of every known producer id (DescribeProducers)."""
        raise NotImplementedError

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer, at this epoch, has an open transaction here."""
        raise NotImplementedError

    def producer_epoch(self, producer_id: int) -> int | None:
        """Newest epoch seen of a producer id."""
        raise NotImplementedError

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """KIP-890: a guard to be passed to the append; None if a transaction is open at this epoch already."""
        raise NotImplementedError

    def size_bytes(self) -> int:
        """Bytes of all segments, staged ones included."""
        raise NotImplementedError

    def update_config(self, config: LogConfig) -> None:
        """Take new topic settings from now on."""
        raise NotImplementedError

    def flush(self) -> None:
        """fsync what is written and move the recovery point. Blocking: call in a thread or at stop."""
        raise NotImplementedError
