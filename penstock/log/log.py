"""One replica's log: segments in order, what is appended and what is read. Single-threaded: only the loop calls it.

Appends are staged in memory and written by `write_staged`, once per wake-up of the loop. Nothing staged may be
acknowledged or served before that; a failed write takes the log back to its last good end. Changes of the list of
segments (roll, truncation, deletion) live in `maintenance`, lookups by time in `lookup`, checks that open a batch in
`validation`, loading in `recovery`.
"""

from __future__ import annotations

import os
import uuid
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.base.settings import LogConfig
from penstock.log import lookup, maintenance
from penstock.log.events import LogEvents
from penstock.log.files import LEADER_EPOCH_CHECKPOINT, NO_SPACE_ERRNOS, write_all
from penstock.log.leader_epochs import LeaderEpochs
from penstock.log.producer_state import (
    KEPT_BATCHES,
    MAX_SEQUENCE,
    KeptBatch,
    ProducerEntry,
    ProducerState,
    Undo,
    VerificationGuard,
)
from penstock.log.results import (
    AbortedTransaction,
    AppendResult,
    FollowerAppend,
    LogWriteError,
    OffsetOutOfRange,
    Origin,
    Region,
    TimestampOffset,
)
from penstock.log.segment import RECENT_MAX, UNKNOWN_ROLL_TIME, Segment
from penstock.log.validation import (
    CHECKED_RECORDS_MAX,
    Inspection,
    check_client_batch,
    inspect,
    is_framed,
    may_open,
    must_open,
)
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    iterate_batches,
    patch_timestamp,
    read_marker,
)
from penstock.protocol.crc import native_crc32c
from penstock.protocol.errors import ErrorCode

Buffer = bytes | bytearray | memoryview

_FRONT: Final = Struct(">qii")  # base offset, batch length, leader epoch
_FOREVER: Final = 2**63 - 1
_MAX_SPAN: Final = 2**31 - 1
_CLIENT: Final = Origin.CLIENT
_NONE: Final = ErrorCode.NONE

