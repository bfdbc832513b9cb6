"""Staged appends: kept in memory during a wake-up, written by one system call at its end, taken back if that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.log import disk, maintenance
from penstock.log.files import NO_SPACE_ERRNOS, write_all
from penstock.log.results import LogWriteError
from penstock.log.segment import UNKNOWN_ROLL_TIME, Segment
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.log.log import Log

_INDEX_PAGE_BYTES: Final = 4096


def begin_stage(log: Log) -> None:
    segment = log.active
    log.mark = (
        log.log_end_offset,
        segment.bytes_since_index,
        segment.max_timestamp,
        segment.max_timestamp_offset,
        len(segment.offset_index.file.pending),
        len(segment.time_index.file.pending),
        segment.end_position,
    )
    log.events.staged[log] = None


def assign_epoch(log: Log, leader_epoch: int, start_offset: int) -> None:
    if log.marked_epochs is None:
        log.marked_epochs = log.epochs.entries()
    log.epochs.assign(leader_epoch, start_offset)


def index_batch(log: Log, segment: Segment, last_offset: int, position: int) -> None:
    segment.index_batch(last_offset, position)
    index_bytes = log.config.segment_index_bytes
    if segment.offset_index.is_full(index_bytes) or segment.time_index.is_full(index_bytes):
        log.roll_limit_bytes = 0  # the next append asks should_roll


def write_staged(log: Log) -> None:
    """Write everything staged, with one system call. LogWriteError voids all of it."""
    staged = log.staged
    if not staged:
        return
    segment = log.active
    position = segment.size
    try:
        if len(staged) == 1:
            data = staged[0]
            if disk.pwrite(segment.file().fd, data, position) != len(data):
                write_all(segment.file().fd, staged, position)
        else:
            write_all(segment.file().fd, staged, position)
    except OSError as error:
        _void_staged(log, error)
    segment.size = segment.end_position
    log.staged = []
    log.events.staged.pop(log, None)
    if log.undo:
        log.undo.clear()
    log.marked_epochs = None
    log.written_end_offset = log.log_end_offset
    if log.log_end_offset - log.recovery_point >= log.flush_messages:
        _flush_before_answering(log)
    elif len(segment.offset_index.file.pending) >= _INDEX_PAGE_BYTES:
        _write_index_pages(log, segment)


def _flush_before_answering(log: Log) -> None:
    """`flush.messages` promises that what is acknowledged is on the disk; one sync serves the whole wake-up."""
    try:
        maintenance.flush(log)
    except OSError as error:
        raise maintenance.write_error(log, error, "not flushed: ") from error


def _write_index_pages(log: Log, segment: Segment) -> None:
    try:
        segment.write_indexes()
    except OSError as error:
        # The entries stay in memory and are tried again; the batches themselves are written.
        if error.errno not in NO_SPACE_ERRNOS:
            log.events.failed(log, error)


def _take_back_producers(log: Log) -> None:
    """Their batches are void; what they have in the pipe behind those waits until those come again."""
    state = log.producers_state
    first_void: dict[int, tuple[int, int]] = {}
    for undo in reversed(log.undo):
        first_void[undo[0]] = state.undo(undo)
    log.undo.clear()
    for producer_id, (epoch, sequence) in first_void.items():
        if sequence >= 0:
            state.note_refused(producer_id, epoch, sequence, ErrorCode.KAFKA_STORAGE_ERROR)


def _void_staged(log: Log, cause: OSError) -> None:
    """Back to the last good end, in memory and in the file."""
    segment = log.active
    (
        end_offset,
        segment.bytes_since_index,
        segment.max_timestamp,
        segment.max_timestamp_offset,
        index_bytes,
        time_index_bytes,
        segment.end_position,
    ) = log.mark
    segment.roll_after_timestamp = UNKNOWN_ROLL_TIME
    segment.offset_index.file.drop_pending_from(index_bytes)
    segment.time_index.drop_pending_from(time_index_bytes)
    segment.forget_recent()
    _take_back_producers(log)
    if log.marked_epochs is not None:
        log.epochs.restore(log.marked_epochs)
        log.marked_epochs = None
    log.staged = []
    log.events.staged.pop(log, None)
    log.roll_limit_bytes = log.config.segment_bytes
    log.log_end_offset = end_offset
    if log.abandoned:
        raise LogWriteError(f"{log.name} was deleted", directory_failed=False) from cause
    failed = cause.errno not in NO_SPACE_ERRNOS
    try:
        if segment.is_open():  # else not a byte was written
            disk.ftruncate(segment.file().fd, segment.size)
    except OSError as error:
        log.voided = maintenance.half_way(log, error, "written")
        raise log.voided from error
    if failed:
        log.events.failed(log, cause)
    log.voided = LogWriteError(f"{log.name}: {cause}", directory_failed=failed)
    raise log.voided from cause
