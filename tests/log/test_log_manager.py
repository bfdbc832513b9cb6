"""The manager: what survives a stop, a crash, a deletion; retention, rolling and checkpoints by the clock."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log import log_timers, retention
from penstock.log.log import Log
from penstock.log.log_manager import LogManager
from penstock.log.results import OffsetOutOfRange
from penstock.testing.log_tools import append, batch_of, commit_all, put, read_all

MakeLog = Callable[..., Log]
TOPIC_ID = uuid.UUID(int=77)


def started(tmp_path: Path, clock: ManualClock, config: LogConfig | None = None) -> LogManager:
    chosen = config or LogConfig(file_delete_delay_ms=1000)
    manager = LogManager([tmp_path / "a", tmp_path / "b"], lambda topic: chosen, clock, node_id=1, cluster_id="c")
    manager.start()
    return manager


def run_all_tasks(manager: LogManager) -> None:
    for task in manager.background_tasks():
        if task.name != "log-cleaner":
            task.run()


def test_a_clean_stop_and_start(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    for partition in range(6):
        log = manager.get_or_create("topic-with-dash", partition, TOPIC_ID, LogConfig())
        for number in range(partition):
            put(log, (b"k", b"%d" % number), epoch=partition)
    assert {log.directory.parent.name for log in manager.logs()} == {"a", "b"}
    manager.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".lock").exists()

    again = started(tmp_path, clock)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists(), "from here on a crash is a crash"
    for partition in range(6):
        log = again.get("topic-with-dash", partition)
        assert log is not None
        assert (log.log_end_offset, log.high_watermark, log.topic_id) == (partition, partition, TOPIC_ID)
        assert len(read_all(log)) == partition
    again.stop()


def test_a_crash_keeps_what_was_written(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    log = manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    log.raise_log_start_offset(4)
    run_all_tasks(manager)
    put(log, (b"k", b"last"))
    manager.stop(clean=False)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()

    again = started(tmp_path, clock)
    log_again = again.get("t", 0)
    assert log_again is not None
    assert [record.offset for record in read_all(log_again)] == [4, 5, 6, 7, 8, 9, 10]
    again.stop()


def test_deleting_a_replica(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    log = manager.get_or_create("t", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=1000))
    put(log, (b"k", b"v"))
    region = log.read(0, 1000)
    assert not isinstance(region, OffsetOutOfRange)
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    folder = log.directory.parent
    assert list(folder.glob("t-0.*-delete"))
    assert region.file is not None
    assert len(os.pread(region.file.fd, region.length, region.position)) == region.length, "a queued answer goes on"
    fresh = manager.get_or_create("t", 0, uuid.UUID(int=78), LogConfig())
    assert fresh.log_end_offset == 0
    clock.advance(1000)
    manager.tick()
    manager.stop()
    assert not list(folder.glob("*-delete"))


def test_retention_by_time_and_the_files_that_readers_hold(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(segment_bytes=200, retention_ms=1000, file_delete_delay_ms=0)
    for _ in range(5):
        put(log, (b"k", bytes(100)))
        clock.advance(300)
    region = log.read(0, 1000)
    assert not isinstance(region, OffsetOutOfRange)
    freed = retention.enforce(log, clock.now_ms())
    assert freed > 0
    assert log.log_start_offset == 2, "older than a second, strictly"
    assert isinstance(log.read(0, 100), OffsetOutOfRange)
    assert region.file is not None
    assert len(os.pread(region.file.fd, region.length, region.position)) == region.length
    clock.advance(10_000)
    retention.enforce(log, clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes()) == (5, 5, 0)
    assert put(log, (b"k", b"v")) == 5


def test_retention_by_size_never_passes_the_high_watermark(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(segment_bytes=200, retention_bytes=400, retention_ms=-1)
    for _ in range(6):
        append(log, (b"k", bytes(100)))
    log.write_staged()
    retention.enforce(log, clock.now_ms())
    assert log.log_start_offset == 0, "nothing is committed yet"
    log.set_high_watermark(6)
    retention.enforce(log, clock.now_ms())
    assert 400 <= log.size_bytes() < 600
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_retention_by_time_leaves_what_is_not_committed_even_alone(make_log: MakeLog, clock: ManualClock) -> None:
    """One segment, older than the limit, whose last record no follower has yet."""
    log = make_log(retention_ms=1000)
    put(log, (b"k", b"committed"))
    put(log, (b"k", b"not yet"))
    log.set_high_watermark(1)
    clock.advance(5000)
    retention.enforce(log, clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    log.set_high_watermark(2)
    retention.enforce(log, clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_rolling_by_time_and_by_index_size(make_log: MakeLog, clock: ManualClock) -> None:
    by_time = make_log(segment_ms=1000)
    put(by_time, (b"k", b"v"))
    clock.advance(1000)
    put(by_time, (b"k", b"v"))
    assert len(by_time.segments) == 1
    clock.advance(1)
    put(by_time, (b"k", b"v"))
    assert by_time.segment_bases == [0, 2]

    by_index = make_log(name="index-0", segment_index_bytes=80, index_interval_bytes=10)
    for _ in range(40):
        put(by_index, (b"k", b"v"))
        clock.advance(1)
    assert len(by_index.segments) > 3
    assert len(read_all(by_index)) == 40
    for segment in by_index.segments:
        assert Path(segment.offset_index.file.path).stat().st_size <= 80


def test_flush_by_messages_moves_the_recovery_point(make_log: MakeLog) -> None:
    log = make_log(flush_messages=3)
    put(log, (b"k", b"v"))
    assert log.recovery_point == 0
    put(log, (b"k", b"v"), (b"k", b"v"))
    assert log.recovery_point == 3


def test_flush_by_interval_in_a_thread(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    log = manager.get_or_create("t", 0, None, LogConfig(flush_ms=500))
    put(log, (b"k", b"v"))
    clock.advance(500)
    log_timers.flush_due(manager)
    manager.stop(clean=False)  # waits for its threads
    assert log.recovery_point == 1


def test_the_hot_path_leaves_no_objects_behind_for_records(make_log: MakeLog) -> None:
    """The same number of appends and reads allocates the same, whether batches hold one record or a thousand."""

    def blocks_for(records: int, name: str) -> int:
        log = make_log(name=name, max_message_bytes=10_000_000)
        batch = memoryview(batch_of(log, *[(b"k", b"value")] * records))
        now_ms = log.events.clock.now_ms()
        for _ in range(3):
            log.append_as_leader(batch, 0, now_ms)
        log.write_staged()
        before = sys.getallocatedblocks()
        for _ in range(50):
            log.append_as_leader(batch, 0, now_ms)
        staged = sys.getallocatedblocks() - before
        commit_all(log)
        regions = [log.read(offset, 1_000_000) for offset in range(20)]
        assert len(regions) == 20
        return staged

    one, thousand = blocks_for(1, "one-0"), blocks_for(1000, "thousand-0")
    assert abs(thousand - one) < 60, (one, thousand)


def test_a_stop_in_peace_is_proven_only_by_all_folders(tmp_path: Path, clock: ManualClock) -> None:
    manager = started(tmp_path, clock)
    assert manager.clean_stop is None
    manager.stop(broker_epochs=(10, 20))
    again = started(tmp_path, clock)
    assert again.clean_stop == (10, 20)
    again.stop(broker_epochs=(30, 30))
    (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
    third = started(tmp_path, clock)
    assert third.clean_stop is None, "one folder may have lost its tail"
    third.stop(clean=False)
    fourth = started(tmp_path, clock)
    assert fourth.clean_stop is None
    fourth.stop()
    assert started(tmp_path, clock).clean_stop is None, "a marker without epochs proves nothing"
