"""Rules of leaders that a good day never asks for: each story kills a wrong rule that all others let live."""

from __future__ import annotations

from dataclasses import replace

from penstock.protocol.errors import ErrorCode
from penstock.replication.fetch_plan import FetchPlan
from penstock.replication.following import Outcome
from tests.replication.stage import Stage, assignment


def test_an_isr_that_was_replaced_does_not_come_back_with_late_metadata() -> None:
    stage = Stage(isr=(1, 2, 3), partition_epoch=4)
    stage.partition.become_leader(assignment(isr=(1, 2), partition_epoch=6))
    assert not stage.partition.become_leader(assignment(isr=(1, 2, 3), partition_epoch=5))
    assert (stage.partition.isr, stage.partition.partition_epoch) == ((1, 2), 6)


def test_the_min_isr_on_record_counts_whatever_the_topic_says_by_now() -> None:
    """The controller goes by it: two of them would let a leader commit what no eligible leader has."""
    stage = Stage(min_insync_replicas=1)
    stage.partition.become_leader(replace(assignment(isr=(1,), partition_epoch=1), min_isr=2))
    assert stage.partition.append_error(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    stage.append()
    assert stage.high_watermark == 0


def test_one_isr_change_is_in_flight_at_a_time() -> None:
    stage = Stage(isr=(1, 2))
    stage.append()
    stage.fetch_from(2, 1)
    stage.fetch_from(3, 1)
    stage.append()
    stage.clock.advance(60_000)  # now both lag
    assert not stage.partition.shrink_isr()
    assert [proposal.isr for proposal in stage.proposals] == [(1, 2, 3)]


def test_an_answer_that_skips_a_change_waits_for_the_metadata_that_explains_it() -> None:
    """Between the two the controller may have moved replicas: its ISR alone is not the state of the partition."""
    stage = Stage(isr=(1, 2))
    stage.append()
    stage.fetch_from(2, 1)
    stage.fetch_from(3, 1)
    proposal = stage.proposals[-1]
    stage.partition.isr_recorded(proposal, (1,), leader_epoch=0, partition_epoch=2)
    assert (stage.partition.isr, stage.partition.isr_proposal) == ((1, 2), proposal)
    stage.partition.isr_recorded(proposal, (1, 2, 3), leader_epoch=0, partition_epoch=1)
    assert (stage.partition.isr, stage.partition.isr_proposal) == ((1, 2, 3), None)


def test_who_is_always_one_fetch_behind_was_caught_up_at_the_fetch_before() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    stage.append()
    stage.fetch_from(2, 0)
    for offset in (1, 2):
        stage.clock.advance(20_000)
        stage.append()
        stage.fetch_from(2, offset)
    stage.clock.advance(15_000)  # asked 15 s ago, caught up 35 s ago
    assert stage.partition.shrink_isr()
    assert stage.proposals[-1].isr == (1,)


def test_a_fenced_partition_is_not_asked_for() -> None:
    stage = Stage(leader=2)
    plan = FetchPlan()
    plan.add(stage.partition)
    plan.next(0)
    plan.answered(0, 77)
    plan.settled(("t", 0), Outcome.WAIT, 0)
    assert not plan.active
    assert plan.next(1e9).forgotten == [stage.partition]
