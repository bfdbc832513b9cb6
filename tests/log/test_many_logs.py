"""Thousands of logs at once: what each of them costs the disk, and that none of it holds up the loop."""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig, Settings
from penstock.cluster.image import ImageDelta, MetadataImage, PartitionRegistration, TopicImage
from penstock.log import disk
from penstock.log.log import Log
from penstock.log.log_folders import WantedLog
from penstock.log.log_manager import LogManager
from penstock.log.results import LogWriteError
from penstock.replication.replica_manager import ReplicaManager
from penstock.testing.log_tools import append, commit_all, put, read_all, reload

MakeLog = Callable[..., Log]
TOPIC_ID = uuid.UUID(int=77)
MANY = 100


def started(tmp_path: Path, clock: ManualClock) -> LogManager:
    manager = LogManager([tmp_path / "a"], lambda topic: LogConfig(file_delete_delay_ms=0), clock, node_id=1)
    manager.start()
    return manager


def begin_many(manager: LogManager) -> None:
    wanted = [WantedLog("t", partition, TOPIC_ID, LogConfig(file_delete_delay_ms=0)) for partition in range(MANY)]
    asyncio.run(manager.begin_in_threads(wanted))


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class Syncs:
    """Counts fsync calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(disk, "fsync", self._sync)

    def _sync(self, fd: int) -> None:
        self.count += 1


def test_a_new_log_costs_its_folder_and_its_topic_id(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(tmp_path, clock)
    others = {path.name for path in (tmp_path / "a").iterdir()}
    syncs = Syncs(monkeypatch)
    begin_many(manager)
    assert syncs.count == 2 * MANY + 1, "the id and its name; once for all, the folder that holds the new names"
    folders = {path for path in (tmp_path / "a").iterdir() if path.name not in others}
    assert len(folders) == MANY, "no checkpoint was written"
    assert {name for folder in folders for name in names_in(folder)} == {"partition.metadata"}

    syncs.count = 0
    manager.stop()
    assert syncs.count <= 20, "what was never written needs no sync"
    again = started(tmp_path, clock)
    assert len(list(again.logs())) == MANY
    assert {log.topic_id for log in again.logs()} == {TOPIC_ID}
    again.stop()


def test_files_come_with_the_first_batch(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=100)
    assert names_in(log.directory) == []
    for number in range(20):  # one wake-up, with entries for the indexes before there are any files
        append(log, (b"k", b"%d" % number * 50))
    commit_all(log)
    suffixes = {Path(name).suffix for name in names_in(log.directory)}
    assert suffixes == {".log", ".index", ".timeindex"}
    log.flush()
    assert (log.directory / f"{0:020d}.index").stat().st_size > 0
    again = reload(log, clean=True)
    assert len(read_all(again)) == 20
    assert put(again, (b"k", b"after")) == 20


def test_an_empty_log_survives_any_stop(make_log: MakeLog) -> None:
    log = make_log()
    for clean in (True, False):
        again = reload(log, clean=clean)
        assert (again.log_start_offset, again.log_end_offset) == (0, 0)
        assert again.read_bytes(0, 1000) == b""
        assert not again.truncate_to(0)
    assert put(again, (b"k", b"v")) == 0


def test_no_descriptor_left_for_the_first_batch(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log()

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    append(log, (b"k", b"lost"))
    with monkeypatch.context() as patch, pytest.raises(LogWriteError) as failure:
        patch.setattr(disk, "open", refuse)
        log.write_staged()
    assert not failure.value.directory_failed, "that passes, nothing is broken"
    assert put(log, (b"k", b"kept")) == 0
    assert [record.value for record in read_all(log)] == [b"kept"]


def test_deleting_many_syncs_their_folder_once(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(tmp_path, clock)
    begin_many(manager)
    syncs = Syncs(monkeypatch)
    for partition in range(MANY):
        manager.delete("t", partition)
    assert syncs.count == 0, "the loop waits for no disk"
    manager.tick()
    manager.tick()
    manager.stop(clean=False)  # waits for the threads
    assert syncs.count == 1
    assert not [path for path in (tmp_path / "a").iterdir() if path.is_dir()]


def test_a_topic_of_many_partitions_goes_a_few_at_a_time(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    replicas = ReplicaManager(1, Settings.load(None, {}), clock, manager, asyncio.new_event_loop())
    partitions = {index: PartitionRegistration((1,), (1,), 1, 0, 0) for index in range(MANY)}
    created = ImageDelta(1, 1, 0, 1, topics_changed={"t": TopicImage("t", TOPIC_ID, partitions)})
    deleted = ImageDelta(1, 1, 1, 2, topics_removed={"t": TOPIC_ID})
    turns_of_others = 0

    async def others() -> None:
        nonlocal turns_of_others
        while True:
            turns_of_others += 1
            await asyncio.sleep(0)

    async def story() -> None:
        nonlocal turns_of_others
        image = MetadataImage().apply(created)
        await replicas.prepare(created, image)
        replicas.apply(created, image)
        assert len(replicas.partitions) == MANY
        bystander = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        turns_of_others = 0
        image = image.apply(deleted)
        await replicas.prepare(deleted, image)
        replicas.apply(deleted, image)
        bystander.cancel()

    asyncio.run(story())
    assert not replicas.partitions and not list(manager.logs())
    assert turns_of_others >= 3
    manager.stop()
