"""What changes the list of segments of a log, and what makes it durable: roll, truncation, deletion, flush."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.log import producer_replay, producer_snapshot
from penstock.log.damage import BAD_BYTES, UNREADABLE
from penstock.log.files import (
    NO_SPACE_ERRNOS,
    fsync_directory,
    fsync_path,
    unlink_all,
)
from penstock.log.producer_state import ProducerState
from penstock.log.results import LogWriteError
from penstock.log.segment import UNKNOWN_ROLL_TIME, Segment

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.protocol.batch import BatchHeader

_MAX_SPAN: Final = 2**31 - 1


def write_error(log: Log, cause: OSError, what: str = "") -> LogWriteError:
    """What an append hears of a disk that refuses; the folder is lost unless there was just no space."""
    failed = cause.errno not in NO_SPACE_ERRNOS
    if failed:
        log.events.failed(log, cause)
    return LogWriteError(f"{log.name}: {what}{cause}", directory_failed=failed)


def half_way(log: Log, cause: OSError, what: str) -> LogWriteError:
    """Files and memory say different things, and only a start can tell what is right: the folder is lost till then,
    even if there was just no space."""
    log.events.failed(log, OSError(errno.EIO, f"{log.name} was {what} half-way: {cause}"))
    return LogWriteError(f"{log.name}: {what} half-way: {cause}", directory_failed=True)


def begin(log: Log, base_offset: int) -> None:
    """Give a log its first, empty segment. A folder without any says the same as one that begins at 0."""
    make = Segment.create if base_offset else Segment.promise
    segment = make(log.directory, base_offset, log.events.clock.now_ms())
    _begin_with(log, segment)


def _begin_with(log: Log, segment: Segment) -> None:
    log.set_segments([segment])
    log.rest_at(segment.base_offset)
    log.log_start_offset = log.high_watermark = log.last_stable_offset = log.recovery_point = segment.base_offset


# -- roll


def should_roll(log: Log, size: int, max_timestamp: int, last_offset: int) -> bool:
    """Whether a batch of these properties needs a new segment; also computes the time at which the next one would."""
    segment = log.active
    config = log.config
    if last_offset - segment.base_offset > _MAX_SPAN:
        return True
    limit_ms = config.segment_ms
    if config.cleanup_compact:
        limit_ms = min(limit_ms, config.max_compaction_lag_ms)
    if config.segment_jitter_ms:
        limit_ms -= segment.jitter_ms
    if segment.end_position == 0:
        segment.roll_after_timestamp = max_timestamp + limit_ms if max_timestamp >= 0 else UNKNOWN_ROLL_TIME
        return False
    if segment.end_position + size > config.segment_bytes:
        return True
    index_bytes = config.segment_index_bytes
    if segment.offset_index.is_full(index_bytes) or segment.time_index.is_full(index_bytes):
        return True
    if max_timestamp <= segment.roll_after_timestamp:
        return False
    if segment.size == 0:  # the first batch is still staged and carries no time
        first = -1
    else:
        try:
            first = segment.first_timestamp()
        except UNREADABLE as error:
            log.damage.tell(segment.base_offset, error)
            first = -1
    if first < 0:
        return log.events.clock.now_ms() - segment.created_ms > limit_ms
    segment.roll_after_timestamp = first + limit_ms
    return max_timestamp > segment.roll_after_timestamp


def roll(log: Log, new_base_offset: int) -> None:
    """Begin a new segment. LogWriteError if the disk refuses; the log goes on with the old one then."""
    log.write_staged()
    old = log.active
    base_offset = max(new_base_offset, log.log_end_offset)
    if base_offset == old.base_offset:
        return  # it is empty: nothing to part from
    try:
        old.prepare_folder()
        old.finish_indexes()
        many = len(log.producers_state.entries) > producer_snapshot.MANY_PRODUCERS
        if not many:
            producer_snapshot.write_snapshot(
                log.directory, base_offset, log.producers_state.entries.values(), durable=False
            )
        segment = _create(log, base_offset)
    except OSError as error:
        raise write_error(log, error, "cannot roll: ") from error
    if many and not log.is_snapshotting:  # else one is under way: the next roll makes another
        _begin_snapshot(log, base_offset)
    if log.config.segment_jitter_ms:
        segment.jitter_ms = random.randrange(min(log.config.segment_jitter_ms, log.config.segment_ms))
    if old.size:
        old.deactivate()
        log.set_segments([*log.segments, segment])
    else:
        # Nothing was ever written there: the new segment takes its place (a gap in the offsets, on followers).
        log.set_segments([*log.segments[:-1], segment])
        _discard(log, [old], 0)
    log.rest_at(log.log_end_offset)
    log.events.rolled(log)


def roll_for_follower(log: Log, header: BatchHeader) -> None:
    """Begin a new segment for a batch of the leader. It begins where the old one ends, although compaction may have
    left a gap before the batch: a start takes a gap between segments for the work of a power loss."""
    fits = header.last_offset - log.log_end_offset <= _MAX_SPAN
    roll(log, log.log_end_offset if fits else header.base_offset)


def _begin_snapshot(log: Log, offset: int) -> None:
    log.snapshot_job = producer_snapshot.SnapshotJob(log.directory, offset, log.producers_state)
    log.events.in_background(log, log.snapshot_job.run)


def _promise(log: Log, base_offset: int) -> Segment:
    segment = Segment.promise(log.directory, base_offset, log.events.clock.now_ms())
    segment.prepare = log.active.prepare
    return segment


def _create(log: Log, base_offset: int) -> Segment:
    """A new segment with its files, or none of them: a start would take a lone one for the end of the log."""
    segment = _promise(log, base_offset)
    try:
        segment.file()
    except OSError:
        segment.close()
        try:
            unlink_all(segment.paths())
        except OSError as error:
            # What goes to the old segment from now on would be lost at the next start.
            raise half_way(log, error, "rolled") from error
        raise
    return segment


# -- truncation and deletion


def truncate_to(log: Log, offset: int) -> bool:
    """LogWriteError if the disk refuses: before anything is gone, or the folder has failed."""
    log.write_staged()
    if offset >= log.log_end_offset:
        # An epoch without records may begin at the end: it is what a follower must forget to agree with its leader.
        log.epochs.truncate_from_end(offset)
        return False
    if offset < log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    kept = [segment for segment in log.segments if segment.base_offset <= offset]
    dropped = log.segments[len(kept) :]
    active = kept[-1]
    try:
        # All that needs reading comes before the first change.
        cut = active.plan_cut(offset)
        producers = producer_replay.state_at(log, offset) if log.producers_state.entries else ProducerState()
        log.events.truncating(log, offset)
    except OSError as error:
        raise write_error(log, error, "not truncated: ") from error
    except BAD_BYTES as error:
        log.damage.tell(offset, error)
        raise LogWriteError(f"{log.name}: not truncated: {error}", directory_failed=False) from error
    log.truncations += 1
    cancel_snapshot(log)
    try:
        # The newest first: a crash in between leaves a shorter log, never one with a hole.
        _discard(log, list(reversed(dropped)), log.config.file_delete_delay_ms)
        active.cut(cut)
        _drop_snapshots(log, lambda snapshot: snapshot > offset)
    except OSError as error:
        raise half_way(log, error, "truncated") from error
    log.set_segments(kept)
    active.activate()
    log.rest_at(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.epochs.truncate_from_end(offset)
    log.producers_state = producers
    log.set_high_watermark(min(log.high_watermark, offset))
    return True


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    log.write_staged()
    try:
        log.events.truncating(log, min(offset, log.segments[0].base_offset))
    except OSError as error:
        raise write_error(log, error, "not truncated: ") from error
    log.truncations += 1
    cancel_snapshot(log)
    try:
        if log.active.prepare is None:  # else there is no folder yet
            _discard(log, list(reversed(log.segments)), log.config.file_delete_delay_ms)
            _drop_snapshots(log, lambda _: True)
    except OSError as error:
        raise half_way(log, error, "truncated") from error
    log.producers_state.clear()
    log.epochs.clear()
    _begin_with(log, _promise(log, offset))
    log.events.log_start_raised(log)
    if offset:
        try:
            log.active.file()
        except OSError as error:
            # Its name would have told a start where the log begins; until its first batch the checkpoint does.
            raise write_error(log, error, "begun anew without a file: ") from error


def delete_oldest(log: Log, count: int) -> int:
    """Delete the first `count` segments and raise the log start to what is left; bytes that went. Fewer of them, or
    none, as long as no snapshot remembers their producers: the next round deletes the rest."""
    if not log.segments[:count]:
        return 0
    if count == len(log.segments):
        roll(log, log.log_end_offset)
    if log.is_snapshotting:
        return 0
    remembered = _remembered(log, count)
    had_room = True
    if remembered < count:
        # A full disk needs the room more than the producers need to be remembered through a kill.
        had_room = not (log.snapshot_job is not None and log.snapshot_job.refused) and _remember_producers(log)
        if had_room:
            count = remembered
    doomed = log.segments[:count]
    if not doomed:
        return 0
    freed = sum(segment.size for segment in doomed)
    log.set_segments(log.segments[len(doomed) :])
    start = log.segments[0].base_offset
    if start > log.log_start_offset:
        log.log_start_offset = start
        log.epochs.truncate_from_start(start)
        log.set_high_watermark(max(log.high_watermark, start))
        log.events.log_start_raised(log)
    _discard(log, doomed, log.config.file_delete_delay_ms)
    bases = {segment.base_offset for segment in doomed}
    _drop_snapshots(log, lambda snapshot: snapshot in bases)
    if not had_room:
        _remember_producers(log)
    return freed


def _remembered(log: Log, count: int) -> int:
    """How many of the first segments may go: a start has to find a snapshot behind them that it can trust, or whoever
    wrote to them only is unknown after a kill, and may repeat what is stored. It trusts the one where the log begins,
    and those up to the recovery point."""
    if not log.producers_state.entries:
        return count
    bases = set(log.segment_bases)
    snapshots = [offset for offset in producer_snapshot.snapshot_offsets(log.directory) if offset in bases]
    while count:
        start = log.segment_bases[count]
        if any(start <= offset <= max(start, log.recovery_point) for offset in snapshots):
            break
        count -= 1
    return count


def _remember_producers(log: Log) -> bool:
    """A snapshot where the newest segment begins, made or begun; False if the disk has no room for it."""
    try:
        if not producer_snapshot.snapshot_path(log.directory, log.active.base_offset).exists():
            roll(log, log.log_end_offset)
        base_offset = log.active.base_offset
        if log.is_snapshotting or producer_snapshot.snapshot_path(log.directory, base_offset).exists():
            return True
        if log.active.size == 0:  # there was nothing to roll
            _begin_snapshot(log, base_offset)
            return True
    except LogWriteError as error:
        if error.directory_failed:
            raise
    return False


def _discard(log: Log, segments: Sequence[Segment], delay_ms: int) -> None:
    paths: list[Path] = []
    try:
        for segment in segments:
            paths += segment.rename_deleted()
    finally:
        log.events.discard(paths, delay_ms)


def cancel_snapshot(log: Log) -> None:
    if log.snapshot_job is not None:
        log.snapshot_job.cancel()
        log.snapshot_job = None


def _drop_snapshots(log: Log, wanted: Callable[[int], bool]) -> None:
    paths = [
        producer_snapshot.snapshot_path(log.directory, offset)
        for offset in producer_snapshot.snapshot_offsets(log.directory)
        if wanted(offset)
    ]
    unlink_all(paths)


# -- flush


class FlushJob:
    """One fsync round, prepared by the loop, run in any thread."""

    def __init__(self, log: Log, end_offset: int) -> None:
        self._log = log
        self._end_offset = end_offset
        self._truncations = log.truncations
        self._epochs = (log.epochs.entries(), log.epochs.change) if log.epochs.dirty else None
        log.epochs.dirty = False
        self._paths: list[Path] = []
        segments = log.segments
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset + 1
            if following > log.recovery_point:
                self._paths += segment.paths()
                self._paths.append(producer_snapshot.snapshot_path(log.directory, segment.base_offset))

    def run(self) -> None:
        """OSError as the disk gives it; then the recovery point stays."""
        log = self._log
        try:
            for path in self._paths:
                fsync_path(path)
            if self._epochs is not None:
                log.epochs.store(*self._epochs)
            fsync_directory(log.directory)
            if log.recovery_point == 0:
                fsync_directory(log.directory.parent)  # the folder itself may be new
        except OSError:
            if self._epochs is not None:
                log.epochs.dirty = True
            if not log.directory.exists():  # the topic was deleted meanwhile, or had no room to begin yet
                return
            raise
        if log.truncations == self._truncations:
            log.recovery_point = max(log.recovery_point, self._end_offset)


def begin_flush(log: Log) -> FlushJob | None:
    """Write what is pending in memory and say what has to be synced; None if everything is."""
    log.write_staged()
    if log.log_end_offset <= log.recovery_point and not log.epochs.dirty:
        return None
    log.active.write_indexes()
    log.last_flush_ms = log.events.clock.now_ms()
    return FlushJob(log, log.log_end_offset)


def flush(log: Log) -> None:
    """Blocking."""
    job = begin_flush(log)
    if job is not None:
        job.run()


def close(log: Log, clean: bool) -> None:
    """Stop using the files. `clean` leaves everything that a start without recovery needs, durable."""
    cancel_snapshot(log)
    if clean:
        log.write_staged()
    if clean and log.active.exists:  # else nothing was ever written, and there is nothing to leave
        log.active.finish_indexes()
        producer_snapshot.write_snapshot(
            log.directory, log.log_end_offset, log.producers_state.entries.values(), durable=True
        )
        flush(log)
    for segment in log.segments:
        segment.close()
