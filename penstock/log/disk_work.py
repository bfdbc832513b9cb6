"""Work for the disk that the loop does not wait for: in a few threads, now, later, or at the next tick."""

from __future__ import annotations

import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.clock import Clock
from penstock.log import maintenance
from penstock.log.files import NO_SPACE_ERRNOS, fsync_directory, unlink_all
from penstock.log.results import LogWriteError

if TYPE_CHECKING:
    from penstock.log.log import Log

logger = logging.getLogger(__name__)

THREADS: Final = 16  # they wait for the disk, and syncs that wait together share one commit of its journal


class DiskWork:
    """Asked by the loop only. `fail` hears on the loop which log directory had an error, at the next tick."""

    def __init__(self, clock: Clock, fail: Callable[[Path, OSError], None]) -> None:
        self._clock = clock
        self._fail = fail
        self.threads: ThreadPoolExecutor | None = None
        self._doomed: deque[tuple[int, Path]] = deque()
        self._faults: deque[tuple[Path, OSError]] = deque()
        self._flushing: set[Log] = set()
        self._renamed_in: set[Path] = set()

    def start(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-log")

    def stop(self, wait: bool = True) -> None:
        """From now on work is done at once."""
        if self.threads is not None:
            self.threads.shutdown(wait=wait)
            self.threads = None

    def run(self, directory: Path, work: Callable[[], None]) -> None:
        """In the background; an OSError there fails the directory at the next tick."""

        def guarded() -> None:
            try:
                work()
            except OSError as error:
                self._faults.append((directory, error))
            except Exception:
                logger.exception("directory=%s background work failed", directory)

        if self.threads is not None:
            self.threads.submit(guarded)
        else:
            guarded()

    def flush(self, log: Log) -> None:
        """fsync a log without blocking the loop; one at a time for each."""
        if log in self._flushing:
            return
        try:
            job = maintenance.begin_flush(log)
        except LogWriteError:
            return  # whoever appended hears of it
        except OSError as error:
            if error.errno not in NO_SPACE_ERRNOS:
                self._fail(log.directory.parent, error)
            return
        if job is None:
            return
        self._flushing.add(log)

        def run() -> None:
            try:
                job.run()
            finally:
                self._flushing.discard(log)

        self.run(log.directory.parent, run)

    def unlink_later(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Files and folders that have been renamed out of the way."""
        due = self._clock.now_ms() + delay_ms
        self._doomed.extend((due, path) for path in paths)

    def sync_names_later(self, directory: Path) -> None:
        """At the next tick, once for all that is renamed in it until then."""
        self._renamed_in.add(directory)

    def tick(self) -> None:
        """Unlink and sync what is due, tell what went wrong in threads."""
        while self._faults:
            self._fail(*self._faults.popleft())
        while self._renamed_in:
            directory = self._renamed_in.pop()
            self.run(directory, partial(fsync_directory, directory))
        now_ms = self._clock.now_ms()
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        if due:
            self._doomed = deque(entry for entry in self._doomed if entry[0] > now_ms)
            self.run(due[0], partial(_remove, due))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                unlink_all([path])
        except OSError as error:  # it is out of use: the next start finds it and tries again
            logger.warning("path=%s is not unlinked: %s", path, error)
