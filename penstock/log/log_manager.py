"""All logs of a broker: loading, finding and deleting, checkpoints, stop. Folders live in `log_directory`, beginnings
in `new_logs`, what is done from time to time in `log_timers`.

Only the loop calls it, except `start` and `stop`, which block. What may block in between (fsync, unlink, checkpoint
files) goes to the threads of `disk_work`.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.base.clock import Clock
from penstock.base.settings import LogConfig, Settings
from penstock.log import checkpoints, log_folders, log_timers, lost_and_found, maintenance
from penstock.log.checkpoints import PartitionOffsets, log_starts_of, offsets_of, write_topic_id
from penstock.log.cleaner import Cleaner
from penstock.log.disk_work import THREADS, DiskWork
from penstock.log.events import LogEvents
from penstock.log.files import NO_SPACE_ERRNOS
from penstock.log.log import Log
from penstock.log.log_directory import LogDirectory
from penstock.log.log_folders import BadLog, WantedLog
from penstock.log.log_timers import BackgroundTask
from penstock.log.manager_settings import ManagerSettings
from penstock.log.new_logs import NewLogs
from penstock.log.results import LogDirectoryFailed, LogWriteError

__all__ = ["BackgroundTask", "LogManager", "ManagerSettings"]

logger = logging.getLogger(__name__)


class _Events(LogEvents):
    """Hands a log's news to its manager."""

    def __init__(self, manager: LogManager) -> None:
        super().__init__(manager.clock)
        self._manager = manager

    def rolled(self, log: Log) -> None:
        self._manager.disk_work.flush(log)

    def truncating(self, log: Log, offset: int) -> None:
        directory = self._manager.directory_of(log)
        if directory is not None and log is self._manager.get(log.topic, log.partition):
            directory.checkpoints.lower((log.topic, log.partition), offset)

    def log_start_raised(self, log: Log) -> None:
        self._manager.log_starts_changed = True
        super().log_start_raised(log)

    def discard(self, paths: Sequence[Path], delay_ms: int) -> None:
        self._manager.disk_work.unlink_later(paths, delay_ms)

    def in_background(self, log: Log, work: Callable[[], None]) -> None:
        self._manager.disk_work.run(log.directory.parent, work)

    def failed(self, log: Log, error: OSError) -> None:
        self._manager.fail_directory(log.directory.parent, error)


