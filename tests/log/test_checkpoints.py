"""Checkpoints outlive logs: no log inherits what was said of another of its name, or of records that are gone."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log import checkpoints, disk, maintenance
from penstock.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from penstock.log.log import Log
from penstock.log.log_manager import LogManager
from penstock.log.offset_checkpoints import OffsetCheckpoints
from penstock.log.results import LogWriteError
from penstock.protocol.batch import patch_offset_and_epoch
from penstock.testing.log_tools import append, batch_of, commit_all, put, read_all, reload

MakeLog = Callable[..., Log]
Start = Callable[[], LogManager]
NAMES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Iterator[Start]:
    """A broker's logs; the one before it is gone as by kill -9."""
    running: list[LogManager] = []

    def begin() -> LogManager:
        for older in running:
            older.stop(clean=False)
        manager = LogManager([tmp_path / "logs"], lambda topic: LogConfig(), clock, node_id=1)
        manager.start()
        running.append(manager)
        return manager

    yield begin
    running[-1].stop(clean=False)


def short_lived(manager: LogManager) -> Log:
    """Ten records, eight of them deleted, all of it synced and on record; then the topic goes."""
    log = manager.get_or_create("t", 0, uuid.UUID(int=1), LogConfig())
    for _ in range(10):
        put(log, (b"k", b"old"))
    log.flush()
    log.raise_log_start_offset(8)
    directory = manager.directory_of(log)
    assert directory is not None
    directory.checkpoints.put(CLEANER_OFFSETS, ("t", 0), 9)
    manager.disk_work.stop()  # from now on checkpoints are written at once
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.checkpoint_log_starts()
    return log


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_made_anew_keeps_its_records_over_a_crash(tmp_path: Path, start: Start, restarted: bool) -> None:
    manager = start()
    short_lived(manager)
    assert all(("t", 0) in read_offsets(tmp_path / "logs" / name) for name in NAMES)
    manager.delete("t", 0)
    if restarted:
        manager = start()
    log = manager.get_or_create("t", 0, uuid.UUID(int=2), LogConfig())
    for number in range(3):
        put(log, (b"k%d" % number, b"new"))
    again = start().get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (0, 3)
    assert [record.value for record in read_all(again)] == [b"new"] * 3
    assert not any(("t", 0) in read_offsets(tmp_path / "logs" / name) for name in (LOG_STARTS, CLEANER_OFFSETS))


def test_a_checkpoint_that_was_on_its_way_when_its_log_went_does_not_come_back(tmp_path: Path) -> None:
    written = OffsetCheckpoints(tmp_path)
    late = written.prepare(LOG_STARTS, {("gone", 0): 8, ("stays", 0): 5})
    written.retire([("gone", 0)])
    written.forget(("gone", 0))
    late()
    assert read_offsets(tmp_path / LOG_STARTS) == {("stays", 0): 5}
    older = written.prepare(LOG_STARTS, {("stays", 0): 5})
    written.write(LOG_STARTS, {("stays", 0): 7})
    older()
    assert read_offsets(tmp_path / LOG_STARTS) == {("stays", 0): 7}, "threads may change places"


def test_many_logs_of_one_deleted_topic_are_forgotten_by_one_write(tmp_path: Path) -> None:
    OffsetCheckpoints(tmp_path).write(RECOVERY_POINTS, {("t", number): 5 for number in range(100)} | {("u", 0): 6})
    written = OffsetCheckpoints(tmp_path)
    written.retire_all_but([("u", 0)])
    written.forget(("t", 7))
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {("u", 0): 6}


