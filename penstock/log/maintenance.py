"""What changes the list of segments of a log, and what makes it durable: roll, truncation, deletion, flush."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.log import producer_replay, producer_snapshot
from penstock.log.checkpoints import write_epochs
from penstock.log.files import (
    LEADER_EPOCH_CHECKPOINT,
    NO_SPACE_ERRNOS,
    fsync_directory,
    fsync_path,
    unlink_all,
)
from penstock.log.results import LogWriteError
from penstock.log.segment import UNKNOWN_ROLL_TIME, Segment

if TYPE_CHECKING:
    from penstock.log.log import Log

_MAX_SPAN: Final = 2**31 - 1


def begin(log: Log, base_offset: int) -> None:
    """Give a log its first, empty segment. A folder without any says the same as one that begins at 0."""
    make = Segment.create if base_offset else Segment.promise
    segment = make(log.directory, base_offset, log.events.clock.now_ms())
    log.set_segments([segment])
    log.rest_at(base_offset)
    log.log_start_offset = log.high_watermark = log.last_stable_offset = log.recovery_point = base_offset


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
        first = segment.first_timestamp()
    if first < 0:
        return log.events.clock.now_ms() - segment.created_ms > limit_ms
    segment.roll_after_timestamp = first + limit_ms
    return max_timestamp > segment.roll_after_timestamp


def roll(log: Log, new_base_offset: int) -> None:
    """Begin a new segment. LogWriteError if the disk refuses; the log goes on with the old one then."""
    log.write_staged()
    old = log.active
    base_offset = max(new_base_offset, log.log_end_offset)
    try:
        old.finish_indexes()
        producer_snapshot.write_snapshot(
            log.directory, base_offset, log.producers_state.entries.values(), durable=False
        )
        if old.size == 0:
            # Nothing was ever written there: the new segment takes its place (a gap in the offsets, on followers).
            log.events.discard(old.rename_deleted(), 0)
            segments = log.segments[:-1]
        else:
            segments = log.segments
        segment = Segment.create(log.directory, base_offset, log.events.clock.now_ms())
    except OSError as error:
        failed = error.errno not in NO_SPACE_ERRNOS
        if failed:
            log.events.failed(log, error)
        raise LogWriteError(f"{log.name}: cannot roll: {error}", directory_failed=failed) from error
    if log.config.segment_jitter_ms:
        segment.jitter_ms = random.randrange(min(log.config.segment_jitter_ms, log.config.segment_ms))
    old.deactivate()
    log.set_segments([*segments, segment])
    log.rest_at(log.log_end_offset)
    log.events.rolled(log)


# -- truncation and deletion


def truncate_to(log: Log, offset: int) -> bool:
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
    had_producers = bool(log.producers_state.entries)
    # The newest first: a crash in between leaves a shorter log, never one with a hole.
    _discard(log, list(reversed(dropped)))
    active = kept[-1]
    active.truncate_to(offset)
    log.set_segments(kept)
    active.activate()
    log.rest_at(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.truncations += 1
    log.epochs.truncate_from_end(offset)
    _drop_snapshots(log, lambda snapshot: snapshot > offset)
    if had_producers:
        producer_replay.rebuild(log, offset)
    log.set_high_watermark(min(log.high_watermark, offset))
    log.events.truncated(log)
    return True


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    log.write_staged()
    _discard(log, list(reversed(log.segments)))
    _drop_snapshots(log, lambda _: True)
    log.producers_state.clear()
    log.epochs.clear()
    log.truncations += 1
    begin(log, offset)
    log.events.truncated(log)
    log.events.log_start_raised(log)


def delete_oldest(log: Log, count: int) -> int:
    """Delete the first `count` segments and raise the log start to what is left; bytes that went."""
    doomed = log.segments[:count]
    if not doomed:
        return 0
    if count == len(log.segments):
        roll(log, log.log_end_offset)
    freed = sum(segment.size for segment in doomed)
    log.set_segments(log.segments[len(doomed) :])
    _discard(log, doomed)
    bases = {segment.base_offset for segment in doomed}
    _drop_snapshots(log, lambda snapshot: snapshot in bases)
    start = log.segments[0].base_offset
    if start > log.log_start_offset:
        log.log_start_offset = start
        log.epochs.truncate_from_start(start)
        log.set_high_watermark(max(log.high_watermark, start))
        log.events.log_start_raised(log)
    return freed


def _discard(log: Log, segments: Sequence[Segment]) -> None:
    paths: list[Path] = []
    for segment in segments:
        paths += segment.rename_deleted()
    log.events.discard(paths, log.config.file_delete_delay_ms)


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
        self._epochs = log.epochs.entries() if log.epochs.dirty else None
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
                write_epochs(log.directory / LEADER_EPOCH_CHECKPOINT, self._epochs)
            fsync_directory(log.directory)
            if log.recovery_point == 0:
                fsync_directory(log.directory.parent)  # the folder itself may be new
        except OSError:
            if not log.directory.exists():  # the topic was deleted meanwhile
                return
            if self._epochs is not None:
                log.epochs.dirty = True
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
