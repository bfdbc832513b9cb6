"""When the disk refuses: nothing unwritten is ever visible, writing resumes with space, one folder fails alone."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.cluster.image import PartitionRegistration
from penstock.log import disk, maintenance
from penstock.log.log import Log
from penstock.log.log_directory import FolderInUse, ForeignFolder
from penstock.log.log_manager import LogManager
from penstock.log.results import LogDirectoryFailed, LogWriteError, Origin
from penstock.log.verify import verify
from penstock.protocol.batch import build_marker, patch_offset_and_epoch
from penstock.protocol.errors import ErrorCode
from penstock.replication.partition import Partition
from penstock.testing.log_tools import append, batch_of, commit_all, end_transaction, put, read_all, reload

MakeLog = Callable[..., Log]


class FullDisk:
    """Lets `room` more bytes through, then fails as a disk does: a short write first, then an error."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int, error: int = errno.ENOSPC) -> None:
        self.room = room
        self._error = error
        self._pwrite, self._pwritev = os.pwrite, os.pwritev
        patch.setattr(disk, "pwrite", self._write_one)
        patch.setattr(disk, "pwritev", self._write_many)

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


class Refusing:
    """Refuses to open, or to write to, files whose name ends so; counts how often."""

    def __init__(self, patch: pytest.MonkeyPatch, suffix: str, error: int = errno.ENOSPC, calls: str = "open") -> None:
        self.refused = 0
        self._suffix, self._error = suffix, error
        self._real = getattr(disk, calls)
        patch.setattr(disk, calls, self._open if calls == "open" else self._call)

    def _open(self, path: str | Path, *arguments: int, **options: int) -> int:
        if str(path).endswith(self._suffix):
            self._refuse()
        return int(self._real(path, *arguments, **options))

    def _call(self, fd: int, *arguments: object) -> object:
        if Path(f"/proc/self/fd/{fd}").readlink().name.endswith(self._suffix):
            self._refuse()
        return self._real(fd, *arguments)

    def _refuse(self) -> None:
        self.refused += 1
        raise OSError(self._error, os.strerror(self._error))


def open_transaction(log: Log) -> None:
    for sequence in range(2):
        result = append(
            log, (b"k", b"void"), producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        assert not result.error
    commit_all(log)


def committed_values(log: Log) -> list[bytes | None]:
    """What a read_committed consumer keeps of a log without other producers."""
    aborted = {found.producer_id: found.first_offset for found in log.aborted_transactions(0, log.last_stable_offset)}
    if 9 in aborted:
        return []
    return [record.value for record in read_all(log, 0, log.last_stable_offset)]


@pytest.mark.parametrize("where", ["the index cannot be made", "the index is cut", "the marker", "the marker is cut"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_an_abort_that_meets_a_full_disk_hides_its_data_once_it_is_tried_again(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, role: str, where: str
) -> None:
    log = make_log()
    open_transaction(log)
    marker = bytearray(build_marker(9, 0, False, 0, 5))
    if role == "follower":
        patch_offset_and_epoch(marker, 2, 0)

    def abort() -> None:
        if role == "leader":
            result = log.append_as_leader(marker, 0, 0, Origin.COORDINATOR)
            assert not result.error
        else:
            log.append_as_follower(marker)
        commit_all(log)

    with monkeypatch.context() as patch:
        if where == "the index cannot be made":
            Refusing(patch, ".txnindex")
        elif where == "the marker":
            Refusing(patch, ".log", calls="pwrite")
        else:
            FullDisk(patch, 13 if where == "the index is cut" else 40)
        with pytest.raises(LogWriteError):
            abort()
        assert log.last_stable_offset == 0, "the transaction is still open"
        assert log.log_end_offset == 2
        assert log.aborted_transactions(0, 2) == []
    abort()
    assert log.last_stable_offset == 3
    assert committed_values(log) == []
    log.flush()
    for fresh in (reload(log, recovery_point=log.recovery_point), reload(log, clean=False)):
        assert committed_values(fresh) == []
    maintenance.close(log, clean=True)
    assert committed_values(reload(log, clean=True)) == []


def test_an_abort_whose_sync_fails_is_an_abort_all_the_same(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(flush_messages=1)
    open_transaction(log)
    with monkeypatch.context() as patch:
        Refusing(patch, ".log", calls="fsync")
        with pytest.raises(LogWriteError):
            end_transaction(log, 9, commit=False)
    commit_all(log)
    assert (log.log_end_offset, log.last_stable_offset) == (3, 3), "the marker is in the log"
    assert committed_values(log) == []


def test_a_flush_that_loses_what_others_staged_does_not_keep_it_to_itself(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers and lookups write a log between an append and the write at the end of its wake-up."""
    manager = manager_of(tmp_path, clock)
    manager.start()
    log = manager.get_or_create("t", 0, None, LogConfig())
    brokers = SimpleNamespace(broker_epoch=lambda broker_id: 1)
    partition = Partition("t", 0, uuid.UUID(int=1), log, 1, clock, brokers, lambda *_: None, 1000)
    partition.become_leader(PartitionRegistration((1,), (1,), 1, 0, 0))
    try:
        append(log, (b"k", b"v"))
        partition.dirty = True
        with monkeypatch.context() as patch:
            FullDisk(patch, 0)
            manager.disk_work.flush(log)
        assert log.log_end_offset == 0
        partition.write_now()
        assert partition.write_error is not None, "whoever appended must answer KAFKA_STORAGE_ERROR"
        partition.write_error = None
        append(log, (b"k", b"v"))
        partition.dirty = True
        partition.write_now()
        assert partition.write_error is None
        assert len(read_all(log)) == 1
    finally:
        manager.stop()
