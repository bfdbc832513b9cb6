"""The real log under simulated brokers: real managers over real files, on a disk that knows what a power loss takes.

The disk calls of all nodes go through one `PowerDisk`, handed in for the time of the run; each node has a folder of its
own. What the checker sees of a log it reads from the log's files. A kill must leave exactly what was written, and a
power loss everything below the recovery point.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.settings import LogConfig
from penstock.log import disk
from penstock.log.files import LOG_SUFFIX
from penstock.log.log import Log
from penstock.log.log_directory import CLEAN_SHUTDOWN
from penstock.log.log_manager import LogManager, ManagerSettings
from penstock.protocol.batch import InvalidBatch, build_batch, crc_matches, iterate_batches
from penstock.protocol.records import new_record
from penstock.testing.disk.power import PowerDisk
from penstock.testing.simulation.disk import Entry, TopicPartition

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.testing.simulation.invariants import Checker

SEGMENT_BYTES = 2_000


class ClusterDisk(PowerDisk):
    """The disks of all nodes; a full one takes nothing new."""

    def __init__(self) -> None:
        self.full: set[str] = set()
        self._name_of: dict[int, str] = {}
        super().__init__()

    def open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        name = os.path.realpath(path)
        if flags & os.O_CREAT and not os.path.exists(name):  # noqa: PTH110 (a path of thousands)
            self._need_space(name)
        fd = super().open(path, flags, *arguments, **options)
        self._name_of[fd] = name
        return fd

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._need_space(self._name_of[fd])
        return super().pwrite(fd, data, position)

    def mkdir(self, path: Any, *arguments: Any) -> None:
        self._need_space(os.path.realpath(path))
        super().mkdir(path, *arguments)

    def _need_space(self, name: str) -> None:
        if any(name.startswith(root) for root in self.full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class WatchedLog(Log):
    """The real log; the checker hears of what is committed and of what is cut off."""

    checker: Checker
    node_id: int
    # The mark of a log that loads is a memory, and goes down with the end of one that is cut: whether that was right
    # `Checker.truncated` says.
    is_judged = False

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def stored(self) -> StoredFiles:
        return self._stored

    def watch(self, node_id: int, checker: Checker) -> None:
        self.node_id = node_id
        self.checker = checker
        self._stored = StoredFiles(self)

    def set_high_watermark(self, offset: int) -> None:
        old = self.high_watermark
        super().set_high_watermark(offset)
        if self.is_judged:
            self.checker.high_watermark_set(self, old, self.high_watermark)

    def truncate_to(self, offset: int) -> bool:
        with self._cutting():
            return super().truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        with self._cutting():
            super().truncate_fully_and_start_at(offset)

    @contextlib.contextmanager
    def _cutting(self) -> Iterator[None]:
        before = list(self.stored.entries)
        self.is_judged = False
        try:
            yield
        finally:
            self.is_judged = True
        left = set(self.stored.entries)
        self.checker.truncated(self, [entry for entry in before if entry not in left])


class StoredFiles:
    """The batches of a log, read from its files; after the end of its process what they were then."""

    def __init__(self, log: WatchedLog) -> None:
        self._log: WatchedLog | None = log
        self._entries: list[Entry] = []
        self._truncations = -1
        self._written_end = -1
        self.base_offset = 0

    @property
    def entries(self) -> list[Entry]:
        log = self._log
        if log is None:
            return self._entries
        if log.truncations != self._truncations:
            self._truncations, self._written_end = log.truncations, -1
            self._entries = []
        if log.written_end_offset != self._written_end:
            self._read_on(log)
            self._written_end = log.written_end_offset
        return self._entries

    def _read_on(self, log: WatchedLog) -> None:
        self.base_offset = log.segments[0].base_offset
        end = self.end_offset_read
        for number, segment in enumerate(log.segments):
            last = number + 1 == len(log.segments)
            if not segment.size or (not last and log.segments[number + 1].base_offset <= end):
                continue
            data = segment.read_at(0, segment.size)
            self._entries += [entry for entry in entries_in(data) if entry.base_offset >= end]
            end = self.end_offset_read

    @property
    def end_offset_read(self) -> int:
        return self._entries[-1].next_offset if self._entries else self.base_offset

    @property
    def end_offset(self) -> int:
        return self._entries[-1].next_offset if self.entries else self.base_offset

    def freeze(self) -> None:
        assert self.entries is not None
        self._log = None


class WatchedLogs(LogManager):
    """The real manager, with logs that are watched. Work for the disk is done at once."""

    def __init__(self, folder: Path, node_id: int, checker: Checker, clock: Clock) -> None:
        self._checker = checker
        super().__init__(
            [folder],
            lambda topic: LogConfig(segment_bytes=SEGMENT_BYTES),
            clock,
            node_id=node_id,
            cluster_id="simulated",
            settings=ManagerSettings(recovery_threads=1),
        )

    def start(self) -> None:
        super().start()
        self.disk_work.stop()
        for log in self.logs():
            assert isinstance(log, WatchedLog)
            log.is_judged = True

    def new_log(self, folder: Path, topic: str, partition: int, config: LogConfig, topic_id: uuid.UUID | None) -> Log:
        log = WatchedLog(
            folder,
            topic,
            partition,
            config,
            self.events,
            topic_id=topic_id,
            verify_transactions=self.settings.verify_transactions,
        )
        log.watch(self._node_id, self._checker)
        log.is_judged = self._loaded
        return log


class FileDisk:
    """The folder of one node. After a power loss it is another one, with what was left."""

    def __init__(self, node_id: int, home: Path, power: ClusterDisk) -> None:
        self._node_id = node_id
        self._home = home
        self._power = power
        self._lives = 0
        self._folder = home / "0"
        self._logs: WatchedLogs | None = None
        self._checker: Checker | None = None
        self._left: dict[TopicPartition, StoredFiles] = {}
        self.clean_stop: tuple[int, int] | None = None

    @property
    def full(self) -> bool:
        return self._root in self._power.full

    @full.setter
    def full(self, full: bool) -> None:
        (self._power.full.add if full else self._power.full.discard)(self._root)

    @property
    def _root(self) -> str:
        return os.path.realpath(self._home) + "/"

    def open(self, checker: Checker, clock: Clock) -> WatchedLogs:
        self._checker = checker
        logs = WatchedLogs(self._folder, self._node_id, checker, clock)
        logs.start()
        self._logs = logs
        for where, stored in self._left.items():
            log = logs.get(*where)
            if stored.entries:
                checker.demand(log is not None, f"{where} on {self._node_id}: gone after a start")
            if isinstance(log, WatchedLog):
                found = log.stored.entries
                checker.demand(
                    found == stored.entries,
                    f"{where} on {self._node_id}: the start made {_ends(found)} of {_ends(stored.entries)}",
                )
        self._left = {}
        self.clean_stop = logs.clean_stop
        return logs

    def stored(self, where: TopicPartition) -> StoredFiles | None:
        if self._logs is None:
            return self._left.get(where)
        log = self._logs.get(*where)
        return log.stored if isinstance(log, WatchedLog) else None

    def look_after(self, hosted: list[TopicPartition], dice: random.Random) -> None:
        logs = self._logs
        if logs is None:
            return
        logs.tick()
        logs.checkpoint_high_watermarks()
        for where in hosted:
            log = logs.get(*where)
            if log is not None and dice.random() < 0.5:
                logs.disk_work.flush(log)
        logs.checkpoint_recovery_points()

    def kill(self) -> None:
        if self._logs is not None:
            self._forget_process()

    def _forget_process(self) -> None:
        logs, self._logs = self._logs, None
        assert logs is not None
        for log in list(logs.logs()):
            assert isinstance(log, WatchedLog)
            log.stored.freeze()
            self._left[log.where] = log.stored
            log.abandon()
        logs._release()

    def lose_power(self, dice: random.Random) -> list[tuple[TopicPartition, int]]:
        assert self._logs is not None and self._checker is not None
        durable = {(log.topic, log.partition): log.recovery_point for log in self._logs.logs()}
        self._forget_process()
        before, self._left = self._left, {}
        self._lives += 1
        folder, self._folder = self._folder, self._home / str(self._lives)
        self._power.leave(folder, self._folder, random.Random(dice.getrandbits(32)))
        self._power.forget(folder)
        shutil.rmtree(folder)
        self._power.adopt(self._folder)
        lost: list[tuple[TopicPartition, int]] = []
        for where, stored in before.items():
            left = set(_readable(self._folder / f"{where[0]}-{where[1]}"))
            gone = [entry for entry in stored.entries if entry not in left]
            if gone:
                self._checker.demand(
                    gone[0].base_offset >= durable[where],
                    f"{where} on {self._node_id}: {gone[0]} is lost, recovery point {durable[where]}",
                )
                lost.append((where, gone[0].base_offset))
        return lost

    def stop(self, hosted: list[TopicPartition], broker_epochs: tuple[int, int] | None) -> None:
        logs = self._logs
        assert logs is not None
        for log in list(logs.logs()):
            assert isinstance(log, WatchedLog)
            log.stored.freeze()
            self._left[log.where] = log.stored
        logs.stop(broker_epochs=broker_epochs)
        self._logs = None
        self.clean_stop = broker_epochs if (self._folder / CLEAN_SHUTDOWN).exists() else None


def _ends(entries: list[Entry]) -> str:
    return f"{len(entries)} batches up to {entries[-1].next_offset}" if entries else "nothing"


def _readable(folder: Path) -> Iterator[Entry]:
    """What a load may find: whole batches one behind the other, up to the first that is torn."""
    expected = None
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        data = path.read_bytes()
        try:
            for header in iterate_batches(data):
                if not crc_matches(data, header) or (expected is not None and header.base_offset != expected):
                    return
                expected = header.next_offset
                yield _entry(header)
        except InvalidBatch:
            return


def entries_in(data: bytes | memoryview) -> Iterator[Entry]:
    for header in iterate_batches(data):
        yield _entry(header)


def _entry(header: Any) -> Entry:
    """The checksum stands for the content: offset and leader epoch are no part of it."""
    return Entry(
        header.base_offset,
        header.leader_epoch,
        header.producer_id,
        header.base_sequence,
        header.last_offset_delta + 1,
        header.crc,
    )


class FileStorage:
    """Folders of all nodes, removed in the end."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="penstock-simulation-"))
        self._power = ClusterDisk()
        self._handed_in = disk.handed_in(self._power.calls)
        self._handed_in.__enter__()
        self._disks: list[FileDisk] = []

    def new_disk(self, node_id: int) -> FileDisk:
        made = FileDisk(node_id, self._home / str(node_id), self._power)
        self._disks.append(made)
        return made

    def log_config(self, min_insync_replicas: int) -> LogConfig:
        return LogConfig(
            min_insync_replicas=min_insync_replicas,
            segment_bytes=SEGMENT_BYTES,
            index_interval_bytes=300,
            file_delete_delay_ms=500,
        )

    def sealed(self, entry: Entry, now_ms: int) -> tuple[Entry, bytes]:
        value = b"%d" % entry.value
        batch = build_batch(
            [new_record(None, value, now_ms) for _ in range(entry.records)],
            producer_id=entry.producer,
            producer_epoch=0,
            base_sequence=entry.sequence,
        )
        (told,) = entries_in(batch)
        return entry._replace(value=told.value), batch

    def next_sequence(self, entry: Entry) -> int:
        return entry.sequence + entry.records

    def entries_in(self, data: bytes | memoryview) -> Iterator[Entry]:
        return entries_in(data)

    def bytes_of(self, region: Any) -> bytes:
        if region is None or not region.length:
            return b""
        return os.pread(region.file.fd, region.length, region.position)

    def close(self) -> None:
        for made in self._disks:
            made.kill()
        self._handed_in.__exit__(None, None, None)
        shutil.rmtree(self._home, ignore_errors=True)
