"""One replica's log: segments in order, what is appended and what is read. Single-threaded: only the loop calls it.

Appends are staged in memory and written by `write_staged`, once per wake-up of the loop. Nothing staged may be
acknowledged or served before that; a failed write takes the log back to its last good end. Changes of the list of
segments (roll, truncation, deletion) live in `maintenance`, lookups by time in `lookup`, loading in `recovery`; the
ways in are `append_leader`, `append_follower` and `staging`.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base.settings import LogConfig
from penstock.log import append_follower, append_leader, disk, lookup, maintenance, staging
from penstock.log.damage import Damage
from penstock.log.events import LogEvents
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_snapshot import SnapshotJob
from penstock.log.producer_state import ProducerEntry, ProducerState, Undo
from penstock.log.results import AbortedTransaction, LogWriteError, OffsetOutOfRange, Region, TimestampOffset
from penstock.log.segment import UNKNOWN_ROLL_TIME, Segment
from penstock.log.validation import may_open
from penstock.log.verifications import VerificationGuard

_FOREVER: Final = 2**63 - 1


class Log:
    """See the module. Offsets are attributes, so that reading them costs nothing; only the log changes them."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        events: LogEvents,
        *,
        topic_id: uuid.UUID | None = None,
        verify_transactions: bool = True,
    ) -> None:
        """An empty shell: `recovery.load` or `maintenance.begin` gives it segments."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.name = f"{topic}-{partition}"
        self.damage = Damage(self.name)
        self.events = events
        self.verify_transactions = verify_transactions
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.recovery_point = 0
        """Everything below is on the disk for sure."""
        self.truncations = 0
        """Counts cuts at the end, so that a flush which ran meanwhile does not move the recovery point too far."""
        self.last_flush_ms = 0
        self.voided: LogWriteError | None = None
        """Why staged appends were lost, until whoever answers for them has heard of it: also others write the log."""
        self.on_history_changed: Callable[[], None] | None = None
        self.abandoned = False
        self.producers_state = ProducerState()
        self.snapshot_job: SnapshotJob | None = None
        self.epochs = LeaderEpochs(directory)
        self.segments: list[Segment] = []
        self.segment_bases: list[int] = []
        self.active: Segment
        self.staged: list[bytearray | bytes | memoryview] = []
        self.undo: list[Undo] = []
        self.mark: tuple[int, int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0, 0)
        self.marked_epochs: list[tuple[int, int]] | None = None
        self.written_end_offset = 0
        self.roll_limit_bytes = 0
        self.update_config(config)

    def __repr__(self) -> str:
        return f"<Log {self.name} {self.log_start_offset}..{self.log_end_offset} hw={self.high_watermark}>"

    @property
    def is_snapshotting(self) -> bool:
        return self.snapshot_job is not None and not self.snapshot_job.done

    def update_config(self, config: LogConfig) -> None:
        """Take new topic settings from now on."""
        self.config = config
        self.may_open = may_open(config)
        self.max_message_bytes = config.max_message_bytes
        self.index_interval_bytes = config.index_interval_bytes
        self.log_append_time = config.log_append_time
        # Batches up to so many bytes may be appended as they are; 0 where all of them must be looked into.
        self.usual_max_bytes = (
            0 if self.may_open or config.log_append_time else min(config.max_message_bytes, config.segment_bytes)
        )
        self.after_max_ms = _FOREVER if config.log_append_time else config.message_timestamp_after_max_ms
        self.flush_messages = config.flush_messages
        self.roll_limit_bytes = config.segment_bytes
        for segment in self.segments[-1:]:
            segment.roll_after_timestamp = UNKNOWN_ROLL_TIME

    append_as_leader = append_leader.append_as_leader
    note_refused = append_leader.note_refused
    append_as_follower = append_follower.append_as_follower
    replay = append_follower.replay
    write_staged = staging.write_staged

    # -- read

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> Region | OffsetOutOfRange:
        """Where the batches from the one holding `offset` lie, below the bound (None: the log end).

        With `at_least_one` the first batch comes whole even if it is larger than `max_bytes`; without, a first batch
        that does not fit gives an empty region. The end may cut a later batch, as in Kafka.
        """
        if self.staged:
            self.write_staged()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            return OffsetOutOfRange(offset, self.log_start_offset, end_offset)
        bound = end_offset if upper_bound_offset is None or upper_bound_offset > end_offset else upper_bound_offset
        if offset >= bound:
            return Region(None, 0, 0, offset, offset)
        segment = self.active
        if offset >= segment.base_offset:
            index = len(self.segments) - 1
        else:
            index = max(bisect_right(self.segment_bases, offset) - 1, 0)  # the first one may begin behind the log start
            segment = self.segments[index]
        place = segment.place(offset)
        while place is None:  # compaction took the tail of this segment
            index += 1
            if index == len(self.segments) or self.segment_bases[index] >= bound:
                return Region(None, 0, 0, offset, offset)
            segment = self.segments[index]
            place = segment.place(offset)
        position, first_size = place
        if bound == end_offset or (segment is not self.active and bound >= self.segment_bases[index + 1]):
            stop = segment.size
            next_offset = end_offset if segment is self.active else self.segment_bases[index + 1]
        else:
            at_bound = segment.place(bound)
            stop = segment.size if at_bound is None else at_bound[0]
            next_offset = bound
        length = stop - position
        if length > max_bytes:
            if max_bytes < first_size:
                length = min(first_size, length) if at_least_one else 0
            else:
                length = max_bytes
        if length <= 0:
            return Region(None, 0, 0, offset, offset)
        file = segment.file()
        if file.suspect or segment is not self.active:
            length = segment.there(file, position, length, first_size)
        return Region(file, position, length, offset, next_offset)

    def read_bytes(self, offset: int, max_bytes: int, upper_bound_offset: int | None = None) -> bytes:
        """The same as bytes, for loaders and tools; empty when out of range or nothing is there."""
        region = self.read(offset, max_bytes, upper_bound_offset)
        if isinstance(region, OffsetOutOfRange) or region.file is None:
            return b""
        return disk.pread(region.file.fd, region.length, region.position)

    # -- offsets

    def set_high_watermark(self, offset: int) -> None:
        """Clamp to [log start, log end] and derive the last stable offset. Writes what is staged below it first, so
        call it after the wake-up's `write_staged`."""
        if offset > self.written_end_offset:
            self.write_staged()
            offset = min(offset, self.log_end_offset)
        self.high_watermark = offset = max(offset, self.log_start_offset)
        if self.producers_state.has_transactions():
            self.update_stable()
        else:
            self.last_stable_offset = offset

    def update_stable(self) -> None:
        state = self.producers_state
        state.on_high_watermark(self.high_watermark)
        unstable = state.first_unstable_offset()
        if unstable is None or unstable > self.high_watermark:
            self.last_stable_offset = self.high_watermark
        else:
            self.last_stable_offset = max(unstable, self.log_start_offset)

    def raise_log_start_offset(self, offset: int) -> bool:
        """True if it rose. Never above the high watermark."""
        offset = min(offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.update_stable()
        self.events.log_start_raised(self)
        return True

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; True if something went."""
        return maintenance.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all, begin an empty log at `offset`."""
        maintenance.truncate_fully_and_start_at(self, offset)

    def set_segments(self, segments: list[Segment]) -> None:
        """The segments in order; the last one takes appends."""
        self.segments = segments
        self.segment_bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def rest_at(self, end_offset: int) -> None:
        """After loading or truncation: this is the end, nothing is staged."""
        self.log_end_offset = self.written_end_offset = end_offset
        self.roll_limit_bytes = self.config.segment_bytes

    # -- leader epochs

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Remember where a leader epoch begins (on becoming leader, before anything is written)."""
        self.write_staged()
        self.epochs.assign(leader_epoch, start_offset)
        self.producers_state.verifications.leadership_begins()

    def latest_epoch(self) -> int | None:
        """Newest known leader epoch."""
        return self.epochs.latest if self.epochs.latest >= 0 else None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) if undefined."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int | None:
        """Leader epoch of a record offset."""
        return self.epochs.epoch_at(offset)

    # -- lookups

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """First record at or after `timestamp`. Reads from the disk and opens one batch; of what is written only, so
        that a thread may ask."""
        return lookup.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """First record that carries the highest timestamp; of what is written only, so that a thread may ask."""
        return lookup.max_timestamp_offset(self)

    def aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """What a read_committed reader of [start, upper bound) must skip."""
        return lookup.aborted_transactions(self, start_offset, upper_bound_offset)

    # -- producers

    def producers(self) -> list[ProducerEntry]:
        """State of every known producer id (DescribeProducers)."""
        return list(self.producers_state.entries.values())

    def producer_epoch(self, producer_id: int) -> int | None:
        """Newest epoch seen of a producer id."""
        entry = self.producers_state.entries.get(producer_id)
        return None if entry is None else entry.epoch

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """KIP-890: a guard to be passed to the append; None if a transaction is open at this epoch already, and was
        verified since we lead."""
        state = self.producers_state
        if state.is_open(producer_id, producer_epoch) and state.verifications.is_proven(producer_id):
            return None
        return state.verifications.start(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump, self.events.clock.now_ms()
        )

    def is_unproven(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction is open at this epoch that only an earlier leader has verified."""
        state = self.producers_state
        return state.is_open(producer_id, producer_epoch) and not state.verifications.is_proven(producer_id)

    def fence_producer(self, producer_id: int, producer_epoch: int) -> None:
        """KIP-939: the open transaction was taken over as it is; its writer may add nothing more."""
        self.producers_state.verifications.fence(producer_id, producer_epoch, self.events.clock.now_ms())

    # -- size and disk

    def size_bytes(self) -> int:
        """Bytes of all segments, staged ones included."""
        return sum(segment.end_position for segment in self.segments)

    def abandon(self) -> None:
        """The log is being deleted: what is staged is void, files close when their readers are done."""
        self.abandoned = True
        maintenance.cancel_snapshot(self)
        self.staged = []
        self.undo.clear()
        self.events.staged.pop(self, None)
        for segment in self.segments:
            segment.close()

    def flush(self) -> None:
        """fsync what is written and move the recovery point. Blocking; in threads use `maintenance.begin_flush`."""
        self.write_staged()
        maintenance.flush(self)
