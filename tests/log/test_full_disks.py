"""Disks that are full for a while, names that are too long, processes that are killed: nothing needs a restart."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log import disk, future_log
from penstock.log.log import Log
from penstock.log.log_folders import WantedLog
from penstock.log.log_manager import LogManager, ManagerSettings
from penstock.log.results import LogDirectoryFailed, LogWriteError
from penstock.testing.log_tools import append, commit_all, put, read_all

COMPACTED = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=4000, file_delete_delay_ms=0)


@pytest.fixture
def manager(tmp_path: Path, clock: ManualClock) -> Iterator[LogManager]:
    running = LogManager(
        [tmp_path / "a", tmp_path / "b"],
        lambda topic: LogConfig(),
        clock,
        node_id=1,
        settings=ManagerSettings(cleaner_backoff_ms=1000, cleaner_io_max_bytes_per_second=10_000_000),
    )
    running.start()
    yield running
    running.stop()


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["mkdir", "replace"])
def test_a_topic_made_on_a_full_disk_lives_as_soon_as_there_is_space(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whether the folder or the topic id in it was what found no room."""
    topic_id = uuid.UUID(int=5)
    with monkeypatch.context() as patch:
        patch.setattr(disk, call, refuse)
        log = manager.get_or_create("t", 0, topic_id, LogConfig())
        log.assign_epoch_start(3, 0)
        for _ in range(2):
            append(log, (b"k", b"v"), epoch=3)
            with pytest.raises(LogWriteError) as caught:
                log.write_staged()
            assert not caught.value.directory_failed
        manager.tick()
        assert not log.directory.exists()
    assert manager.failed_directories == []
    assert put(log, (b"k", b"v"), epoch=3) == 0
    assert (log.directory / "partition.metadata").exists()
    log.flush()
    assert (log.directory / "leader-epoch-checkpoint").exists()
    idle = manager.get_or_create("idle", 0, topic_id, LogConfig())
    manager.delete("idle", 0)
    assert not idle.directory.exists()


def test_a_folder_that_had_no_room_is_made_at_a_tick_and_a_deleted_one_is_not(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(disk, "mkdir", refuse)
        kept = manager.get_or_create("kept", 0, uuid.UUID(int=1), LogConfig())
        gone = manager.get_or_create("gone", 0, uuid.UUID(int=2), LogConfig())
    manager.delete("gone", 0)
    manager.tick()
    assert kept.directory.exists()
    assert not gone.directory.exists()
    assert manager.failed_directories == []


def test_a_new_replica_is_unmade_until_its_folder_outlives_a_power_loss(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, refusing = disk.fsync, ["mkdir", "fsync"]

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if "fsync" in refusing and path in manager.directories:
            refuse()
        synced.append(str(path))
        fsync(fd)

    monkeypatch.setattr(disk, "fsync", sync)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "mkdir", refuse)
        log = manager.get_or_create("t", 0, uuid.UUID(int=5), LogConfig())
        assert manager.unmade_replicas() == [("t", 0)]
    manager.tick()
    assert log.directory.exists() and manager.unmade_replicas() == [("t", 0)], "a power loss might take it"
    begun = asyncio.run(begin(manager, "u"))
    assert manager.get("u", 0) is begun and ("u", 0) in manager.unmade_replicas()
    refusing.clear()
    manager.tick()
    assert manager.unmade_replicas() == [] and str(log.directory.parent) in synced
    synced.clear()
    later = asyncio.run(begin(manager, "later"))
    assert manager.unmade_replicas() == [] and str(later.directory.parent) in synced
    assert manager.failed_directories == []


async def begin(manager: LogManager, topic: str) -> Log:
    await manager.begin_in_threads([WantedLog(topic, 0, uuid.UUID(int=6), LogConfig())])
    log = manager.get(topic, 0)
    assert log is not None
    return log


def test_the_longest_name_can_move_and_a_name_that_is_too_long_breaks_no_disk(manager: LogManager) -> None:
    log = manager.get_or_create("n" * 249, 0, uuid.UUID(int=1), LogConfig())
    put(log, (b"k", b"v"))
    other = next(path for path in manager.directories if path != log.directory.parent)
    future = future_log.begin(manager, log, other)
    future.append_as_follower(log.read_bytes(0, 1000))
    commit_all(future)
    moved = future_log.promote(manager, log, future)
    assert moved.directory.parent == other
    assert len(read_all(moved)) == 1
    with pytest.raises(OSError, match="too long"):
        (other / ("n" * 300)).mkdir()
    manager.fail_directory(other, OSError(errno.ENAMETOOLONG, "File name too long"))
    assert manager.failed_directories == []


def dirty(manager: LogManager) -> Log:
    log = manager.get_or_create("compacted", 0, uuid.UUID(int=1), COMPACTED)
    for number in range(300):
        put(log, (b"k%d" % (number % 10), b"%d" % number))
    return log


def run_cleaner(manager: LogManager, until: Callable[[], bool]) -> None:
    while not until():
        manager.cleaner.tick()
        manager.tick()
        run = manager.cleaner._run
        if run is not None and run.result is None:
            run.process.wait()


def test_compaction_goes_on_after_a_process_that_was_killed(manager: LogManager, clock: ManualClock) -> None:
    log = dirty(manager)
    before = log.size_bytes()
    manager.cleaner.tick()
    run = manager.cleaner._run
    assert run is not None
    run.process.kill()
    run.process.wait()
    manager.cleaner.tick()
    assert log.size_bytes() == before
    manager.cleaner.tick()
    assert manager.cleaner._run is None, "not before the back-off has passed"
    clock.advance(1001)
    run_cleaner(manager, lambda: log.size_bytes() < before // 2)


def test_a_compaction_process_of_a_broker_that_is_gone_shares_no_files_with_the_next_one(
    manager: LogManager, clock: ManualClock
) -> None:
    log = dirty(manager)
    before = log.size_bytes()
    orphans = os.open(log.directory.parent / ".compaction-lock", os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(orphans, fcntl.LOCK_EX)
    manager.cleaner.tick()
    assert manager.cleaner._run is None
    os.close(orphans)  # it has ended
    clock.advance(1001)
    run_cleaner(manager, lambda: log.size_bytes() < before // 2)


def test_a_compaction_process_ends_when_its_broker_does(tmp_path: Path, clock: ManualClock) -> None:
    slow = ManagerSettings(cleaner_backoff_ms=0, cleaner_io_max_bytes_per_second=1.0)
    manager = LogManager([tmp_path], lambda topic: COMPACTED, clock, node_id=1, settings=slow)
    manager.start()
    dirty(manager)
    manager.cleaner.tick()
    run = manager.cleaner._run
    assert run is not None
    assert run.process.stdin is not None
    run.process.stdin.close()  # what the kernel does for a broker that was killed
    run.process.stdin = None
    assert run.process.wait(60) == 4
    manager.stop()


def test_a_folder_that_fails_while_it_is_opened_is_given_free(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def new() -> LogManager:
        return LogManager([tmp_path / "a", tmp_path / "b"], lambda topic: LogConfig(), clock, node_id=1)

    first = new()
    first.start()
    first.stop()
    with monkeypatch.context() as patch:

        def broken(path: Path) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(disk, "unlink", broken)
        with pytest.raises(LogDirectoryFailed):
            new().start()
    again = new()
    again.start()
    again.stop()
