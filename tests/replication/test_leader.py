"""Stories of a leader: what counts as committed, who is in sync, and who must wait."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from tests.replication.stage import Stage, assignment


def test_a_lone_replica_commits_what_it_writes() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.append(3)
    assert stage.high_watermark == 3


def test_nothing_staged_is_committed() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.append(3, write=False)
    stage.partition.advance_high_watermark()
    assert stage.high_watermark == 0


def test_the_high_watermark_is_what_the_slowest_member_of_the_isr_has() -> None:
    stage = Stage()
    stage.append()
    stage.append()
    stage.fetch_from(2, 2)
    assert stage.high_watermark == 0, "broker 3 has not fetched yet"
    stage.fetch_from(3, 1)
    assert stage.high_watermark == 1
    stage.fetch_from(3, 2)
    assert stage.high_watermark == 2


def test_a_fetch_that_goes_back_does_not_take_the_high_watermark_with_it() -> None:
    stage = Stage()
    stage.append(2)
    stage.fetch_from(2, 2)
    stage.fetch_from(3, 2)
    stage.fetch_from(3, 0)
    assert stage.high_watermark == 2


def test_the_answer_to_a_fetch_carries_the_high_watermark_that_it_moved() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    stage.append(2)
    assert stage.fetch_from(2, 2).high_watermark == 2


def test_below_min_isr_acks_all_is_refused_and_acks_one_stays_invisible() -> None:
    stage = Stage(min_insync_replicas=2, isr=(1,))
    assert stage.partition.append_error(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.partition.append_error(1) == 0
    stage.append()
    assert stage.high_watermark == 0


def test_min_isr_never_asks_for_more_replicas_than_there_are() -> None:
    stage = Stage(min_insync_replicas=3, replicas=(1,), isr=(1,))
    assert stage.partition.append_error(-1) == 0


def test_a_follower_that_caught_up_is_proposed_once_and_counts_before_it_is_recorded() -> None:
    stage = Stage(isr=(1, 2))
    stage.append(2)
    stage.fetch_from(2, 2)
    stage.fetch_from(3, 2)
    stage.fetch_from(3, 2)
    (proposal,) = stage.proposals
    assert proposal.isr == (1, 2, 3)
    assert proposal.broker_epochs == (101, 102, 103)
    stage.append()
    stage.fetch_from(2, 3)
    assert stage.high_watermark == 2, "the joining member must have it too"
    stage.partition.isr_recorded(proposal, (1, 2, 3), 0, 1)
    assert stage.partition.isr == (1, 2, 3)
    assert stage.partition.partition_epoch == 1


def test_a_follower_behind_the_start_of_the_epoch_may_not_join() -> None:
    stage = Stage(isr=(1,))
    stage.append(5)
    stage.partition.become_leader(assignment(isr=(1,), leader_epoch=1, partition_epoch=1))
    stage.fetch_from(3, 4)
    assert stage.proposals == []


@pytest.mark.parametrize("epoch", [None, 999])
def test_a_follower_that_is_dead_or_in_another_life_may_not_join(epoch: int | None) -> None:
    stage = Stage(isr=(1,))
    if epoch is None:
        del stage.brokers.epochs[3]
        stage.fetch_from(3, 0, broker_epoch=103)
    else:
        stage.fetch_from(3, 0, broker_epoch=epoch)
    assert stage.proposals == []


def test_a_refused_member_is_forgotten_and_may_be_proposed_again() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch_from(3, 0)
    again = stage.partition.isr_refused(stage.proposals[0], ErrorCode.INELIGIBLE_REPLICA)
    assert not again
    assert stage.partition.maximal_isr() == (1, 2)
    stage.fetch_from(3, 0)
    assert len(stage.proposals) == 2


def test_a_controller_that_knows_more_keeps_the_proposal_in_flight_until_metadata_comes() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch_from(3, 0)
    again = stage.partition.isr_refused(stage.proposals[0], ErrorCode.INVALID_UPDATE_VERSION)
    assert not again
    assert stage.partition.maximal_isr() == (1, 2, 3)
    stage.partition.become_leader(assignment(isr=(1, 2), partition_epoch=4))
    assert stage.partition.maximal_isr() == (1, 2)


def test_a_lost_answer_means_asking_again() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch_from(3, 0)
    assert stage.partition.isr_refused(stage.proposals[0], ErrorCode.NOT_CONTROLLER)


def test_an_answer_to_an_overtaken_proposal_changes_nothing() -> None:
    stage = Stage(isr=(1, 2))
    stage.fetch_from(3, 0)
    stage.partition.become_leader(assignment(isr=(1,), partition_epoch=9))
    stage.partition.isr_recorded(stage.proposals[0], (1, 2, 3), 0, 1)
    assert stage.partition.isr == (1,)
    assert stage.partition.partition_epoch == 9


def test_a_member_that_lags_for_too_long_is_dropped_but_counts_until_that_is_recorded() -> None:
    stage = Stage()
    stage.append()
    stage.clock.advance(20_000)
    stage.fetch_from(2, 1)
    stage.clock.advance(20_000)
    assert stage.partition.shrink_isr()
    (proposal,) = stage.proposals
    assert proposal.isr == (1, 2)
    assert stage.high_watermark == 0
    stage.partition.isr_recorded(proposal, (1, 2), 0, 1)
    assert stage.high_watermark == 1


def test_a_member_that_has_everything_stays_although_it_is_silent() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    stage.append()
    stage.fetch_from(2, 1)
    stage.clock.advance(100_000)
    assert not stage.partition.shrink_isr()


def test_a_slow_but_steady_follower_was_caught_up_at_its_previous_fetch() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    for _ in range(5):
        end = stage.append()
        stage.fetch_from(2, end)
        stage.append()
        stage.clock.advance(20_000)
    assert not stage.partition.shrink_isr()


def test_acks_all_waits_for_the_high_watermark() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    answers = stage.wait_committed(stage.append())
    assert answers == []
    stage.fetch_from(2, 1)
    assert answers == [[0]]
    stage.timers.fire_all()
    assert answers == [[0]], "a wait ends once"


def test_a_wait_that_takes_too_long_is_told_so() -> None:
    stage = Stage()
    answers = stage.wait_committed(stage.append())
    stage.timers.fire_all()
    assert answers == [[ErrorCode.REQUEST_TIMED_OUT]]
    assert stage.parking.parked == 0


def test_who_waits_when_the_leadership_goes_is_told_so() -> None:
    stage = Stage()
    answers = stage.wait_committed(stage.append())
    stage.partition.become_follower(assignment(leader=2, leader_epoch=1, partition_epoch=1))
    assert answers == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]


def test_committed_with_too_few_replicas_is_told_so() -> None:
    stage = Stage(min_insync_replicas=1, isr=(1,))
    answers = stage.wait_committed(stage.append())
    assert answers == [[0]]
    stage.log.config.min_insync_replicas = 2
    assert stage.wait_committed(stage.log.log_end_offset) == [[ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]]


def test_a_failed_write_is_told_to_whoever_waits_for_it() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    kept = stage.wait_committed(stage.append())
    end = stage.append(write=False)
    void = stage.wait_committed(end)
    stage.log._disk.full = True
    stage.partition.write_now()
    assert void == [[ErrorCode.KAFKA_STORAGE_ERROR]]
    assert kept == []
    assert stage.partition.write_error is not None
    assert stage.log.log_end_offset == 1


def test_a_new_epoch_is_remembered_although_nothing_is_written_in_it() -> None:
    stage = Stage()
    stage.append(4)
    stage.partition.become_leader(assignment(leader_epoch=5, partition_epoch=1))
    assert stage.log.end_offset_for_epoch(0) == (0, 4)
    assert stage.log.end_offset_for_epoch(5) == (5, 4)


def test_older_metadata_is_ignored() -> None:
    stage = Stage(leader_epoch=3, partition_epoch=7)
    assert not stage.partition.become_follower(assignment(leader=2, leader_epoch=2, partition_epoch=6))
    assert stage.partition.is_leader


def test_a_new_isr_alone_begins_no_epoch() -> None:
    stage = Stage(leader_epoch=3, partition_epoch=7)
    assert not stage.partition.become_leader(assignment(isr=(1, 2), leader_epoch=3, partition_epoch=8))
    assert stage.partition.isr == (1, 2)


def test_delete_records_waits_for_the_replicas_that_live() -> None:
    stage = Stage()
    stage.append(10)
    stage.fetch_from(2, 10)
    stage.fetch_from(3, 10)
    assert stage.partition.delete_records(11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert stage.partition.delete_records(6) == (0, 6)
    answers: list[list[int]] = []
    stage.parking.until_low_watermark([(stage.partition, 6)], 1000, answers.append)
    stage.fetch_from(2, 10, log_start_offset=6)
    assert answers == []
    del stage.brokers.epochs[3]
    stage.partition.check_low_watermark()
    assert answers == [[0]]


def test_delete_records_is_refused_where_only_compaction_deletes() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.log.config.cleanup_compact, stage.log.config.cleanup_delete = True, False
    assert stage.partition.delete_records(-1)[0] == ErrorCode.POLICY_VIOLATION
