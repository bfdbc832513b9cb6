"""Compaction, the broker's side: which log next, starting the process, verifying and swapping in what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager


class Cleaner:
    """One compaction at a time."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager

    def tick(self) -> None:
        """Called every second or so."""

    def is_busy_with(self, log: Log) -> bool:
        return False

    def forget(self, log: Log) -> None:
        """The log is going away."""

    def stop(self) -> None:
        """End a running compaction; what it wrote so far is dropped at the next start."""
