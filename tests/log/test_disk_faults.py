"""When the disk refuses: nothing unwritten is ever visible, writing resumes with space, one folder fails alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log.log import Log
from penstock.log.log_directory import FolderInUse, ForeignFolder
from penstock.log.log_manager import LogManager
from penstock.log.results import LogDirectoryFailed, LogWriteError
from penstock.log.verify import verify
from penstock.protocol.errors import ErrorCode
from penstock.testing.log_tools import append, batch_of, commit_all, put, read_all, reload

MakeLog = Callable[..., Log]


class FullDisk:
    """Lets `room` more bytes through, then fails as a disk does: a short write first, then an error."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int, error: int = errno.ENOSPC) -> None:
        self.room = room
        self._error = error
        self._pwrite, self._pwritev = os.pwrite, os.pwritev
        patch.setattr(os, "pwrite", self._write_one)
        patch.setattr(os, "pwritev", self._write_many)

    def _write_one(self, fd: int, data: bytes, position: int) -> int:
        if self.room <= 0:
            raise OSError(self._error, os.strerror(self._error))
        done = self._pwrite(fd, memoryview(data)[: self.room], position)
        self.room -= done
        return done

    def _write_many(self, fd: int, buffers: list[bytes], position: int) -> int:
        return self._write_one(fd, b"".join(bytes(buffer) for buffer in buffers), position)


