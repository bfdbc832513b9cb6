"""Compaction keeps the newest record of each key, and survives a crash at every step of the swap."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock, SystemClock
from penstock.base.settings import LogConfig
from penstock.log import recovery, swap
from penstock.log.cleaner import assess, build_spec, verify
from penstock.log.compaction import CompactionResult, compact
from penstock.log.log import Log
from penstock.log.log_manager import LogManager, ManagerSettings
from penstock.log.results import AbortedTransaction
from penstock.protocol.codecs import Codec
from penstock.testing.log_tools import (
    append,
    commit_all,
    copy_of,
    end_transaction,
    put,
    read_all,
    reload,
    shell,
    values_of,
)

MakeLog = Callable[..., Log]
MAP_BYTES = 128 * 1024 * 1024


def run_compaction(log: Log, checkpoint: int | None = None, map_bytes: int = MAP_BYTES) -> CompactionResult:
    """One round in this process: choose, write, verify, swap."""
    candidate = assess(log, checkpoint, log.events.clock.now_ms())
    assert candidate is not None
    result = compact(build_spec(candidate, log.events.clock.now_ms(), map_bytes, 1e300))
    verify(log.directory, result.outputs)
    swap.replace_segments(log, result.outputs)
    return result


def fill(log: Log, batches: int, keys: int, seed: int = 1, codec: Codec = Codec.NONE) -> dict[bytes, bytes]:
    """Random updates and deletions; what must remain."""
    dice = random.Random(seed)
    expected: dict[bytes, bytes] = {}
    for number in range(batches):
        rows: list[tuple[bytes, bytes | None]] = []
        for _ in range(dice.randint(1, 5)):
            key = b"key-%d" % dice.randrange(keys)
            value = None if dice.random() < 0.1 else b"value-%d" % number
            rows.append((key, value))
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        put(log, *rows, codec=codec)
    return expected


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_newest_value_of_each_key_remains(make_log: MakeLog, codec: Codec) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=4000)
    expected = fill(log, 400, 20, codec=codec)
    size, end = log.size_bytes(), log.log_end_offset

    result = run_compaction(log)

    assert values_of(log) == expected
    assert log.log_end_offset == end
    assert log.size_bytes() < size
    assert result.next_dirty_offset == log.active.base_offset
    assert result.records_kept < result.records_read
    assert values_of(reload(log)) == expected


def test_a_reader_can_start_at_every_offset_of_a_compacted_log(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=3000, index_interval_bytes=200)
    fill(log, 300, 10)
    run_compaction(log)
    records = read_all(log)
    for offset in range(log.log_end_offset):
        assert read_all(log, offset) == [record for record in records if record.offset >= offset]


def test_small_segments_are_merged_and_indexes_still_find_everything(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=2000, index_interval_bytes=300)
    for number in range(300):
        put(log, (b"k%d" % number, b"v"), timestamp=1_700_000_000_000 + number)
    run_compaction(log)
    found = log.offset_for_timestamp(1_700_000_000_123)
    assert found is not None
    assert found.offset == 123
    assert len(read_all(log)) == 300


def test_tombstones_stay_for_delete_retention_and_go_afterwards(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=500, delete_retention_ms=1000)
    put(log, (b"gone", b"value"))
    put(log, (b"gone", None), (b"stays", b"1"))
    for number in range(20):
        put(log, (b"filler", b"%d" % number))

    first = run_compaction(log)
    tombstones = [record for record in read_all(log) if record.key == b"gone"]
    assert [record.value for record in tombstones] == [None]
    assert tombstones[0].timestamp == 1_700_000_000_000, "the horizon must not change the record's time"

    clock.advance(999)
    for number in range(20):
        put(log, (b"filler", b"%d" % number))
    second = run_compaction(log, first.next_dirty_offset)
    assert [record for record in read_all(log) if record.key == b"gone"]

    clock.advance(1)
    for number in range(20):
        put(log, (b"filler", b"%d" % number))
    run_compaction(log, second.next_dirty_offset)
    assert not [record for record in read_all(log) if record.key == b"gone"]
    assert values_of(log)[b"stays"] == b"1"


def test_a_map_that_is_too_small_takes_several_rounds(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=3000)
    expected = fill(log, 300, 50)
    checkpoint: int | None = None
    for _ in range(100):
        if assess(log, checkpoint, log.events.clock.now_ms()) is None:
            break
        checkpoint = run_compaction(log, checkpoint, map_bytes=200 * 10).next_dirty_offset
        assert values_of(log) == expected
    else:
        pytest.fail("the rounds did not come to an end")
    assert checkpoint == log.active.base_offset


def test_aborted_data_goes_first_then_its_marker(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=400, delete_retention_ms=0)

    def transaction(producer: int, key: bytes, value: bytes, sequence: int, commit: bool) -> None:
        append(log, (key, value), producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
        end_transaction(log, producer, commit=commit)

    transaction(1, b"a", b"good", 0, commit=True)
    transaction(2, b"a", b"bad", 0, commit=False)
    for number in range(30):
        put(log, (b"filler", b"%d" % number))
    upper = log.log_end_offset
    assert log.aborted_transactions(0, upper) == [AbortedTransaction(2, 2)]

    first = run_compaction(log)

    assert [record.value for record in read_all(log) if record.key == b"a"] == [b"good"]
    assert log.aborted_transactions(0, upper) == [AbortedTransaction(2, 2)], "the marker is still there"
    assert values_of(reload(log))[b"a"] == b"good"

    # While the producer is known, its emptied batch stays and with it the marker. Afterwards one pass removes the
    # batch, the next one sets the marker's horizon, the third one removes the marker.
    log.producers_state.expire(clock.now_ms() + 1, 0)
    checkpoint = first.next_dirty_offset
    for _ in range(3):
        clock.advance(10)
        for number in range(30):
            put(log, (b"filler", b"%d" % number))
        checkpoint = run_compaction(log, checkpoint).next_dirty_offset
    assert log.aborted_transactions(0, upper) == []
    assert [record.value for record in read_all(log) if record.key == b"a"] == [b"good"]


def test_data_whose_abort_marker_lies_in_the_active_segment_is_not_taken_for_committed(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=400)
    put(log, (b"a", b"good"))
    append(log, (b"a", b"bad"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    commit_all(log)
    for number in range(10):
        put(log, (b"filler", b"%d" % number))
    assert end_transaction(log, 5, commit=False).base_offset >= log.active.base_offset
    run_compaction(log)
    assert values_of(log)[b"a"] == b"good"


def test_the_last_sequence_of_a_producer_survives(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=400)
    put(log, (b"k", b"1"), producer_id=9, producer_epoch=3, base_sequence=0)
    put(log, (b"k", b"2"), producer_id=9, producer_epoch=3, base_sequence=1)
    for number in range(30):
        put(log, (b"k", b"%d" % number))
    run_compaction(log)
    recovered = reload(log)
    assert append(recovered, (b"k", b"2"), producer_id=9, producer_epoch=3, base_sequence=1).duplicate


class Crash(Exception):
    pass


def test_a_crash_at_each_step_of_the_swap_loses_nothing(make_log: MakeLog, tmp_path: Path, clock: ManualClock) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=1500)
    for producer in (1, 2):
        append(
            log, (b"t", b"%d" % producer), producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
        end_transaction(log, producer, commit=producer == 1)
    expected = fill(log, 120, 8)
    expected[b"t"] = b"1"
    spec_source = assess(log, None, clock.now_ms())
    assert spec_source is not None
    steps = 0
    finished = False
    while not finished:
        victim = copy_of(log, tmp_path / f"crash{steps}" / "story-0")
        recovery.load(victim, clean=False, recovery_point=0, log_start_offset=0, high_watermark=log.log_end_offset)
        candidate = assess(victim, None, clock.now_ms())
        assert candidate is not None
        result = compact(build_spec(candidate, clock.now_ms(), MAP_BYTES, 1e300))
        countdown = steps

        def stop_at(_: str) -> None:
            nonlocal countdown
            if countdown == 0:
                raise Crash
            countdown -= 1

        victim.events.discard = lambda paths, delay: None  # type: ignore[method-assign]
        try:
            swap.replace_segments(victim, result.outputs, stop_at)
            finished = True
        except Crash:
            pass
        for clean in (False, True):
            after = copy_of_folder(victim, tmp_path / f"after{steps}-{clean}" / "story-0", clock)
            recovery.load(after, clean=clean, recovery_point=0, log_start_offset=0, high_watermark=log.log_end_offset)
            assert after.log_end_offset == log.log_end_offset
            seen = {r.key: r.value for r in read_all(after) if not is_aborted(after, r.offset)}
            assert {key: value for key, value in seen.items() if value is not None} == expected, f"step {steps}"
            assert not [p.name for p in after.directory.iterdir() if p.name.endswith((".swap", ".cleaned", ".deleted"))]
        steps += 1
    assert steps > 10


def is_aborted(log: Log, offset: int) -> bool:
    """Good enough here: the aborted producer wrote one record."""
    return any(entry.first_offset == offset for entry in log.aborted_transactions(0, log.log_end_offset))


def copy_of_folder(log: Log, target: Path, clock: ManualClock) -> Log:
    shutil.copytree(log.directory, target)
    fresh = shell(target, clock)
    fresh.update_config(log.config)
    return fresh


def test_the_manager_compacts_in_a_process_of_its_own(tmp_path: Path) -> None:
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=4000, file_delete_delay_ms=0)
    manager = LogManager(
        [tmp_path],
        lambda topic: config,
        SystemClock(),
        node_id=1,
        settings=ManagerSettings(cleaner_backoff_ms=0),
    )
    manager.start()
    try:
        log = manager.get_or_create("compacted", 0, None, config)
        expected = fill(log, 300, 10)
        before = log.size_bytes()
        deadline = time.monotonic() + 60
        while log.size_bytes() > before // 2 and time.monotonic() < deadline:
            for task in manager.background_tasks():
                if task.name in ("log-cleaner", "log-tick"):
                    task.run()
            time.sleep(0.01)
        assert log.size_bytes() <= before // 2
        assert values_of(log) == expected
    finally:
        manager.stop()
    again = LogManager([tmp_path], lambda topic: config, SystemClock(), node_id=1)
    again.start()
    try:
        found = again.get("compacted", 0)
        assert found is not None
        assert values_of(found) == expected
    finally:
        again.stop()


def test_young_and_open_records_are_left_alone(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=400, min_compaction_lag_ms=1000)
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    assert assess(log, None, clock.now_ms()) is None
    clock.advance(1001)
    ready = assess(log, None, clock.now_ms())
    assert ready is not None
    append(log, (b"open", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    commit_all(log)
    opened = log.last_stable_offset
    for number in range(20):
        put(log, (b"k", b"%d" % number))
    clock.advance(5000)
    bounded = assess(log, None, clock.now_ms())
    assert bounded is not None
    assert bounded.first_uncleanable_offset <= opened


def test_max_compaction_lag_overrides_the_dirty_ratio(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(cleanup_compact=True, segment_bytes=400, max_compaction_lag_ms=1000)
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    young = assess(log, None, clock.now_ms())
    assert young is not None
    assert not young.overdue
    clock.advance(1001)
    old = assess(log, None, clock.now_ms())
    assert old is not None
    assert old.overdue
