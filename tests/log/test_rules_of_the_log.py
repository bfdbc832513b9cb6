"""Rules of the log that a good day never asks for: each story kills a wrong rule that all others let live."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from penstock.log import disk, maintenance, producer_snapshot, recovery
from penstock.log.log import Log
from penstock.log.producer_state import MAX_SEQUENCE
from penstock.log.results import LogWriteError, Origin
from penstock.protocol.batch import InvalidBatch, build_marker, patch_offset_and_epoch
from penstock.protocol.errors import ErrorCode
from penstock.testing.log_tools import append, batch_of, commit_all, end_transaction, put, read_all, reload

MakeLog = Callable[..., Log]
ONE = (b"k", b"v")


def test_a_batch_that_only_ends_like_a_known_one_is_no_repetition(make_log: MakeLog) -> None:
    log = make_log()
    put(log, *[ONE] * 5, producer_id=7, producer_epoch=0, base_sequence=0)
    again = append(log, *[ONE] * 3, producer_id=7, producer_epoch=0, base_sequence=2)
    assert (again.error, again.duplicate) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False)


def test_sequences_begin_anew_behind_the_last_number(make_log: MakeLog) -> None:
    log = make_log()
    put(log, ONE, producer_id=7, producer_epoch=0, base_sequence=MAX_SEQUENCE - 2)
    put(log, *[ONE] * 4, producer_id=7, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1)  # … MAX, 0, 1
    assert log.producers_state.entries[7].last_sequence == 1
    put(log, ONE, producer_id=7, producer_epoch=0, base_sequence=2)


def test_nobody_waits_for_a_transaction_of_which_nothing_was_stored(make_log: MakeLog) -> None:
    log = make_log()
    put(log, ONE)

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    append(log, ONE, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    with disk.handed_in({"pwrite": refuse, "pwritev": refuse}), pytest.raises(LogWriteError):
        log.write_staged()
    log.voided = None
    put(log, ONE)
    assert log.last_stable_offset == log.log_end_offset == 2


def transactional(log: Log, producer_id: int, sequence: int = 0) -> int:
    result = append(log, ONE, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    assert not result.error
    log.write_staged()
    return result.base_offset


def marker(log: Log, producer_id: int, commit: bool) -> None:
    log.append_as_leader(build_marker(producer_id, 0, commit, 0, 0), 0, 0, Origin.COORDINATOR)


def test_an_open_transaction_is_not_overtaken_by_one_whose_end_is_not_replicated(make_log: MakeLog) -> None:
    log = make_log()
    transactional(log, 7)
    transactional(log, 8)
    marker(log, 8, commit=True)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0


def test_the_last_stable_offset_is_never_above_the_high_watermark(make_log: MakeLog) -> None:
    log = make_log()
    for _ in range(4):
        append(log, ONE)
    transactional(log, 7)
    log.set_high_watermark(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_an_abort_is_found_behind_those_that_ended_while_it_was_open(make_log: MakeLog) -> None:
    """The end of the long one stands in a later segment; a reader of the first offsets must hear of it all the same."""
    log = make_log()
    transactional(log, 7)
    transactional(log, 8)
    marker(log, 8, commit=False)
    maintenance.roll(log, log.log_end_offset)
    marker(log, 7, commit=False)
    commit_all(log)
    told = {(one.producer_id, one.first_offset) for one in log.aborted_transactions(0, 2)}
    assert told == {(7, 0), (8, 1)}


def test_a_follower_takes_no_damaged_and_no_repeated_batch(make_log: MakeLog) -> None:
    log = make_log()
    batch = bytearray(batch_of(log, ONE))
    patch_offset_and_epoch(batch, 0, 0)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    with pytest.raises(InvalidBatch, match="checksum"):
        log.append_as_follower(damaged)
    assert log.log_end_offset == 0
    log.append_as_follower(batch)
    with pytest.raises(InvalidBatch, match="before the end"):
        log.append_as_follower(batch)
    log.write_staged()
    assert [record.offset for record in read_all(log)] == [0]


def test_a_follower_can_begin_in_the_middle_of_a_batch(make_log: MakeLog) -> None:
    """Where its leader was told to delete records: what comes is the whole batch."""
    leader, follower = make_log("leading-0"), make_log("following-0")
    put(leader, *[ONE] * 10)
    put(leader, *[ONE] * 10)
    follower.truncate_fully_and_start_at(15)
    with pytest.raises(InvalidBatch, match="before the end"):
        follower.append_as_follower(leader.read_bytes(0, 1))  # all of it lies before the start
    follower.append_as_follower(leader.read_bytes(15, 1000))
    commit_all(follower)
    follower.raise_log_start_offset(15)
    assert (follower.log_start_offset, follower.log_end_offset) == (15, 20)
    assert follower.read_bytes(15, 1000) == leader.read_bytes(15, 1000)
    again = reload(follower, log_start=15)
    assert [record.offset for record in read_all(again)] == [15, 16, 17, 18, 19]


def follow(log: Log, offset: int, value: bytes = b"v") -> None:
    """What a leader's compaction left over: one record, wherever it stands."""
    batch = bytearray(batch_of(log, (b"k", value)))
    patch_offset_and_epoch(batch, offset, 0)
    log.append_as_follower(batch)
    commit_all(log)


