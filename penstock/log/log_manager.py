"""All logs of a broker: directories and their locks, loading, creating and deleting, checkpoints, timers, stop."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.clock import Clock
from penstock.log.log import Log
from penstock.log.results import LogWriteError

if TYPE_CHECKING:
    from penstock.base.settings import LogConfig


class BackgroundTask(NamedTuple):
    """A plain function that the broker's loop calls every `interval_ms`; what may block it hands to threads itself."""

    name: str
    interval_ms: int
    run: Callable[[], None]


class LogManager:
    """Owns every Log of this broker. Only the loop calls it, except `start` and `stop`, which block."""

    def __init__(
        self,
        directories: Sequence[Path],
        config_for: Callable[[str], LogConfig],
        clock: Clock,
        *,
        node_id: int,
        cluster_id: str | None = None,
        on_directory_failed: Callable[[Path, list[Log]], None] | None = None,
    ) -> None:
        """`config_for(topic)` gives a topic's settings while loading; settings of the broker come with `start`."""
        raise NotImplementedError

    def start(self) -> None:
        """Lock the folders and load (recover) all logs in threads. Blocking; LogDirectoryFailed if none is usable."""
        raise NotImplementedError

    def stop(self, clean: bool = True) -> None:
        """Write, flush, close everything, leave the clean-shutdown marker and release the locks."""
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> Log | None:
        """The replica's log if it is here and on line."""
        raise NotImplementedError

    def get_or_create(self, topic: str, partition: int, topic_id: uuid.UUID | None, config: LogConfig) -> Log:
        """Find or begin the log (in the least filled folder on line). LogDirectoryFailed if its folder is off line."""
        raise NotImplementedError

    def delete(self, topic: str, partition: int) -> None:
        """Rename the folder away now, unlink later in a thread."""
        raise NotImplementedError

    def logs(self) -> Iterable[Log]:
        """Every log on line."""
        raise NotImplementedError

    def write_all_staged(self) -> list[tuple[Log, LogWriteError]]:
        """End of a wake-up: write every log that has something staged; those that failed, with why."""
        raise NotImplementedError

    def background_tasks(self) -> list[BackgroundTask]:
        """Retention, flush, checkpoints, producer expiry, unlinking, compaction."""
        raise NotImplementedError
