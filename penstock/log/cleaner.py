"""Compaction, the broker's side: which log next, starting the process, verifying and swapping in what it wrote.

One run at a time: choose → a process writes `.cleaned` files → a thread verifies them → the loop swaps them in by
renames (`swap`), so that a crash at any step leaves either the old or the new segments.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.log import checkpoints, swap
from penstock.log.cleaner_process import SOURCE_IS_CORRUPT
from penstock.log.compaction import CompactionSpec, CorruptSource, Output, read_batches
from penstock.log.damage import BAD_BYTES
from penstock.log.files import CLEANED_SUFFIX, LOG_SUFFIX, file_name, unlink_all, write_file
from penstock.log.results import LogWriteError
from penstock.log.txn_index import InvalidTxnIndex

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager

logger = logging.getLogger(__name__)

_SPEC_NAME: Final = "compaction-spec.json.tmp"
_RESULT_NAME: Final = "compaction-result.json.tmp"
_LOCK_NAME: Final = ".compaction-lock"
_STOP_SECONDS: Final = 5
_LATEST_RETRY_MS: Final = 300_000


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
        self.verified: bool | OSError | None = None

    def end(self) -> bytes:
        """Kill it if it runs; what it complained of."""
        process = self.process
        if process.poll() is None:
            process.kill()
        _, complaint = process.communicate(timeout=_STOP_SECONDS)
        return complaint or b""


class Cleaner:
    """One compaction at a time; `tick` moves it on and never blocks. Its process is begun by `command`."""

    command: tuple[str, ...] = (sys.executable, "-m", "penstock.log.cleaner_process")

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._run: _Run | None = None
        self._idle_until_ms = 0
        self._failures = 0
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

    @property
    def is_running(self) -> bool:
        return self._run is not None

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
        if run is not None:
            run.end()

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
            except BAD_BYTES as error:
                self._give_up(log, str(error))
                continue
            except OSError as error:
                log.damage.tell(log.log_start_offset, error)
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
        settings = manager.settings
        try:
            log.write_staged()
            spec = build_spec(
                found[0],
                manager.clock.now_ms(),
                settings.cleaner_dedupe_buffer_size,
                settings.cleaner_io_max_bytes_per_second,
            )
            process = self._start_process(log, spec)
        except InvalidTxnIndex as error:
            self._give_up(log, str(error))
        except (OSError, LogWriteError) as error:
            self._try_later(log, f"could not start: {error}")
        else:
            self._run = _Run(log, process, log.truncations)

    def _start_process(self, log: Log, spec: CompactionSpec) -> subprocess.Popen[bytes]:
        """It ends with its broker, which is the other end of its standard input. Should it still live for a moment when
        the next broker begins a run, the lock that it has inherited keeps their files apart."""
        lock = os.open(log.directory.parent / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            drop_leftovers(log.directory)
            write_file(log.directory / _SPEC_NAME, json.dumps(asdict(spec)).encode(), durable=False)
            return subprocess.Popen(
                [*self.command, str(log.directory / _SPEC_NAME), str(log.directory / _RESULT_NAME)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=[lock],
            )
        finally:
            os.close(lock)

    def _collect(self, run: _Run) -> None:
        code = run.process.poll()
        if code is None:
            return
        complaint = run.end().decode(errors="replace").strip()
        if code:
            self._run = None
            if code == SOURCE_IS_CORRUPT:
                self._give_up(run.log, complaint)
            else:
                self._try_later(run.log, complaint or f"exit code {code}")
            return
        try:
            run.result = json.loads((run.log.directory / _RESULT_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._run = None
            self._try_later(run.log, f"its result is not readable: {error}")
            return
        assert run.result is not None
        run.outputs = [Output(*fields) for fields in run.result["outputs"]]

        def check() -> None:
            try:
                verify(run.log.directory, run.outputs)
                run.verified = True
            except CorruptSource as error:
                logger.error("log=%s compaction wrote something wrong: %s", run.log.name, error)
                run.verified = False
            except OSError as error:
                run.verified = error

        self._manager.disk_work.run(run.log.directory.parent, check)

    def _finish(self, run: _Run) -> None:
        self._run = None
        log = run.log
        if isinstance(run.verified, OSError):
            self._try_later(log, str(run.verified))
            return
        if not run.verified:
            self._give_up(log, "verification failed")
            return
        present = set(log.segment_bases[:-1])
        if log.truncations != run.truncations or not all(present.issuperset(o.sources) for o in run.outputs):
            self._drop_leftovers(log)  # retention or a truncation was faster
            return
        try:
            swap.replace_segments(log, run.outputs)
            drop_leftovers(log.directory)
            self._checkpoint(log, run.result["next_dirty_offset"] if run.result else log.log_start_offset)
        except LogWriteError:
            return  # its directory has failed, which was said
        except OSError as error:
            self._manager.fail_directory(log.directory.parent, error)
            self._try_later(log, str(error))
        else:
            self._failures = 0

    def _checkpoint(self, log: Log, offset: int) -> None:
        directory = self._manager.directory_of(log)
        if directory is None:
            return
        directory.checkpoints.put(checkpoints.CLEANER_OFFSETS, (log.topic, log.partition), offset)

    def _give_up(self, log: Log, reason: str) -> None:
        """Until a restart, as in Kafka: what cannot be compacted must at least not be tried in a loop."""
        logger.error("log=%s cannot be compacted: %s", log.name, reason)
        self._uncleanable.add(log)
        self._drop_leftovers(log)

    def _try_later(self, log: Log, reason: str) -> None:
        """Nothing is wrong with the log: no space, no memory, a process that was killed. Later each time."""
        settings = self._manager.settings
        wait_ms = min(max(settings.cleaner_backoff_ms, 1) << min(self._failures, 10), _LATEST_RETRY_MS)
        self._failures += 1
        logger.warning("log=%s was not compacted, next try in %d ms: %s", log.name, wait_ms, reason)
        self._idle_until_ms = self._manager.clock.now_ms() + wait_ms
        self._drop_leftovers(log)

    def _drop_leftovers(self, log: Log) -> None:
        try:
            drop_leftovers(log.directory)
        except OSError as error:  # the next run drops them before it begins, or a start does
            logger.warning("log=%s leftovers of a compaction stay: %s", log.name, error)


def drop_leftovers(directory: Path) -> None:
    """Files of an earlier run that was not swapped in."""
    doomed = [
        directory / entry.name
        for entry in os.scandir(directory)
        if entry.name.endswith(CLEANED_SUFFIX) or entry.name in (_SPEC_NAME, _RESULT_NAME)
    ]
    unlink_all(doomed)