def test_a_follower_keeps_what_it_copied_of_a_topic_that_was_compacted_once(make_log: MakeLog) -> None:
    """It knows nothing of that compaction. A gap between two segments would be taken for the work of a power loss."""
    log = make_log(segment_bytes=300)
    offsets = list(range(0, 1000, 100))
    for offset in offsets:
        follow(log, offset, bytes(60))
    assert len(log.segments) > 3
    assert [record.offset for record in read_all(reload(log))] == offsets


def test_a_gap_too_wide_for_one_segment_hides_nothing_from_a_reader_at_the_start(make_log: MakeLog) -> None:
    log = make_log(cleanup_compact=True)
    offsets = [2**31 + 5, 2**31 + 6, 2**33]
    for offset in offsets:
        follow(log, offset)
    assert log.log_start_offset == 0
    assert [record.offset for record in read_all(log)] == offsets
    assert [record.offset for record in read_all(reload(log))] == offsets


def two_epochs(log: Log) -> None:
    for number, epoch in enumerate((0, 0, 1, 1)):
        put(log, ONE, epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=number)


def test_a_cut_takes_epochs_recovery_point_and_producers_with_it(make_log: MakeLog) -> None:
    log = make_log()
    two_epochs(log)
    log.flush()
    log.truncate_to(2)
    assert log.latest_epoch() == 0
    assert log.recovery_point == 2, "what is written there next must be looked at after a crash"
    assert log.producers_state.entries[7].last_sequence == 1


def test_a_cut_leaves_no_snapshot_of_what_it_took(make_log: MakeLog) -> None:
    log = make_log()
    two_epochs(log)
    maintenance.roll(log, 4)
    put(log, ONE, producer_id=7, producer_epoch=0, base_sequence=4)
    log.truncate_to(2)
    assert producer_snapshot.snapshot_offsets(log.directory) == []
    put(log, ONE)
    again = reload(log)
    assert again.producers_state.entries[7].last_sequence == 1


def test_a_flush_that_ran_during_a_cut_promises_nothing_behind_it(make_log: MakeLog) -> None:
    log = make_log()
    two_epochs(log)
    job = maintenance.begin_flush(log)
    assert job is not None
    log.truncate_to(1)
    for _ in range(5):
        put(log, ONE)
    job.run()
    assert log.recovery_point <= 1


def test_an_epoch_without_records_gives_way_to_the_next(make_log: MakeLog) -> None:
    log = make_log()
    put(log, ONE, epoch=1)
    log.assign_epoch_start(2, 1)
    log.assign_epoch_start(3, 1)
    assert log.epochs.entries() == [(1, 0), (3, 1)]
    assert log.end_offset_for_epoch(2) == (1, 1), "an epoch that is not on record ended where the one before it did"


def test_a_snapshot_behind_a_torn_batch_names_no_end(make_log: MakeLog) -> None:
    """It was written before the crash took what it speaks of; the next clean start would take it for the log's end."""
    log = make_log()
    for number in range(6):
        if number in (2, 4):
            maintenance.roll(log, number)
        put(log, ONE, producer_id=7, producer_epoch=0, base_sequence=number)
    second = log.segments[1]
    with open(second.path, "r+b") as file:  # noqa: PTH123
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    recovered = reload(log, recovery_point=2)
    assert recovered.log_end_offset == 3
    maintenance.close(recovered, clean=True)
    again = reload(recovered, clean=True)
    assert again.log_end_offset == 3
    assert again.producers_state.entries[7].last_sequence == 2


def test_a_log_never_begins_behind_what_is_committed(make_log: MakeLog) -> None:
    log = make_log()
    for _ in range(4):
        append(log, ONE)
    log.write_staged()
    log.set_high_watermark(2)
    log.raise_log_start_offset(4)
    assert log.log_start_offset == 2
    assert end_transaction(log, 9, commit=True).error == ErrorCode.NONE


def test_a_swap_that_had_not_begun_for_all_is_undone_for_all(make_log: MakeLog) -> None:
    """Renames go from the highest base down: one that is still `.cleaned` says that the crash came in their midst."""
    log = make_log()
    put(log, ONE)
    maintenance.roll(log, 1)
    put(log, ONE)
    old = {segment.base_offset: segment.path for segment in log.segments}
    before = open(old[1], "rb").read()  # noqa: PTH123, SIM115
    other = bytearray(batch_of(log, (b"k", b"half of a compaction")))
    patch_offset_and_epoch(other, 1, 0)
    maintenance.close(log, clean=False)
    for base, suffix in ((0, ".cleaned"), (1, ".swap")):
        with open(old[base] + suffix, "wb") as file:  # noqa: PTH123
            file.write(before if base == 0 else other)
    left = recovery.finish_swap(log.directory)
    assert not [name for name in left if name.endswith((".cleaned", ".swap"))]
    assert open(old[1], "rb").read() == before and os.path.exists(old[0])  # noqa: PTH110, PTH123, SIM115
    assert [record.offset for record in read_all(reload(log))] == [0, 1]
