"""Logs that are served although their folder is not, or not durably, on the disk: a full one took no new name.

As long as a log is here its broker does not confirm the replica: a kill would leave one that the cluster takes for made
and that is found nowhere, which is what a lost disk looks like.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log.files import fsync_directory

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager


class PromisedLogs:
    """In the order in which they were promised."""

    def __init__(self) -> None:
        self._logs: list[Log] = []

    def __bool__(self) -> bool:
        return bool(self._logs)

    def add(self, *logs: Log) -> None:
        self._logs += logs

    def replicas(self) -> list[tuple[str, int]]:
        return [(log.topic, log.partition) for log in self._logs if not log.abandoned]

    def keep(self, manager: LogManager) -> None:
        """Make what can be made now. One may have been deleted, or got its folder with its first batch; its disk may
        still be full, or have failed."""
        promised, self._logs = self._logs, []
        made: dict[Path, list[Log]] = {}
        refusing: set[Path] = set()
        for log in promised:
            path = log.directory.parent
            if log.abandoned or path not in manager.online:
                continue
            if path not in refusing:
                try:
                    log.active.prepare_folder()
                except OSError as error:
                    manager.fail_directory(path, error)
                    refusing.add(path)
            if path in refusing:
                self._logs.append(log)
            else:
                made.setdefault(path, []).append(log)
        for path, logs in made.items():
            try:
                fsync_directory(path)
            except OSError as error:
                manager.fail_directory(path, error)
                self._logs += logs
