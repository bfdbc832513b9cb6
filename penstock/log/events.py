"""What a log tells its manager. The defaults serve a log that stands alone (tools, tests)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import Clock, SystemClock
from penstock.log.files import unlink_all

if TYPE_CHECKING:
    from penstock.log.log import Log


class LogEvents:
    """`staged` collects the logs that have something to write at the end of this wake-up."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.staged: dict[Log, None] = {}

    def rolled(self, log: Log) -> None:
        """A new segment was begun; the old one wants to be synced."""

    def truncating(self, log: Log, offset: int) -> None:
        """Everything from there on is about to go: no checkpoint may stay ahead. OSError keeps the log as it is."""

    def log_start_raised(self, log: Log) -> None:
        """The log start offset rose."""
        if log.on_history_changed is not None:
            log.on_history_changed()

    def discard(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Files renamed out of the way, to be unlinked after the delay."""
        unlink_all(paths)

    def in_background(self, log: Log, work: Callable[[], None]) -> None:
        """Something for the disk that nobody waits for."""
        work()

    def failed(self, log: Log, error: OSError) -> None:
        """The disk refused for another reason than space: the folder is lost."""
