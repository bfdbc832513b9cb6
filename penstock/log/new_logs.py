"""How a broker begins the logs that it does not have yet: which directory takes them, one by one or many in threads,
and what is served on a promise while a full disk takes no new name. The manager keeps the logs; it is told of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log import log_folders
from penstock.log.files import fsync_directory
from penstock.log.log_folders import WantedLog
from penstock.log.promised_logs import PromisedLogs
from penstock.log.results import LogDirectoryFailed

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.log_manager import LogManager

logger = logging.getLogger(__name__)

_BEGINNERS = 4  # threads for new logs: more would keep the processors from the loop


class NewLogs:
    """Begins logs for its manager, and knows those that a crash might take."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self.promised = PromisedLogs()

    def begin(self, wanted: WantedLog) -> Log:
        """In the directory on line that holds the fewest; on a promise if all that are left are full.

        LogDirectoryFailed if none is left, or the one that took it has failed meanwhile.
        """
        manager = self._manager
        name = f"{wanted.topic}-{wanted.partition}"
        filled = self._filled()
        full: list[Path] = []
        for path in sorted(filled, key=lambda path: (filled[path], str(path))):
            try:
                log = log_folders.begin(manager.online[path], wanted, manager.new_log)
            except OSError as error:
                manager.fail_directory(path, error)
                if path in manager.online:
                    full.append(path)
                continue
            manager.take(log)
            try:
                fsync_directory(path)
            except OSError as error:
                self._not_durable(path, [log], error)
            if manager.get(wanted.topic, wanted.partition) is None:
                raise LogDirectoryFailed(f"{name} lies in {path}, which has failed")
            return log
        for path in full:
            if not (path / name).exists():
                log = log_folders.promise(manager.online[path], wanted, manager.new_log)
                manager.take(log)
                self.promised.add(log)
                return log
        raise LogDirectoryFailed(f"no log directory is left for {name}")

    async def begin_in_threads(self, wanted: list[WantedLog]) -> None:
        """Begin logs without holding up the loop. What fails is left to `begin`, which tells."""
        manager = self._manager
        threads = manager.disk_work.threads
        if not wanted or not manager.online or threads is None:
            return
        placed = [(manager.online[path], one) for path, one in log_folders.spread(wanted, self._filled())]
        loop = asyncio.get_running_loop()
        shares = [placed[first::_BEGINNERS] for first in range(min(_BEGINNERS, len(placed)))]
        begun = await asyncio.gather(
            *(loop.run_in_executor(threads, log_folders.begin_each, share, manager.new_log) for share in shares)
        )
        made: dict[Path, list[Log]] = {}
        for (directory, one), log in (outcome for share in begun for outcome in share):
            path = directory.path
            if isinstance(log, OSError):
                manager.fail_directory(path, log)
            elif isinstance(log, Exception):
                logger.error("log=%s-%d could not be begun", one.topic, one.partition, exc_info=log)
            elif path in manager.online:
                if manager.get(one.topic, one.partition) is None:
                    manager.take(log)
                made.setdefault(path, []).append(log)
        for path, logs in made.items():
            try:
                await loop.run_in_executor(threads, fsync_directory, path)
            except OSError as error:
                self._not_durable(path, logs, error)

    def _not_durable(self, path: Path, logs: list[Log], error: OSError) -> None:
        """The folders of these logs are made, but a power loss might take them."""
        self._manager.fail_directory(path, error)
        self.promised.add(*logs)

    def _filled(self) -> dict[Path, int]:
        """How many logs lie in each directory."""
        online, logs = self._manager.online, self._manager.logs()
        if len(online) == 1:  # the usual case; counting for each of thousands of new logs would be quadratic
            return dict.fromkeys(online, len(logs))
        return dict.fromkeys(online, 0) | Counter(log.directory.parent for log in logs)