class LogManager:
    """Owns every Log of this broker."""

    def __init__(
        self,
        directories: Sequence[Path],
        config_for: Callable[[str], LogConfig],
        clock: Clock,
        *,
        node_id: int,
        cluster_id: str | None = None,
        on_directory_failed: Callable[[Path, list[Log]], None] | None = None,
        settings: Settings | ManagerSettings | None = None,
        holds_replicas: bool = False,
    ) -> None:
        """`config_for(topic)` gives a topic's settings while loading. A broker that `holds_replicas` on record takes no
        folder that has never been its own."""
        self.directories = [Path(directory) for directory in directories]
        self.clock = clock
        self._config_for = config_for
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._holds_replicas = holds_replicas
        self._on_directory_failed = on_directory_failed
        if settings is None:
            settings = ManagerSettings()
        self.settings = settings if isinstance(settings, ManagerSettings) else ManagerSettings.of(settings)
        self.events = _Events(self)
        self.failed_directories: list[Path] = []
        self._why_not: dict[Path, str] = {}
        self.online: dict[Path, LogDirectory] = {}
        self._logs: dict[tuple[str, int], Log] = {}
        self._offline_replicas: dict[tuple[str, int], Path] = {}
        self._bad_logs: dict[tuple[str, int], Path] = {}
        self._new_logs = NewLogs(self)
        self.disk_work = DiskWork(clock, self.fail_directory)
        self.cleaner = Cleaner(self)
        self._loaded = False
        self.log_starts_changed = False

    # -- start and stop

    def start(self) -> None:
        """Lock the folders and load (recover) all logs in threads. Blocking.

        LogDirectoryFailed if no folder is usable; FolderInUse and ForeignFolder stop the broker, as in Kafka.
        """
        self.disk_work.start()
        try:
            for path in self.directories:
                directory = LogDirectory(path)
                try:
                    directory.open(self._node_id, self._cluster_id, may_be_new=not self._holds_replicas)
                except OSError as error:
                    self.fail_directory(path, error)
                    continue
                self.online[path] = directory
            for directory in list(self.online.values()):
                try:
                    self._load(directory)
                except OSError as error:
                    self.fail_directory(directory.path, error)
            if not self.online:
                reasons = "; ".join(self._why_not.values())
                raise LogDirectoryFailed(f"none of the log directories can be used: {reasons}")
        except BaseException:
            self._release()
            raise
        self._loaded = True

    def _load(self, directory: LogDirectory) -> None:
        for log in log_folders.load_all(directory, self.new_log, self._config_for, self.settings.recovery_threads):
            key = (log.topic, log.partition)
            if isinstance(log, BadLog):
                logger.error("log=%s-%d is off line, its files cannot be understood: %s", *key, log.error)
                self._offline_replicas[key] = self._bad_logs[key] = log.folder
                continue
            twin = self._logs.get(key)
            self._logs[key] = log if twin is None else lost_and_found.better_of(self, twin, log)
        directory.checkpoints.retire_all_but(
            (log.topic, log.partition) for log in self._logs.values() if log.directory.parent == directory.path
        )
        for folder in directory.doomed_folders():
            self.disk_work.unlink_later([folder], 0)

    def new_log(self, folder: Path, topic: str, partition: int, config: LogConfig, topic_id: uuid.UUID | None) -> Log:
        """An empty shell over a folder, to be begun or loaded."""
        return Log(
            folder,
            topic,
            partition,
            config,
            self.events,
            topic_id=topic_id,
            verify_transactions=self.settings.verify_transactions,
        )

    @property
    def clean_stop(self) -> tuple[int, int] | None:
        """First and last broker epoch of the process before, if it stopped in peace in every folder that there is."""
        told = {directory.clean_stop for directory in self.online.values()}
        return told.pop() if len(told) == 1 and len(self.online) == len(self.directories) else None

    def stop(self, clean: bool = True, broker_epochs: tuple[int, int] | None = None) -> None:
        """Write, flush, close everything, leave the clean-shutdown marker (with this process's first and last broker
        epoch) and release the locks."""
        self.cleaner.stop()
        self.disk_work.stop()
        for directory in list(self.online.values()):
            try:
                self._close(directory, clean and self._loaded, broker_epochs)
            except (OSError, LogWriteError) as error:
                logger.error("directory=%s not closed cleanly, it will be recovered: %s", directory.path, error)
        self._release()

    def _close(self, directory: LogDirectory, clean: bool, broker_epochs: tuple[int, int] | None) -> None:
        logs = self._logs_in(directory.path)
        with ThreadPoolExecutor(THREADS) as closers:
            list(closers.map(lambda log: maintenance.close(log, clean), logs))
        if clean:
            written = directory.checkpoints
            written.write(checkpoints.RECOVERY_POINTS, offsets_of(logs, lambda log: log.recovery_point))
            written.write(checkpoints.HIGH_WATERMARKS, offsets_of(logs, lambda log: log.high_watermark))
            written.write(checkpoints.LOG_STARTS, log_starts_of(logs))
            directory.mark_clean(broker_epochs)

    def _release(self) -> None:
        for directory in self.online.values():
            directory.unlock()
        self.online.clear()
        self._logs.clear()
        self.disk_work.stop(wait=False)

    # -- logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The replica's log if it is here and on line."""
        return self._logs.get((topic, partition))

    def get_or_create(self, topic: str, partition: int, topic_id: uuid.UUID | None, config: LogConfig) -> Log:
        """Find or begin the log. LogDirectoryFailed if its folder is off line, or none is left."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            if log.topic_id is None and topic_id is not None:
                self._name_topic(log, topic_id)
            log.update_config(config)
            return log
        bad = self._bad_logs.get(key)
        if bad is not None and log_folders.belongs_to_another(bad, topic_id):
            del self._bad_logs[key], self._offline_replicas[key]
        if key in self._offline_replicas:
            raise LogDirectoryFailed(f"{topic}-{partition} lies in {self._offline_replicas[key]}, which is off line")
        return self._new_logs.begin(WantedLog(topic, partition, topic_id, config))

    async def begin_in_threads(self, wanted: list[WantedLog]) -> None:
        """Begin logs without holding up the loop; `get_or_create` finds them. What fails it tries again, and tells."""
        missing = [one for one in wanted if (one.topic, one.partition) not in self._logs]
        missing = [one for one in missing if (one.topic, one.partition) not in self._offline_replicas]
        await self._new_logs.begin_in_threads(missing)

    def take(self, log: Log) -> None:
        """A log has begun here."""
        self._logs[(log.topic, log.partition)] = log

    def unmade_replicas(self) -> list[tuple[str, int]]:
        """Replicas that are served and could not be found after a crash: their folders are not durable yet."""
        return self._new_logs.promised.replicas()

    def _name_topic(self, log: Log, topic_id: uuid.UUID) -> None:
        try:
            write_topic_id(log.directory, topic_id)
        except OSError as error:
            self.fail_directory(log.directory.parent, error)
            raise LogDirectoryFailed(str(error)) from error
        log.topic_id = topic_id

    def delete(self, topic: str, partition: int) -> None:
        """Rename the folder away now, unlink later in a thread."""
        gone = self._let_go(topic, partition, LogDirectory.rename_for_deletion)
        if gone is not None:
            log, doomed = gone
            self.disk_work.unlink_later([doomed], log.config.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the folder so that nobody loads it, and keep it for a while: nothing proves that it may go."""
        gone = self._let_go(topic, partition, LogDirectory.set_aside)
        if gone is not None:
            log, kept = gone
            logger.error("log=%s (topic id %s) is unknown to the cluster: kept as %s", log.name, log.topic_id, kept)

    def _let_go(
        self, topic: str, partition: int, rename: Callable[[LogDirectory, Path], Path]
    ) -> tuple[Log, Path] | None:
        """The log that was here and the new name of its folder, if it had one."""
        self._offline_replicas.pop((topic, partition), None)
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return None
        self.cleaner.forget(log)
        log.abandon()
        directory = self.online[log.directory.parent]
        directory.checkpoints.retire([(topic, partition)])
        if log.active.prepare is not None:
            return None  # it never had a folder
        try:
            renamed = rename(directory, log.directory)
        except OSError as error:
            self.fail_directory(directory.path, error)
            return None
        # Synced at the next tick, once for all that go together. If a crash comes first, topic ids tell at the next
        # start which of the old names stand for nothing.
        self.disk_work.sync_names_later(directory.path)
        return log, renamed

    def replace(self, old: Log, new: Log) -> None:
        """A replica has moved to another folder: its old one goes."""
        self.delete(old.topic, old.partition)
        self._logs[(new.topic, new.partition)] = new

    def logs(self) -> Collection[Log]:
        """Every log on line."""
        return self._logs.values()

    def _logs_in(self, path: Path) -> list[Log]:
        if len(self.online) == 1 and path in self.online:  # the usual case: no need to look at thousands
            return list(self._logs.values())
        return [log for log in self._logs.values() if log.directory.parent == path]

    def directory_of(self, log: Log) -> LogDirectory | None:
        return self.online.get(log.directory.parent)

    def write_all_staged(self) -> list[tuple[Log, LogWriteError]]:
        """End of a wake-up: write every log that has something staged; those that failed, with why."""
        failures: list[tuple[Log, LogWriteError]] = []
        staged = self.events.staged
        while staged:
            log = next(iter(staged))
            try:
                log.write_staged()
            except LogWriteError as error:
                failures.append((log, error))
            staged.pop(log, None)
        return failures

    # -- failures

    def fail_directory(self, path: Path, error: OSError) -> None:
        """Take one folder and its replicas off line; the others go on."""
        if path in self.failed_directories:
            return
        if self._loaded and error.errno in NO_SPACE_ERRNOS:
            # A full disk is not a broken one: what failed now (a checkpoint, a roll) is tried again.
            logger.warning("directory=%s has no space: %s", path, error)
            return
        if self._loaded and error.errno == errno.ENAMETOOLONG:
            logger.error("directory=%s takes no such name: %s", path, error)
            return
        logger.error("directory=%s failed, its partitions are off line: %s", path, error)
        self.failed_directories.append(path)
        self._why_not[path] = str(error)
        directory = self.online.pop(path, None)
        lost = self._logs_in(path)
        for log in lost:
            del self._logs[(log.topic, log.partition)]
            self._offline_replicas[(log.topic, log.partition)] = path
            self.cleaner.forget(log)
        if directory is not None:
            directory.unlock()
        if self._on_directory_failed is not None:
            self._on_directory_failed(path, lost)

    @property
    def loss_is_accepted(self) -> bool:
        """The operator's word for replicas that are found nowhere."""
        return lost_and_found.is_loss_accepted(self)

    def losses_made_good(self) -> bool:
        """Nothing is missing (any more). False while a log waits for space: without a folder it is missing again."""
        promised = self._new_logs.promised
        if not promised:
            lost_and_found.forget_acceptance(self)
        return not promised

    # -- timers

    def background_tasks(self) -> list[BackgroundTask]:
        """Retention, flush, checkpoints, producer expiry, unlinking, compaction."""
        return log_timers.background_tasks(self)

    def tick(self) -> None:
        """Every second: keep deleted records deleted, give logs their folders, and what the threads have to do and to
        tell."""
        if self._new_logs.promised:
            self._new_logs.promised.keep(self)
        if self.log_starts_changed:
            self.checkpoint_log_starts()
        self.disk_work.tick()

    # -- checkpoints

    def checkpoint_recovery_points(self) -> None:
        for directory in list(self.online.values()):
            logs = self._logs_in(directory.path)
            self._checkpoint(directory, checkpoints.RECOVERY_POINTS, offsets_of(logs, lambda log: log.recovery_point))

    def checkpoint_log_starts(self) -> None:
        self.log_starts_changed = False
        for directory in list(self.online.values()):
            self._checkpoint(directory, checkpoints.LOG_STARTS, log_starts_of(self._logs_in(directory.path)))

    def checkpoint_high_watermarks(self) -> None:
        for directory in list(self.online.values()):
            logs = self._logs_in(directory.path)
            self._checkpoint(directory, checkpoints.HIGH_WATERMARKS, offsets_of(logs, lambda log: log.high_watermark))

    def _checkpoint(self, directory: LogDirectory, name: str, offsets: PartitionOffsets) -> None:
        self.disk_work.run(directory.path, directory.checkpoints.prepare(name, offsets))