def test_a_write_that_fails_behind_its_rename_is_not_taken_for_undone(tmp_path: Path) -> None:
    """The file says the new, and nobody may go by the old: a topic made anew would begin where the last one ended."""
    known = OffsetCheckpoints(tmp_path)
    known.write(LOG_STARTS, {("other", 0): 1})

    def refuse(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with disk.handed_in({"fsync": refuse}), pytest.raises(OSError):
        known.write(LOG_STARTS, {("other", 0): 1, ("t", 0): 4})
    assert read_offsets(tmp_path / LOG_STARTS) == {("other", 0): 1, ("t", 0): 4}
    known.retire([("t", 0)])
    known.forget(("t", 0))
    assert read_offsets(tmp_path / LOG_STARTS) == {("other", 0): 1}


def test_no_checkpoint_promises_what_a_truncation_takes_away(tmp_path: Path, start: Start) -> None:
    manager = start()
    log = short_lived(manager)
    assert log.truncate_to(9)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        assert read_offsets(tmp_path / "logs" / name)["t", 0] <= 9
    log.truncate_fully_and_start_at(4)
    for _ in range(2):
        put(log, (b"k", b"new"))
    again = start().get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (4, 6), "the old log start was 8"


def test_a_truncation_whose_checkpoint_has_no_room_takes_nothing_away(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = short_lived(start())
    before = read_all(log)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(checkpoints, "write_durably", full)
        with pytest.raises(LogWriteError) as caught:
            log.truncate_to(9)
    assert not caught.value.directory_failed
    assert read_all(log) == before
    assert log.truncate_to(9)
    assert log.log_end_offset == 9


class NoDescriptor:
    """Files whose names end so cannot be opened."""

    def __init__(self, patch: pytest.MonkeyPatch, suffix: str) -> None:
        self._suffix, self._open = suffix, os.open
        patch.setattr(disk, "open", self._refuse)

    def _refuse(self, path: str | Path, *arguments: int, **options: int) -> int:
        if str(path).endswith(self._suffix):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._open(path, *arguments, **options)


@pytest.mark.parametrize("suffix", ["02.log", ".index", "02.index", "02.timeindex"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_roll_that_fails_half_way_leaves_no_trace(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, suffix: str, clean: bool
) -> None:
    log = make_log(segment_bytes=450)
    put(log, (b"k", bytes(100)))
    put(log, (b"k", bytes(50)))
    with monkeypatch.context() as patch:
        NoDescriptor(patch, suffix)
        with pytest.raises(LogWriteError):
            append(log, (b"k", bytes(300)))
    assert put(log, (b"k", b"")) == 2, "still fits into the old segment"
    assert put(log, (b"k", b"")) == 3
    assert len(log.segments) == 1
    records = read_all(log)
    maintenance.close(log, clean)
    again = reload(log, clean=clean)
    assert read_all(again) == records
    assert put(again, (b"k", bytes(300))) == 4


def test_a_follower_whose_empty_segment_cannot_be_replaced_keeps_it(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log()
    log.active.file()
    far = bytearray(batch_of(log, (b"k", b"v")))
    patch_offset_and_epoch(far, 2**31 + 5, 0)
    with monkeypatch.context() as patch:
        NoDescriptor(patch, "3.index")
        with pytest.raises(LogWriteError):
            log.append_as_follower(far)
    log.append_as_follower(far)
    commit_all(log)
    assert [record.offset for record in read_all(reload(log))] == [2**31 + 5]


def test_leader_epochs_survive_two_crashes(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    for epoch in range(6):
        put(log, (b"k", bytes(60)), epoch=epoch)
        put(log, (b"k", bytes(60)), epoch=epoch)
    assert len(log.segments) > 3
    once = reload(log, recovery_point=0)
    assert once.epochs.entries() == log.epochs.entries()
    twice = reload(once, recovery_point=once.recovery_point)
    assert twice.epochs.entries() == log.epochs.entries()


def test_two_flushes_at_once_leave_the_newer_epochs(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"k", b"v"), epoch=1)
    slow = maintenance.begin_flush(log)
    put(log, (b"k", b"v"), epoch=2)
    log.flush()
    assert slow is not None
    slow.run()
    assert checkpoints.read_epochs(log.directory / "leader-epoch-checkpoint") == [(1, 0), (2, 1)]


def test_a_topic_made_anew_does_not_take_over_a_folder_that_could_not_be_renamed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    short_lived(manager)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(disk, "replace", full)
        manager.delete("t", 0)
    log = manager.get_or_create("t", 0, uuid.UUID(int=2), LogConfig())
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert put(log, (b"k", b"new")) == 0


def test_a_lookup_by_time_never_writes_because_threads_ask_it(make_log: MakeLog) -> None:
    log = make_log()
    put(log, (b"k", b"v"))
    append(log, (b"k", b"staged"))
    assert log.offset_for_timestamp(0) is not None
    assert log.max_timestamp_offset() is not None
    assert len(log.staged) == 1