_unpack_header = HEADER.unpack_from
_pack_front = _FRONT.pack_into
_new_tuple = tuple.__new__


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
        """An empty shell: `recovery.load_log` or `maintenance.begin` gives it segments."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.name = f"{topic}-{partition}"
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
        self.abandoned = False
        self.producers_state = ProducerState()
        self.epochs = LeaderEpochs(directory / LEADER_EPOCH_CHECKPOINT)
        self.segments: list[Segment] = []
        self.segment_bases: list[int] = []
        self.active: Segment
        self._staged: list[bytearray | bytes] = []
        self._undo: list[Undo] = []
        self._mark: tuple[int, int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0, 0)
        self._marked_epochs: list[tuple[int, int]] | None = None
        self._written_end_offset = 0
        self._roll_limit_bytes = 0
        self.update_config(config)

    def __repr__(self) -> str:
        return f"<Log {self.name} {self.log_start_offset}..{self.log_end_offset} hw={self.high_watermark}>"

    def update_config(self, config: LogConfig) -> None:
        """Take new topic settings from now on."""
        self.config = config
        self._may_open = may_open(config)
        self._max_message_bytes = config.max_message_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._log_append_time = config.log_append_time
        self._after_max_ms = _FOREVER if config.log_append_time else config.message_timestamp_after_max_ms
        self._flush_messages = config.flush_messages
        self._roll_limit_bytes = config.segment_bytes
        for segment in self.segments[-1:]:
            segment.roll_after_timestamp = UNKNOWN_ROLL_TIME

    # -- append as leader

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
        """Check one batch, give it offsets and stage it. May raise LogWriteError when it has to write first (a roll, a
        marker): then everything staged before is void, too.

        Markers come with Origin.COORDINATOR and the `transaction_version` of their coordinator. The `guard` of a
        verification is needed by the first batch of a transaction. `inspection` is the result of
        `validation.inspect` when the caller had that done in a worker; without it the log inspects by itself.
        """
        size = len(batch)
        if size < HEADER_BYTES:
            return self._refuse(ErrorCode.INVALID_RECORD, f"{size} bytes hold no batch")
        (
            sent_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            last_delta,
            _,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = _unpack_header(batch)
        if origin is _CLIENT:
            if (
                magic != 2
                or length + LOG_OVERHEAD_BYTES != size
                or sent_offset
                or count <= 0
                or last_delta + 1 != count
                or attributes & CONTROL_BIT
                or (sequence < 0 <= producer_id)
                or size > self._max_message_bytes
                or native_crc32c(batch[CRC_START:] if type(batch) is memoryview else memoryview(batch)[CRC_START:])
                != crc
                or attributes & CODEC_MASK > 4
                or (count <= CHECKED_RECORDS_MAX and not attributes & CODEC_MASK and not is_framed(batch, count))
            ):
                fault = check_client_batch(batch, self._max_message_bytes)
                if fault is not None:
                    return self._refuse(*fault)
        elif size > self._max_message_bytes:
            return self._refuse(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes")

        copy: bytearray | None = None
        if (
            inspection is not None
            or max_timestamp - now_ms > self._after_max_ms
            or attributes & LOG_APPEND_TIME_BIT
            or (self._may_open and must_open(attributes, self.config))
        ) and not attributes & CONTROL_BIT:
            found = inspect(batch, self.config, now_ms, self.name) if inspection is None else inspection
            if found.error is not _NONE:
                return AppendResult(
                    found.error,
                    log_start_offset=self.log_start_offset,
                    record_errors=found.record_errors,
                    message=found.message,
                    detail=found.detail,
                )
            copy = bytearray(found.batch)
            size = len(copy)
            if size > self._max_message_bytes:
                return self._refuse(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes after recompression")
            header = BatchHeader.parse(copy)
            length, attributes, max_timestamp = header.batch_length, header.attributes, header.max_timestamp
        append_time_ms = -1
        if self._log_append_time:
            append_time_ms = now_ms
            if copy is None:
                copy = bytearray(batch)
            if not attributes & CONTROL_BIT:
                attributes |= LOG_APPEND_TIME_BIT
                max_timestamp = now_ms
                patch_timestamp(copy, attributes, max_timestamp)
        elif attributes & LOG_APPEND_TIME_BIT:
            copy = bytearray(batch) if copy is None else copy
            attributes &= ~LOG_APPEND_TIME_BIT
            patch_timestamp(copy, attributes, max_timestamp)
        if size > self.config.segment_bytes:
            return self._refuse(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed a segment")

        if producer_id >= 0:
            if attributes & CONTROL_BIT:
                return self._append_marker(batch, leader_epoch, transaction_version)
            entry = self.producers_state.entries.get(producer_id)
            # The next batch of a known producer outside transactions: nothing else to check.
            in_sequence = (
                entry is not None
                and entry.epoch == producer_epoch
                and entry.batches
                and entry.batches[-1][1] + 1 == sequence
                and not attributes & TRANSACTIONAL_BIT
                and entry.txn_first_offset < 0
                and origin is _CLIENT
                and sequence + last_delta <= MAX_SEQUENCE
            )
            if not in_sequence:
                answer = self._check_producer(
                    entry, attributes, producer_id, producer_epoch, sequence, last_delta, origin, guard
                )
                if answer is not None:
                    return answer

        segment = self.active
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        position = segment.end_position
        if (
            position + size > self._roll_limit_bytes
            or max_timestamp > segment.roll_after_timestamp
            or last_offset - segment.base_offset > _MAX_SPAN
        ) and maintenance.should_roll(self, size, max_timestamp, last_offset):
            maintenance.roll(self, base_offset)
            segment = self.active
            position = 0
            maintenance.should_roll(self, size, max_timestamp, last_offset)  # sets the new segment's roll time

        if copy is None:
            copy = bytearray(batch)
        _pack_front(copy, 0, base_offset, length, leader_epoch)
        if not self._staged:
            self._begin_stage()
        self._staged.append(copy)
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch, base_offset)
        if producer_id >= 0:
            if entry is not None and in_sequence:
                # producers_state.put_batch for the usual case, spelled out
                kept = entry.batches
                self._undo.append(
                    (
                        producer_id,
                        entry,
                        producer_epoch,
                        entry.coordinator_epoch,
                        entry.last_timestamp,
                        -1,
                        kept,
                    )
                )
                added = (sequence, sequence + last_delta, last_offset, last_delta, max_timestamp)
                entry.batches = (*kept[1:], added) if len(kept) >= KEPT_BATCHES else (*kept, added)
                entry.last_timestamp = max_timestamp
            else:
                self._undo.append(
                    self.producers_state.put_batch(
                        producer_id,
                        producer_epoch,
                        sequence,
                        last_delta,
                        last_offset,
                        max_timestamp,
                        attributes & TRANSACTIONAL_BIT != 0,
                    )
                )

        # segment.note_batch, spelled out: a call less for every append
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last_offset
        recent = segment.recent_lasts
        if len(recent) >= RECENT_MAX:
            segment.forget_older_half()
        recent.append(last_offset)
        segment.recent_positions.append(position)
        if segment.bytes_since_index > self._index_interval_bytes:
            self._index(segment, last_offset, position)
        segment.bytes_since_index += size
        segment.end_position = position + size
        self.log_end_offset = last_offset + 1
        # AppendResult(…) without the call that fills in defaults
        return _new_tuple(
            AppendResult,
            (_NONE, base_offset, last_offset, append_time_ms, self.log_start_offset, (), None, False, None),
        )

    def _refuse(self, error: ErrorCode, detail: str) -> AppendResult:
        plain = error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
        return AppendResult(error, log_start_offset=-1 if plain else self.log_start_offset, detail=detail)

    def _check_producer(
        self,
        entry: ProducerEntry | None,
        attributes: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        last_delta: int,
        origin: Origin,
        guard: VerificationGuard | None,
    ) -> AppendResult | None:
        """The rules for producers in Kafka's order; None if the batch may go on."""
        state = self.producers_state
        if origin is _CLIENT and entry is not None:
            last_sequence = (sequence + last_delta) % (1 << 31)
            kept = state.find_duplicate(entry, producer_epoch, sequence, last_sequence)
            if kept is not None:
                return self._duplicate(kept)
        transactional = bool(attributes & TRANSACTIONAL_BIT)
        if (
            transactional
            and self.verify_transactions
            and not self.has_ongoing_transaction(producer_id, producer_epoch)
            and not state.is_verified(producer_id, guard)
        ):
            return self._refuse(ErrorCode.INVALID_TXN_STATE, "the batch is not part of a verified transaction")
        if entry is not None and producer_epoch < entry.epoch:
            return self._refuse(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {producer_epoch} of producer {producer_id} < {entry.epoch}"
            )
        if origin is _CLIENT:
            fault = state.check_sequence(entry, producer_id, producer_epoch, sequence)
            if fault is not None:
                return self._refuse(*fault)
        if entry is not None and entry.txn_first_offset >= 0 and not transactional:
            return self._refuse(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has an open transaction")
        if transactional:
            state.forget_verification(producer_id)
        return None

    def _duplicate(self, kept: KeptBatch) -> AppendResult:
        _, _, last_offset, delta, timestamp = kept
        append_time_ms = timestamp if self._log_append_time else -1
        start = self.log_start_offset
        return AppendResult(_NONE, last_offset - delta, last_offset, append_time_ms, start, duplicate=True)

    def _append_marker(self, batch: Buffer, leader_epoch: int, transaction_version: int) -> AppendResult:
        """Markers are rare and change much: each is written at once, so that a failed write leaves nothing to undo."""
        header = BatchHeader.parse(batch)
        marker = read_marker(batch, header)
        if marker is None:
            return self._refuse(ErrorCode.INVALID_RECORD, "the control batch is no transaction marker")
        error = self.producers_state.check_marker(
            header.producer_id, header.producer_epoch, marker.coordinator_epoch, transaction_version
        )
        if error is not None:
            return self._refuse(error, f"marker of producer {header.producer_id} epoch {header.producer_epoch}")
        self.write_staged()
        base_offset = self.log_end_offset
        if maintenance.should_roll(self, header.size, header.max_timestamp, base_offset):
            maintenance.roll(self, base_offset)
        copy = bytearray(batch)
        _pack_front(copy, 0, base_offset, header.batch_length, leader_epoch)
        self._stage_whole(copy, BatchHeader.parse(copy))
        self.write_staged()
        self._apply_marker(BatchHeader.parse(copy), copy)
        return AppendResult(_NONE, base_offset, base_offset, -1, self.log_start_offset)

    # -- append as follower

    def append_as_follower(self, batches: Buffer) -> FollowerAppend:
        """Stage whole batches from the leader as they are; a cut one at the end is ignored.

        InvalidBatch when they are corrupt or do not continue this log: then what came before it in `batches` stays
        staged. Control batches are written at once, as for a leader. The bytes are copied.
        """
        view = memoryview(batches)
        first_offset = -1
        last_offset = -1
        taken = 0
        for header in iterate_batches(view):
            if header.base_offset < self.log_end_offset:
                raise InvalidBatch(f"{self.name}: offset {header.base_offset} is before the end {self.log_end_offset}")
            if not crc_matches(view, header):
                raise InvalidBatch(f"{self.name}: the checksum of the batch at {header.base_offset} differs")
            if maintenance.should_roll(self, header.size, header.max_timestamp, header.last_offset):
                maintenance.roll(self, header.base_offset)
            data = bytes(view[header.position : header.position + header.size])
            if header.is_control:
                self.write_staged()
                self._stage_whole(data, header)
                self.write_staged()
                if header.has_producer_id:
                    self._apply_marker(header._replace(position=0), data)
            else:
                self._stage_whole(data, header)
                if header.has_producer_id:
                    self._undo.append(self._put_producer(header))
            if first_offset < 0:
                first_offset = header.base_offset
            last_offset = header.last_offset
            taken += 1
        return FollowerAppend(first_offset, last_offset, taken)

    def _put_producer(self, header: BatchHeader) -> Undo:
        return self.producers_state.put_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )

    def replay(self, header: BatchHeader, data: Buffer | None) -> None:
        """Bring the producer state behind a batch that is in the log already (loading); `data` for control batches."""
        if not header.has_producer_id:
            return
        if header.is_control:
            marker = read_marker(data, header) if data is not None else None
            if marker is not None:
                self.producers_state.end_transaction(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    marker.control_type == 0,
                    header.last_offset,
                    header.max_timestamp,
                )
        else:
            self._put_producer(header)

    def _apply_marker(self, header: BatchHeader, data: Buffer) -> None:
        marker = read_marker(data, header._replace(position=0))
        if marker is None:
            return
        state = self.producers_state
        ended = state.end_transaction(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            marker.control_type == 0,
            header.last_offset,
            header.max_timestamp,
        )
        if ended is not None and ended.aborted:
            self.active.txn_index.append(state.aborted_entry(ended))
        self._update_stable()

    def _stage_whole(self, data: bytearray | bytes, header: BatchHeader) -> None:
        """Stage bytes that carry their offsets already."""
        segment = self.active
        position = segment.end_position
        if not self._staged:
            self._begin_stage()
        self._staged.append(data)
        if header.leader_epoch != self.epochs.latest:
            self._assign_epoch(header.leader_epoch, header.base_offset)
        segment.note_batch(header.last_offset, position, header.max_timestamp)
        if segment.bytes_since_index > self._index_interval_bytes:
            self._index(segment, header.last_offset, position)
        segment.bytes_since_index += header.size
        segment.end_position = position + header.size
        self.log_end_offset = header.next_offset

    # -- staging

    def _begin_stage(self) -> None:
        segment = self.active
        self._mark = (
            self.log_end_offset,
            segment.bytes_since_index,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            len(segment.offset_index.file.pending),
            len(segment.time_index.file.pending),
            segment.end_position,
        )
        self.events.staged[self] = None

    def _assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        if self._marked_epochs is None:
            self._marked_epochs = self.epochs.entries()
        self.epochs.assign(leader_epoch, start_offset)

    def _index(self, segment: Segment, last_offset: int, position: int) -> None:
        segment.index_batch(last_offset, position)
        index_bytes = self.config.segment_index_bytes
        if segment.offset_index.is_full(index_bytes) or segment.time_index.is_full(index_bytes):
            self._roll_limit_bytes = 0  # the next append asks should_roll

    def write_staged(self) -> None:
        """Write everything staged, with one system call. LogWriteError voids all of it."""
        staged = self._staged
        if not staged:
            return
        segment = self.active
        position = segment.size
        try:
            if len(staged) == 1:
                data = staged[0]
                if os.pwrite(segment.file().fd, data, position) != len(data):
                    write_all(segment.file().fd, staged, position)
            else:
                write_all(segment.file().fd, staged, position)
        except OSError as error:
            self._void_staged(error)
        segment.size = segment.end_position
        self._staged = []
        self.events.staged.pop(self, None)
        if self._undo:
            self._undo.clear()
        self._marked_epochs = None
        self._written_end_offset = self.log_end_offset
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            maintenance.flush(self)
        elif len(segment.offset_index.file.pending) >= 4096:
            self._write_index_pages(segment)

    def _write_index_pages(self, segment: Segment) -> None:
        try:
            segment.write_indexes()
        except OSError as error:
            # The entries stay in memory and are tried again; the batches themselves are written.
            if error.errno not in NO_SPACE_ERRNOS:
                self.events.failed(self, error)

    def _void_staged(self, cause: OSError) -> None:
        """Back to the last good end, in memory and in the file."""
        segment = self.active
        (
            end_offset,
            segment.bytes_since_index,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            index_bytes,
            time_index_bytes,
            segment.end_position,
        ) = self._mark
        segment.roll_after_timestamp = UNKNOWN_ROLL_TIME
        segment.offset_index.file.drop_pending_from(index_bytes)
        segment.time_index.drop_pending_from(time_index_bytes)
        segment.forget_recent()
        for undo in reversed(self._undo):
            self.producers_state.undo(undo)
        self._undo.clear()
        if self._marked_epochs is not None:
            self.epochs.restore(self._marked_epochs)
            self._marked_epochs = None
        self._staged = []
        self.events.staged.pop(self, None)
        self._roll_limit_bytes = self.config.segment_bytes
        self.log_end_offset = end_offset
        if self.abandoned:
            raise LogWriteError(f"{self.name} was deleted", directory_failed=False) from cause
        failed = cause.errno not in NO_SPACE_ERRNOS
        try:
            os.ftruncate(segment.file().fd, segment.size)
        except OSError as error:
            failed = True
            cause = error
        if failed:
            self.events.failed(self, cause)
        raise LogWriteError(f"{self.name}: {cause}", directory_failed=failed) from cause

    # -- read

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> Region | OffsetOutOfRange:
        """Where the batches from the one holding `offset` lie, below the bound (None: the log end).

        With `at_least_one` the first batch comes whole even if it is larger than `max_bytes`; without, a first batch
        that does not fit gives an empty region. The end may cut a later batch, as in Kafka.
        """
        if self._staged:
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
            index = bisect_right(self.segment_bases, offset) - 1
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
        return Region(segment.file(), position, length, offset, next_offset)

    def read_bytes(self, offset: int, max_bytes: int, upper_bound_offset: int | None = None) -> bytes:
        """The same as bytes, for loaders and tools; empty when out of range or nothing is there."""
        region = self.read(offset, max_bytes, upper_bound_offset)
        if isinstance(region, OffsetOutOfRange) or region.file is None:
            return b""
        return os.pread(region.file.fd, region.length, region.position)

    # -- offsets

    def set_high_watermark(self, offset: int) -> None:
        """Clamp to [log start, log end] and derive the last stable offset. Writes what is staged below it first, so
        call it after the wake-up's `write_staged`."""
        if offset > self._written_end_offset:
            self.write_staged()
            offset = min(offset, self.log_end_offset)
        self.high_watermark = offset = max(offset, self.log_start_offset)
        if self.producers_state.has_transactions():
            self._update_stable()
        else:
            self.last_stable_offset = offset

    def _update_stable(self) -> None:
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
        self._update_stable()
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
        self.log_end_offset = self._written_end_offset = end_offset
        self._roll_limit_bytes = self.config.segment_bytes

    # -- leader epochs

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Remember where a leader epoch begins (on becoming leader, before anything is written)."""
        self.write_staged()
        self.epochs.assign(leader_epoch, start_offset)

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
        """First record at or after `timestamp`. Reads from the disk and opens one batch."""
        self.write_staged()
        return lookup.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """First record that carries the highest timestamp."""
        self.write_staged()
        return lookup.max_timestamp_offset(self)

    def aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """What a read_committed reader of [start, upper bound) must skip."""
        return lookup.aborted_transactions(self, start_offset, upper_bound_offset)

    # -- producers

    def producers(self) -> list[ProducerEntry]:
        """State of every known producer id (DescribeProducers)."""
        return list(self.producers_state.entries.values())

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer, at this epoch, has an open transaction here."""
        entry = self.producers_state.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == producer_epoch

    def producer_epoch(self, producer_id: int) -> int | None:
        """Newest epoch seen of a producer id."""
        entry = self.producers_state.entries.get(producer_id)
        return None if entry is None else entry.epoch

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """KIP-890: a guard to be passed to the append; None if a transaction is open at this epoch already."""
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        return self.producers_state.start_verification(
            producer_id, producer_epoch, base_sequence, supports_epoch_bump, self.events.clock.now_ms()
        )

    # -- size and disk

    def size_bytes(self) -> int:
        """Bytes of all segments, staged ones included."""
        return sum(segment.end_position for segment in self.segments)

    def abandon(self) -> None:
        """The log is being deleted: what is staged is void, files close when their readers are done."""
        self.abandoned = True
        self._staged = []
        self._undo.clear()
        self.events.staged.pop(self, None)
        for segment in self.segments:
            segment.close()

    def flush(self) -> None:
        """fsync what is written and move the recovery point. Blocking; in threads use `maintenance.begin_flush`."""
        self.write_staged()
        maintenance.flush(self)
