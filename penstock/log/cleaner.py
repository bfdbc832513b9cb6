"""Compaction, the broker's side: which log next, starting the process, verifying and swapping in what it wrote.

One run at a time: choose → a process writes `.cleaned` files → a thread verifies them → the loop swaps them in by
renames (`swap`), so that a crash at any step leaves either the old or the new segments.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.log import checkpoints, swap
from penstock.log.compaction import CompactionSpec, CorruptSource, Output, read_batches
from penstock.log.damage import UNREADABLE
from penstock.log.files import CLEANED_SUFFIX, LOG_SUFFIX, file_name, unlink_all
from penstock.log.txn_index import InvalidTxnIndex

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager

logger = logging.getLogger(__name__)

_SPEC_NAME: Final = "compaction-spec.json.tmp"
_RESULT_NAME: Final = "compaction-result.json.tmp"
_STOP_SECONDS: Final = 5


class Candidate(NamedTuple):
    """A log that could be compacted now."""

    log: Log
    ratio: float
    first_dirty_offset: int
    first_uncleanable_offset: int
    overdue: bool


def first_uncleanable_offset(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """Nothing from here on may be touched: open transactions, the active segment, records that are too young."""
    bound = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for index, segment in enumerate(log.segments[:-1]):
            following = log.segments[index + 1].base_offset
            if following > first_dirty_offset and segment.largest_timestamp() > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    # Only whole segments are rewritten.
    return max((base for base in log.segment_bases if base <= bound), default=log.segment_bases[0])


def assess(log: Log, checkpoint: int | None, now_ms: int) -> Candidate | None:
    """How dirty a log is; None if there is nothing to clean."""
    start = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= start <= log.log_end_offset:
        start = log.log_start_offset
    bound = first_uncleanable_offset(log, start, now_ms)
    clean_bytes = dirty_bytes = 0
    overdue = False
    for index, segment in enumerate(log.segments[:-1]):
        following = log.segments[index + 1].base_offset
        if following <= start:
            clean_bytes += segment.size
            continue
        if segment.base_offset < bound:
            dirty_bytes += segment.size
            first = segment.first_timestamp()
            overdue = overdue or (first >= 0 and now_ms - first > log.config.max_compaction_lag_ms)
    if not dirty_bytes:
        return None
    return Candidate(log, dirty_bytes / (clean_bytes + dirty_bytes), start, bound, overdue)


def build_spec(candidate: Candidate, now_ms: int, map_bytes: int, bytes_per_second: float) -> CompactionSpec:
    """Everything the process needs to know."""
    log = candidate.log
    segments = [segment for segment in log.segments if segment.base_offset < candidate.first_uncleanable_offset]
    aborted = [
        list(entry) for segment in log.segments if segment.txn_index.exists for entry in segment.txn_index.entries()
    ]
    return CompactionSpec(
        directory=str(log.directory),
        bases=[segment.base_offset for segment in segments],
        sizes=[segment.size for segment in segments],
        first_dirty_offset=candidate.first_dirty_offset,
        first_uncleanable_offset=candidate.first_uncleanable_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=map_bytes,
        io_max_bytes_per_second=bytes_per_second,
        aborted=aborted,
        producers={str(entry.producer_id): [entry.last_data_offset, entry.epoch] for entry in log.producers()},
    )


def verify(directory: Path, outputs: list[Output]) -> None:
    """Read back what the process wrote: right sizes, sound batches, rising offsets. CorruptSource if not."""
    for output in outputs:
        path = directory / (file_name(output.base_offset, LOG_SUFFIX) + CLEANED_SUFFIX)
        size = 0
        next_offset = output.base_offset
        for header, data in read_batches(path):
            if header.base_offset < next_offset:
                raise CorruptSource(f"{path}: offset {header.base_offset} behind {next_offset - 1}")
            next_offset = header.next_offset
            size += len(data)
        if size != output.size:
            raise CorruptSource(f"{path}: {size} bytes instead of {output.size}")


class _Run:
    """The compaction that is going on."""

    def __init__(self, log: Log, process: subprocess.Popen[bytes], truncations: int) -> None:
        self.log = log
        self.process = process
        self.truncations = truncations
        self.result: dict[str, Any] | None = None
        self.outputs: list[Output] = []
        self.verified: bool | None = None


class Cleaner:
    """One compaction at a time; `tick` moves it on and never blocks."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._run: _Run | None = None
        self._idle_until_ms = 0
        self._uncleanable: set[Log] = set()

    def tick(self) -> None:
        run = self._run
        if run is None:
            if self._manager.clock.now_ms() >= self._idle_until_ms:
                self._start_next()
            return
        if run.result is None:
            self._collect(run)
        elif run.verified is not None:
            self._finish(run)

    def is_busy_with(self, log: Log) -> bool:
        return self._run is not None and self._run.log is log

    def forget(self, log: Log) -> None:
        """The log is going away."""
        self._uncleanable.discard(log)
        if self.is_busy_with(log):
            self.stop()

    def stop(self) -> None:
        """End a running compaction; what it wrote so far is dropped at the next run or start."""
        run, self._run = self._run, None
        if run is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait(_STOP_SECONDS)
            if run.process.stderr is not None:
                run.process.stderr.close()

    # -- one run

    def candidates(self) -> list[Candidate]:
        """Logs that qualify, the dirtiest first."""
        now_ms = self._manager.clock.now_ms()
        found: list[Candidate] = []
        for log in self._manager.logs():
            if not log.config.cleanup_compact or len(log.segments) < 2 or log in self._uncleanable:
                continue
            directory = self._manager.directory_of(log)
            if directory is None:
                continue
            cleaned_to = directory.checkpoints.read(checkpoints.CLEANER_OFFSETS).get((log.topic, log.partition))
            try:
                candidate = assess(log, cleaned_to, now_ms)
            except UNREADABLE as error:
                self._give_up(log, str(error))
                continue
            if candidate and (candidate.overdue or candidate.ratio > log.config.min_cleanable_dirty_ratio):
                found.append(candidate)
        return sorted(found, key=lambda candidate: (-candidate.ratio, candidate.log.name))

    def _start_next(self) -> None:
        manager = self._manager
        found = self.candidates()
        if not found:
            self._idle_until_ms = manager.clock.now_ms() + manager.settings.cleaner_backoff_ms
            return
        log = found[0].log
        log.write_staged()
        settings = manager.settings
        try:
            spec = build_spec(
                found[0],
                manager.clock.now_ms(),
                settings.cleaner_dedupe_buffer_size,
                settings.cleaner_io_max_bytes_per_second,
            )
            drop_leftovers(log.directory)
            (log.directory / _SPEC_NAME).write_text(json.dumps(asdict(spec)), encoding="utf-8")
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "penstock.log.cleaner_process",
                    str(log.directory / _SPEC_NAME),
                    str(log.directory / _RESULT_NAME),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except InvalidTxnIndex as error:
            self._give_up(log, str(error))
            return
        except OSError as error:
            logger.warning("log=%s compaction could not start: %s", log.name, error)
            self._idle_until_ms = manager.clock.now_ms() + settings.cleaner_backoff_ms
            return
        self._run = _Run(log, process, log.truncations)

    def _collect(self, run: _Run) -> None:
        code = run.process.poll()
        if code is None:
            return
        reason = run.process.stderr.read() if run.process.stderr is not None else b""
        if run.process.stderr is not None:
            run.process.stderr.close()
        if code != 0:
            self._run = None
            self._give_up(run.log, reason.decode(errors="replace").strip() or f"exit code {code}")
            return
        run.result = json.loads((run.log.directory / _RESULT_NAME).read_text(encoding="utf-8"))
        run.outputs = [Output(*fields) for fields in run.result["outputs"]]

        def check() -> None:
            try:
                verify(run.log.directory, run.outputs)
                run.verified = True
            except (CorruptSource, OSError) as error:
                logger.error("log=%s compaction wrote something wrong: %s", run.log.name, error)
                run.verified = False

        self._manager.disk_work.run(run.log.directory.parent, check)

    def _finish(self, run: _Run) -> None:
        self._run = None
        log = run.log
        if not run.verified:
            self._give_up(log, "verification failed")
            return
        present = set(log.segment_bases[:-1])
        if log.truncations != run.truncations or not all(present.issuperset(o.sources) for o in run.outputs):
            drop_leftovers(log.directory)  # retention or a truncation was faster
            return
        try:
            swap.replace_segments(log, run.outputs)
            drop_leftovers(log.directory)
            self._checkpoint(log, run.result["next_dirty_offset"] if run.result else log.log_start_offset)
        except OSError as error:
            self._manager.fail_directory(log.directory.parent, error)

    def _checkpoint(self, log: Log, offset: int) -> None:
        directory = self._manager.directory_of(log)
        if directory is None:
            return
        directory.checkpoints.put(checkpoints.CLEANER_OFFSETS, (log.topic, log.partition), offset)

    def _give_up(self, log: Log, reason: str) -> None:
        """Until a restart, as in Kafka: what cannot be compacted must at least not be tried in a loop."""
        logger.error("log=%s cannot be compacted: %s", log.name, reason)
        self._uncleanable.add(log)
        drop_leftovers(log.directory)


def drop_leftovers(directory: Path) -> None:
    """Files of an earlier run that was not swapped in."""
    doomed = [
        directory / entry.name
        for entry in os.scandir(directory)
        if entry.name.endswith(CLEANED_SUFFIX) or entry.name in (_SPEC_NAME, _RESULT_NAME)
    ]
    unlink_all(doomed)