@pytest.mark.parametrize("room", [0, 1, 50, 100, 150, 333])
def test_a_full_disk_voids_what_was_staged_and_nothing_else(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log = make_log(index_interval_bytes=100)
    for sequence in range(5):
        put(log, (b"k", b"%d" % sequence), producer_id=1, producer_epoch=0, base_sequence=sequence, epoch=1)
    before = read_all(log)
    epochs = log.epochs.entries()
    with monkeypatch.context() as patch:
        FullDisk(patch, room)
        for sequence in range(5, 9):
            staged = append(log, (b"k", b"x"), producer_id=1, producer_epoch=0, base_sequence=sequence, epoch=2)
            assert staged.error is ErrorCode.NONE
        append(log, (b"k", b"new"), producer_id=2, producer_epoch=0, base_sequence=0, transactional=True, epoch=2)
        with pytest.raises(LogWriteError) as caught:
            log.write_staged()
        assert not caught.value.directory_failed
        assert log.log_end_offset == 5
        assert read_all(log) == before, "reads go on"
        assert [entry.producer_id for entry in log.producers()] == [1]
        assert log.epochs.entries() == epochs

    # Space is back: the producer tries the same batches again.
    for sequence in range(5, 9):
        result = append(log, (b"k", b"x"), producer_id=1, producer_epoch=0, base_sequence=sequence, epoch=2)
        assert (result.error, result.duplicate, result.base_offset) == (ErrorCode.NONE, False, sequence)
    commit_all(log)
    assert log.last_stable_offset == 9
    log.active.write_indexes()
    assert list(verify(log.directory, records=True)) == []
    assert read_all(reload(log)) == read_all(log)


@pytest.mark.parametrize("known", [True, False])
def test_what_stands_in_the_pipe_behind_a_voided_batch_waits_for_it(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """OUT_OF_ORDER would make librdkafka begin a new epoch and send again what is stored elsewhere."""
    log = make_log()
    sequence = 0

    def send(sequence: int, epoch: int = 0) -> ErrorCode:
        return append(log, (b"k", b"v"), producer_id=1, producer_epoch=epoch, base_sequence=sequence).error

    if known:
        assert send(0) is ErrorCode.NONE
        log.write_staged()
        sequence = 1
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        send(sequence)
        send(sequence + 1)
        with pytest.raises(LogWriteError):
            log.write_staged()
    # Space is back before the producer has heard of it: the rest of its pipe arrives.
    assert send(sequence + 2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert send(sequence + 3) is ErrorCode.KAFKA_STORAGE_ERROR
    for again in range(4):
        assert send(sequence + again) is ErrorCode.NONE
    assert send(sequence + 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap that the producer made"
    log.write_staged()
    assert log.log_end_offset == sequence + 4
    assert send(0, epoch=1) is ErrorCode.NONE


def test_a_roll_that_fails_keeps_the_pipe_waiting_too(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(segment_bytes=300)

    def send(sequence: int) -> ErrorCode:
        return append(log, (b"k", bytes(100)), producer_id=1, producer_epoch=0, base_sequence=sequence).error

    assert [send(0), send(1)] == [ErrorCode.NONE] * 2
    log.write_staged()
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        with pytest.raises(LogWriteError):
            send(2)
    assert send(3) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [send(2), send(3)] == [ErrorCode.NONE] * 2


def test_a_batch_refused_for_want_of_replicas_keeps_the_pipe_waiting(make_log: MakeLog) -> None:
    log = make_log()

    def batch(sequence: int) -> bytes:
        return batch_of(log, (b"k", b"v"), producer_id=1, producer_epoch=0, base_sequence=sequence)

    log.note_refused(batch(0), ErrorCode.NOT_ENOUGH_REPLICAS)
    log.note_refused(batch(1), ErrorCode.NOT_ENOUGH_REPLICAS)
    answers = [
        log.append_as_leader(batch(sequence), 0, log.events.clock.now_ms()).error for sequence in (2, 0, 1, 2, 7)
    ]
    assert answers == [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]


def test_a_roll_that_fails_leaves_the_log_usable(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(segment_bytes=300)
    put(log, (b"k", bytes(100)))
    put(log, (b"k", bytes(50)))
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        with pytest.raises(LogWriteError):
            append(log, (b"k", bytes(100)))
    assert log.log_end_offset == 2
    assert put(log, (b"k", bytes(100))) == 2
    assert len(log.segments) == 2
    assert len(read_all(reload(log))) == 3


def manager_of(tmp_path: Path, clock: ManualClock, failed: list[Path] | None = None, **fields: object) -> LogManager:
    seen = [] if failed is None else failed
    return LogManager(
        [tmp_path / "a", tmp_path / "b"],
        lambda topic: LogConfig(),
        clock,
        node_id=1,
        cluster_id="c",
        on_directory_failed=lambda path, logs: seen.append(path),
        **fields,  # type: ignore[arg-type]
    )


def test_an_input_output_error_takes_one_folder_off_line(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Path] = []
    manager = manager_of(tmp_path, clock, failed)
    manager.start()
    try:
        logs = [manager.get_or_create("t", partition, None, LogConfig()) for partition in range(4)]
        broken, healthy = logs[0], next(log for log in logs if log.directory.parent != logs[0].directory.parent)
        append(broken, (b"k", b"v"))
        with monkeypatch.context() as patch:
            FullDisk(patch, 0, errno.EIO)
            ((log, error),) = manager.write_all_staged()
        assert (log, error.directory_failed) == (broken, True)
        assert failed == manager.failed_directories == [broken.directory.parent]
        assert manager.get("t", 0) is None
        with pytest.raises(LogDirectoryFailed):
            manager.get_or_create("t", 0, None, LogConfig())
        assert put(healthy, (b"k", b"v")) == 0
        assert manager.get_or_create("new", 0, None, LogConfig()).directory.parent == healthy.directory.parent
    finally:
        manager.stop()


def test_a_folder_that_cannot_be_opened_fails_alone_and_all_of_them_fail_the_start(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "a").write_text("a file where a folder should be")
    manager = manager_of(tmp_path, clock)
    manager.start()
    assert manager.failed_directories == [tmp_path / "a"]
    manager.stop()
    only = LogManager([tmp_path / "a"], lambda topic: LogConfig(), clock, node_id=1)
    with pytest.raises(LogDirectoryFailed):
        only.start()


def test_two_brokers_never_open_one_folder(tmp_path: Path, clock: ManualClock) -> None:
    first = manager_of(tmp_path, clock)
    first.start()
    with pytest.raises(FolderInUse):
        manager_of(tmp_path, clock).start()
    pid = os.fork()
    if pid == 0:  # another process meets the operating system's lock
        from penstock.log import log_directory

        log_directory._locked_here.clear()
        try:
            manager_of(tmp_path, clock).start()
        except FolderInUse:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    first.stop()
    again = manager_of(tmp_path, clock)
    again.start()
    again.stop()


def test_a_folder_of_another_broker_or_cluster_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    manager = manager_of(tmp_path, clock)
    manager.start()
    manager.stop()
    with pytest.raises(ForeignFolder, match="broker 1"):
        LogManager([tmp_path / "a"], lambda topic: LogConfig(), clock, node_id=2, cluster_id="c").start()
    with pytest.raises(ForeignFolder, match="cluster"):
        LogManager([tmp_path / "a"], lambda topic: LogConfig(), clock, node_id=1, cluster_id="other").start()
