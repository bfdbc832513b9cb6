"""A log with very many producers rolls without waiting for their snapshot, which tells what was true at the roll."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.log import disk, maintenance, producer_snapshot
from penstock.log.log import Log
from penstock.log.producer_snapshot import decode_snapshot, encode_snapshot, snapshot_path
from penstock.testing.log_tools import append, commit_all, end_transaction, reload

MakeLog = Callable[..., Log]
PRODUCERS = 12


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Work for the background, kept until the story runs it; a dozen producers count as very many."""
    monkeypatch.setattr(producer_snapshot, "MANY_PRODUCERS", PRODUCERS - 1)
    return []


@pytest.fixture
def log(make_log: MakeLog, waiting: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch) -> Log:
    log = make_log()
    monkeypatch.setattr(log.events, "in_background", lambda _, work: waiting.append(work))
    for number in range(PRODUCERS):
        append(log, (b"k", b"v"), producer_id=number, producer_epoch=0, base_sequence=0, transactional=number == 3)
    commit_all(log)
    return log


def go_on(log: Log) -> None:
    """Batches of every kind of producer: known, new, in a transaction that ends, at a new epoch."""
    for number in range(PRODUCERS):
        if number != 3:
            append(log, (b"k", b"w"), producer_id=number, producer_epoch=0, base_sequence=1)
    append(log, (b"k", b"w"), producer_id=99, producer_epoch=0, base_sequence=0)
    append(log, (b"k", b"w"), producer_id=5, producer_epoch=1, base_sequence=0)
    end_transaction(log, 3, commit=False)
    commit_all(log)


def test_the_snapshot_tells_what_was_true_at_the_roll(log: Log, waiting: list[Callable[[], None]]) -> None:
    then = encode_snapshot(log.producers())
    offset = log.log_end_offset
    maintenance.roll(log, log.log_end_offset)
    assert log.active.base_offset == offset  # rolled, and nobody waited
    go_on(log)
    [write] = waiting
    write()
    assert snapshot_path(log.directory, offset).read_bytes() == then
    assert log.producers_state.frozen is None
    fresh = reload(log)
    assert encode_snapshot(sorted(fresh.producers(), key=lambda e: e.producer_id)) == encode_snapshot(
        sorted(log.producers(), key=lambda e: e.producer_id)
    )


def test_a_crash_before_it_is_written_loses_no_producer(log: Log, waiting: list[Callable[[], None]]) -> None:
    offset = log.log_end_offset
    maintenance.roll(log, log.log_end_offset)
    go_on(log)
    log.flush()
    assert not snapshot_path(log.directory, offset).exists()
    fresh = reload(log, recovery_point=log.log_end_offset)
    known = {e.producer_id: (e.epoch, e.last_sequence) for e in fresh.producers()}
    assert known == {e.producer_id: (e.epoch, e.last_sequence) for e in log.producers()}


def test_a_second_roll_does_not_begin_another(log: Log, waiting: list[Callable[[], None]]) -> None:
    maintenance.roll(log, log.log_end_offset)
    go_on(log)
    maintenance.roll(log, log.log_end_offset)
    assert len(waiting) == 1
    waiting[0]()
    go_on_again = log.log_end_offset
    append(log, (b"k", b"x"), producer_id=99, producer_epoch=0, base_sequence=1)
    commit_all(log)
    maintenance.roll(log, log.log_end_offset)
    waiting[1]()
    assert snapshot_path(log.directory, go_on_again + 1).exists()


def test_what_is_truncated_meanwhile_leaves_no_snapshot(log: Log, waiting: list[Callable[[], None]]) -> None:
    offset = log.log_end_offset
    maintenance.roll(log, log.log_end_offset)
    go_on(log)
    log.truncate_to(offset - 2)
    waiting[0]()
    assert producer_snapshot.snapshot_offsets(log.directory) == []
    assert [path.name for path in log.directory.glob("*.tmp")] == []


def test_nothing_is_deleted_before_the_snapshot_that_must_remember_it(
    log: Log, waiting: list[Callable[[], None]]
) -> None:
    maintenance.roll(log, log.log_end_offset)
    assert maintenance.delete_oldest(log, 1) == 0
    waiting[0]()
    assert maintenance.delete_oldest(log, 1) > 0
    assert {e.producer_id for e in reload(log).producers()} == set(range(PRODUCERS))


def known(log: Log) -> dict[int, tuple[int, int]]:
    return {e.producer_id: (e.epoch, e.last_sequence) for e in log.producers()}


def test_a_roll_that_made_no_snapshot_is_nowhere_a_log_may_begin(log: Log, waiting: list[Callable[[], None]]) -> None:
    """It came while the one before was written. Whoever wrote only before it must be known after a kill."""
    maintenance.roll(log, log.log_end_offset)
    go_on(log)
    maintenance.roll(log, log.log_end_offset)
    waiting[0]()
    append(log, (b"k", b"x"), producer_id=99, producer_epoch=0, base_sequence=1)
    commit_all(log)
    log.flush()
    without_snapshot = log.segment_bases[2]
    maintenance.delete_oldest(log, 2)
    assert log.log_start_offset < without_snapshot
    assert known(reload(log, recovery_point=log.recovery_point)) == known(log)
    maintenance.roll(log, log.log_end_offset)
    waiting[1]()
    log.flush()
    maintenance.delete_oldest(log, len(log.segments) - 1)
    assert len(log.segments) == 1, "what has a snapshot again lets everything before it go"
    assert known(reload(log, recovery_point=log.recovery_point)) == known(log)


def test_a_log_without_any_snapshot_makes_one_before_it_forgets(log: Log, waiting: list[Callable[[], None]]) -> None:
    maintenance.roll(log, log.log_end_offset)
    waiting.pop()()
    go_on(log)
    for offset in producer_snapshot.snapshot_offsets(log.directory):
        snapshot_path(log.directory, offset).unlink()
    assert maintenance.delete_oldest(log, 1) == 0
    [write] = waiting
    write()
    log.flush()
    assert maintenance.delete_oldest(log, len(log.segments) - 1) > 0
    assert known(reload(log, recovery_point=log.recovery_point)) == known(log)


def no_space(fd: int, buffers: object, position: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_emptied_and_the_snapshot_made_at_once(log: Log, waiting: list[Callable[[], None]]) -> None:
    """Nothing that may go is kept for a snapshot that finds no room; where there is room again, it is written."""
    maintenance.roll(log, log.log_end_offset)
    with disk.handed_in({"pwritev": no_space}):
        waiting.pop()()
    append(log, (b"k", b"x"), producer_id=99, producer_epoch=0, base_sequence=0)
    commit_all(log)
    assert maintenance.delete_oldest(log, 1) > 0
    [write] = waiting
    write()
    log.flush()
    assert known(reload(log, recovery_point=log.recovery_point)) == known(log)


def test_a_full_disk_costs_the_snapshot_only(
    log: Log, waiting: list[Callable[[], None]], clock: ManualClock, tmp_path: Path
) -> None:
    offset = log.log_end_offset
    maintenance.roll(log, log.log_end_offset)
    with disk.handed_in({"pwritev": no_space}):
        waiting[0]()
    assert not snapshot_path(log.directory, offset).exists()
    go_on(log)
    assert decode_snapshot(encode_snapshot(log.producers()))
