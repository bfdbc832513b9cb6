"""Stories of a follower: what it does with its leader's answers, and that two logs always come to agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.following import (
    FetchAnswer,
    Outcome,
    position,
    take_answer,
    take_leader_offsets,
    up_to_epoch,
)
from penstock.replication.partition import Partition
from penstock.testing.simulation.disk import Entry, SimLog
from tests.replication.stage import TOPIC_ID, Brokers, ManualClock, Stage, assignment, new_log


def entries(first: int, count: int, epoch: int = 0) -> bytes:
    return b"".join(Entry(first + n, epoch, 1, first + n, 1, first + n).encode() for n in range(count))


def test_records_are_appended_and_the_high_watermark_follows_as_far_as_the_log_reaches() -> None:
    stage = Stage(leader=2)
    here = position(stage.partition)
    answer = FetchAnswer(0, high_watermark=9, log_start_offset=0, records=entries(0, 3))
    assert take_answer(stage.partition, here, answer) is Outcome.FETCH
    assert (stage.log.log_end_offset, stage.high_watermark) == (3, 3)


def test_an_answer_from_another_epoch_or_position_is_ignored() -> None:
    stage = Stage(leader=2)
    here = position(stage.partition)
    answer = FetchAnswer(0, 1, 0, records=entries(0, 1))
    stage.partition.become_follower(assignment(leader=3, leader_epoch=1, partition_epoch=1))
    assert take_answer(stage.partition, here, answer) is Outcome.IGNORE
    moved = position(stage.partition)
    assert take_answer(stage.partition, moved, answer) is Outcome.FETCH
    assert take_answer(stage.partition, moved, answer) is Outcome.IGNORE
    assert stage.log.log_end_offset == 1


def test_a_leader_takes_no_answers() -> None:
    stage = Stage(leader=2)
    here = position(stage.partition)
    stage.partition.become_leader(assignment(leader=1, leader_epoch=0, partition_epoch=1))
    assert take_answer(stage.partition, here, FetchAnswer(0, 1, 0, records=entries(0, 1))) is Outcome.IGNORE


def test_the_log_start_is_raised_with_the_leaders() -> None:
    stage = Stage(leader=2)
    take_answer(stage.partition, position(stage.partition), FetchAnswer(0, 5, 4, records=entries(0, 5)))
    assert stage.log.log_start_offset == 4


def test_batches_of_a_later_epoch_than_asked_under_are_dropped() -> None:
    mixed = entries(0, 2, epoch=3) + entries(2, 2, epoch=4)
    assert up_to_epoch(mixed, 4) == mixed
    assert up_to_epoch(mixed, 3) == entries(0, 2, epoch=3)


def test_each_error_has_its_reaction() -> None:
    stage = Stage(leader=2)
    here = position(stage.partition)
    reactions = {
        ErrorCode.OFFSET_OUT_OF_RANGE: Outcome.ASK_OFFSETS,
        ErrorCode.FENCED_LEADER_EPOCH: Outcome.WAIT,
        ErrorCode.UNKNOWN_LEADER_EPOCH: Outcome.BACK_OFF,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: Outcome.BACK_OFF,
        ErrorCode.KAFKA_STORAGE_ERROR: Outcome.BACK_OFF,
    }
    for error, reaction in reactions.items():
        assert take_answer(stage.partition, here, FetchAnswer(int(error))) is reaction


def test_a_full_disk_is_tried_again_and_nothing_of_the_answer_stays() -> None:
    stage = Stage(leader=2)
    stage.log._disk.full = True
    answer = FetchAnswer(0, 3, 0, records=entries(0, 3))
    assert take_answer(stage.partition, position(stage.partition), answer) is Outcome.BACK_OFF
    assert (stage.log.log_end_offset, stage.high_watermark) == (0, 0)
    stage.log._disk.full = False
    assert take_answer(stage.partition, position(stage.partition), answer) is Outcome.FETCH


def test_without_epochs_only_what_was_committed_is_kept() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    stage.append(3)
    stage.fetch_from(2, 3)
    stage.append(4)
    stage.log.stored.epochs = []
    stage.partition.become_follower(assignment(leader=2, leader_epoch=1, partition_epoch=1))
    assert stage.log.log_end_offset == 3


def test_a_leader_that_lost_its_end_takes_ours_with_it() -> None:
    stage = Stage(leader=2)
    take_answer(stage.partition, position(stage.partition), FetchAnswer(0, 0, 0, records=entries(0, 9)))
    here = position(stage.partition)
    assert take_leader_offsets(stage.partition, here, leader_start=0, leader_end=6) is Outcome.FETCH
    assert stage.log.log_end_offset == 6


def test_a_leader_that_dropped_its_beginning_makes_us_start_there() -> None:
    stage = Stage(leader=2)
    take_answer(stage.partition, position(stage.partition), FetchAnswer(0, 0, 0, records=entries(0, 3)))
    take_leader_offsets(stage.partition, position(stage.partition), leader_start=50, leader_end=60)
    assert (stage.log.log_start_offset, stage.log.log_end_offset) == (50, 50)


def test_a_position_that_is_right_meanwhile_is_kept() -> None:
    stage = Stage(leader=2)
    take_answer(stage.partition, position(stage.partition), FetchAnswer(0, 0, 0, records=entries(0, 3)))
    take_leader_offsets(stage.partition, position(stage.partition), leader_start=1, leader_end=8)
    assert stage.log.log_end_offset == 3


# -- any two histories come to agree -----------------------------------------------------------------------------------

histories = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=6)
"""Steps of (epochs to skip, records to write): each begins a new epoch, which may stay empty."""


def write_history(log: SimLog, steps: list[tuple[int, int]], epoch: int, marker: int) -> int:
    for skipped, records in steps:
        epoch += 1 + skipped
        log.assign_epoch_start(epoch, log.log_end_offset)
        for _ in range(records):
            offset = log.log_end_offset
            batch = Entry(0, 0, marker * 10_000 + offset, 0, 1, marker * 10_000 + offset).encode()
            log.append_as_leader(batch, epoch, 0)
        log.write_staged()
    return epoch


def follow_until_equal(leader: Partition, follower: Partition) -> int:
    """The real exchange, without network; the number of fetches that it took."""
    for round_number in range(1, 100):
        here = position(follower)
        fetched = reads.follower_fetch(
            leader,
            2,
            -1,
            here.fetch_offset,
            here.log_start_offset,
            200,
            current_leader_epoch=here.leader_epoch,
            last_fetched_epoch=here.last_fetched_epoch,
        )
        region = fetched.region
        data = b""
        if region is not None and region.length:
            found = region.file[region.position : region.position + region.length // len(Entry(*[0] * 6).encode())]  # type: ignore[index]
            data = b"".join(entry.encode() for entry in found)
        answer = FetchAnswer(
            fetched.error, fetched.high_watermark, fetched.log_start_offset, fetched.diverging_epoch, data
        )
        outcome = take_answer(follower, here, answer)
        if outcome is Outcome.ASK_OFFSETS:
            outcome = take_leader_offsets(follower, here, leader.log.log_start_offset, leader.log.log_end_offset)
        assert outcome is Outcome.FETCH
        if fetched.diverging_epoch is None and not data and not fetched.error:
            return round_number
    raise AssertionError("they never agree")


@settings(max_examples=300, deadline=None)
@given(common=histories, of_leader=histories, of_follower=histories, first_apart=st.booleans())
def test_whatever_two_logs_went_through_the_follower_ends_with_the_leaders_log(
    common: list[tuple[int, int]],
    of_leader: list[tuple[int, int]],
    of_follower: list[tuple[int, int]],
    first_apart: bool,
) -> None:
    leader_log, follower_log = new_log(node_id=1), new_log(node_id=2)
    epoch = 0
    for log in (leader_log, follower_log):
        epoch = write_history(log, common, -1, marker=0)
    agreed = leader_log.log_end_offset
    # No two leaders share an epoch: one side takes the even, the other the odd steps from here on.
    base = epoch * 2 + 2
    leader_epoch = write_history(leader_log, [(2 * s + 1, n) for s, n in of_leader], base + first_apart, marker=1)
    write_history(follower_log, [(2 * s + 1, n) for s, n in of_follower], base + (not first_apart), marker=2)
    clock, brokers = ManualClock(), Brokers(1, 2)
    leader = Partition("t", 0, TOPIC_ID, leader_log, 1, clock, brokers, lambda *_: None)
    follower = Partition("t", 0, TOPIC_ID, follower_log, 2, clock, brokers, lambda *_: None)
    newest = max(leader_epoch, follower_log.latest_epoch() or 0) + 1
    state = assignment(leader=1, isr=(1,), replicas=(1, 2), leader_epoch=newest)
    leader.become_leader(state)
    follower.become_follower(state)
    lowest = [follower_log.log_end_offset]
    truncate = follower_log.truncate_to

    def watched(offset: int) -> bool:
        lowest.append(offset)
        return truncate(offset)

    follower_log.truncate_to = watched  # type: ignore[method-assign]
    follow_until_equal(leader, follower)
    assert follower_log.stored.entries == leader_log.stored.entries
    assert min(lowest) >= agreed, "what both had was never cut"
