"""After a crash: whatever happened to the bytes behind the recovery point, what is left is right."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.log import maintenance, recovery
from penstock.log.log import Log
from penstock.log.verify import verify
from penstock.testing.log_tools import append, commit_all, copy_of, end_transaction, put, read_all, reload

MakeLog = Callable[..., Log]


def filled(make_log: MakeLog, clock: ManualClock) -> Log:
    """Several segments with plain, idempotent and transactional batches, committed and aborted."""
    log = make_log(segment_bytes=2500, index_interval_bytes=200)
    for number in range(60):
        clock.advance(5)
        put(log, (b"k%d" % number, b"v" * (number % 40)), epoch=number // 20)
        append(log, (b"p", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number, epoch=number // 20)
        if number % 10 == 0:
            append(
                log,
                (b"t", b"%d" % number),
                producer_id=2,
                producer_epoch=0,
                base_sequence=number // 10,
                transactional=True,
                epoch=number // 20,
            )
            commit_all(log)
            end_transaction(log, 2, commit=number % 20 == 0, epoch=number // 20)
    commit_all(log)
    log.flush()  # whoever has a recovery point has flushed
    return log


def state_of(log: Log) -> dict[int, tuple[int, int, int]]:
    return {e.producer_id: (e.epoch, e.last_sequence, e.txn_first_offset) for e in log.producers()}


def test_an_unclean_stop_with_sound_files_loses_nothing(make_log: MakeLog, clock: ManualClock) -> None:
    log = filled(make_log, clock)
    records, aborted = read_all(log), log.aborted_transactions(0, log.log_end_offset)
    for point in (0, 37, log.log_end_offset):
        fresh = reload(log, recovery_point=point)
        assert read_all(fresh) == records
        assert state_of(fresh) == state_of(log)
        assert fresh.aborted_transactions(0, fresh.log_end_offset) == aborted
        assert fresh.epochs.entries() == log.epochs.entries()
        assert fresh.last_stable_offset == fresh.log_end_offset
        assert list(verify(fresh.directory, records=True)) == []


@pytest.mark.parametrize("seed", range(60))
def test_a_file_cut_or_scribbled_on_behind_the_recovery_point(
    make_log: MakeLog, clock: ManualClock, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    log = filled(make_log, clock)
    records = read_all(log)
    victim = copy_of(log, tmp_path / "crashed" / "story-0")
    segment = dice.choice(log.segments)
    recovery_point = dice.choice([0, segment.base_offset])
    path = victim.directory / Path(segment.path).name
    position = dice.randrange(segment.size)
    if seed % 2:
        with path.open("r+b") as file:
            file.truncate(position)
    else:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(dice.randbytes(dice.randint(1, 50)))
            file.truncate(max(file.tell(), segment.size))
    for index in victim.directory.glob("*.index"):  # indexes may be anything, too
        if dice.random() < 0.3 and int(index.name[:20]) >= recovery_point:
            index.write_bytes(dice.randbytes(dice.randrange(100)))

    recovery.load(
        victim, clean=False, recovery_point=recovery_point, log_start_offset=0, high_watermark=log.log_end_offset
    )

    survivors = read_all(victim)
    assert survivors == records[: len(survivors)], "a prefix, byte for byte"
    safe = [h for s in log.segments if s.base_offset < segment.base_offset for h in s.headers()]
    in_segment = [h for h in segment.headers() if h.position + h.size <= position]
    first_lost = (in_segment or safe)[-1].next_offset if in_segment or safe else 0
    assert victim.log_end_offset >= first_lost, "nothing in front of the damage goes"
    assert victim.high_watermark <= victim.log_end_offset
    assert list(verify(victim.directory, records=True)) == []
    # The state is that of a log which only ever saw the survivors.
    log.truncate_to(victim.log_end_offset)
    assert state_of(victim) == state_of(log)
    end = victim.log_end_offset
    assert victim.aborted_transactions(0, end) == log.aborted_transactions(0, end)
    result = append(victim, (b"goes", b"on"), epoch=9)
    assert result.base_offset == end


def test_a_clean_start_reads_no_batch(make_log: MakeLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(make_log, clock)
    records, state = read_all(log), state_of(log)
    end = log.log_end_offset
    maintenance.close(log, clean=True)
    with monkeypatch.context() as patch:

        def forbidden(*_: object) -> object:
            raise AssertionError("a clean start must not look into segments")

        patch.setattr("penstock.log.segment.Segment.headers", forbidden)
        patch.setattr("penstock.log.recovery.recover_segment", forbidden)
        fresh = reload(log, clean=True, recovery_point=end)
    assert fresh.log_end_offset == end
    assert state_of(fresh) == state
    assert read_all(fresh) == records


@pytest.mark.parametrize("missing", ["*.index", "*.timeindex", "*.snapshot"])
def test_missing_helpers_are_made_again(make_log: MakeLog, clock: ManualClock, missing: str) -> None:
    log = filled(make_log, clock)
    records = read_all(log)
    maintenance.close(log, clean=True)
    for path in log.directory.glob(missing):
        path.unlink()
    fresh = reload(log, clean=missing != "*.snapshot", recovery_point=log.log_end_offset)
    assert read_all(fresh) == records
    fresh.active.write_indexes()
    assert list(verify(fresh.directory)) == []


def test_a_broken_snapshot_is_skipped_for_an_older_one(make_log: MakeLog, clock: ManualClock) -> None:
    log = filled(make_log, clock)
    state = state_of(log)
    maintenance.close(log, clean=True)
    newest = max(log.directory.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1])
    fresh = reload(log, clean=True, recovery_point=log.log_end_offset)
    assert state_of(fresh) == state


def test_data_before_a_checkpointed_log_start_does_not_come_back(make_log: MakeLog, tmp_path: Path) -> None:
    log = make_log()
    for _ in range(10):
        put(log, (b"k", b"v"))
    fresh = reload(log, log_start=6)
    assert [record.offset for record in read_all(fresh)] == [6, 7, 8, 9]
    shutil.copytree(log.directory, tmp_path / "again-0")
    beyond = reload(log, log_start=50)
    assert (beyond.log_start_offset, beyond.log_end_offset) == (50, 50)
    assert read_all(beyond) == []
    assert append(beyond, (b"k", b"v")).base_offset == 50


@pytest.mark.parametrize("compacted", [False, True])
def test_a_power_loss_that_takes_the_end_of_one_segment_leaves_no_hole(make_log: MakeLog, compacted: bool) -> None:
    """The next segment may have survived it. Only compaction makes gaps that are none."""
    log = make_log(segment_bytes=300, cleanup_compact=compacted)
    for number in range(8):
        put(log, (b"k%d" % number, bytes(60)))
    victim = log.segments[1]
    os.truncate(victim.path, 0)
    again = reload(log)
    offsets = [record.offset for record in read_all(again)]
    if compacted:
        assert offsets[-1] == 7
    else:
        assert offsets == list(range(victim.base_offset))
        assert put(again, (b"k", b"v")) == victim.base_offset
    assert len(read_all(reload(log, cleaned_to=8))) >= len(offsets)
