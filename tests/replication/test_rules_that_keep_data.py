"""Five rules that no client would see broken on a good day. Each story fails as soon as its rule is taken out, which is
tried here as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.cluster.events import AlterPartitions, IsrChange, IsrMember
from penstock.protocol.errors import ErrorCode
from penstock.replication import following
from penstock.replication.following import FetchAnswer, Outcome, position, take_answer
from penstock.replication.isr_sender import build_request
from penstock.replication.partition import Partition
from penstock.testing.simulation.disk import Entry
from tests.cluster.world import World
from tests.replication.stage import Stage, assignment


def test_the_high_watermark_waits_for_members_that_are_about_to_join() -> None:
    """The controller may have recorded them already: whoever it elects next must have what counts as committed."""
    stage = Stage(isr=(1, 2))
    stage.append(2)
    stage.fetch_from(2, 2)
    stage.fetch_from(3, 2)
    assert stage.proposals[-1].joining == (3,)
    stage.clock.advance(60_000)  # 3 is silent: nothing but the proposal speaks for it
    stage.append(3)
    stage.fetch_from(2, 5)
    assert stage.high_watermark == 2
    stage.fetch_from(3, 5)
    assert stage.high_watermark == 5


def test_a_follower_may_not_join_before_it_has_reached_the_start_of_the_epoch() -> None:
    """What lies between the high watermark that a new leader knows and its log end may be committed long since."""
    stage = Stage(leader=2, isr=(1, 2))
    here = position(stage.partition)
    records = b"".join(Entry(n, 0, 1, n, 1, n).encode() for n in range(5))
    take_answer(stage.partition, here, FetchAnswer(0, 2, 0, records=records))
    stage.partition.become_leader(assignment(isr=(1, 2), leader_epoch=1, partition_epoch=1))
    stage.fetch_from(3, 2, last_fetched_epoch=0)
    stage.fetch_from(3, 4, last_fetched_epoch=0)
    assert stage.proposals == []
    stage.fetch_from(3, 5, last_fetched_epoch=0)
    assert stage.proposals[-1].joining == (3,)


def test_a_fetch_of_an_earlier_life_says_nothing() -> None:
    """A late request of a process that is gone: the log behind it may have lost its tail."""
    stage = Stage(isr=(1, 2))
    stage.append(3)
    stage.brokers.epochs[2] = 500
    late = stage.fetch_from(2, 3, broker_epoch=102)
    assert late.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.high_watermark == 0
    stage.fetch_from(2, 3, broker_epoch=500)
    assert stage.high_watermark == 3
    assert stage.fetch_from(2, 3, broker_epoch=102).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_isr_change_names_the_lives_of_its_members() -> None:
    """So the controller refuses one whose broker has restarted since its leader looked."""
    stage = Stage(isr=(1, 2))
    stage.append(1)
    stage.fetch_from(2, 1)
    stage.fetch_from(3, 1)
    request = build_request(1, 101, stage.proposals)
    (asked,) = request.topics[0].partitions
    assert request.broker_epoch == 101
    assert [(m.broker_id, m.broker_epoch) for m in asked.new_isr_with_epochs] == [(1, 101), (2, 102), (3, 103)]
    world = World(1, 2)
    topic_id = world.create_topic("t", (1, 2))
    world.brokers_up(2)
    p = world.partition("t")
    members = (IsrMember(1, world.epochs[1]), IsrMember(2, world.epochs[2] - 1))
    change = IsrChange(0, p.leader_epoch, p.partition_epoch, members, topic_id=topic_id)
    answer: Any = world.happen(AlterPartitions(1, world.epochs[1], (change,)))
    assert answer.changes[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_batches_of_a_later_epoch_are_not_appended() -> None:
    """They are another leader's bytes: this one had lost its place before it sent them."""
    stage = Stage(leader=2)
    records = Entry(0, 0, 1, 0, 1, 0).encode() + Entry(1, 1, 1, 1, 1, 1).encode()
    answer = FetchAnswer(0, high_watermark=2, log_start_offset=0, records=records)
    assert take_answer(stage.partition, position(stage.partition), answer) is Outcome.FETCH
    assert (stage.log.log_end_offset, stage.log.latest_epoch()) == (1, 0)


def _ignore_joining(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "maximal_isr", lambda self: self.isr)


def _ignore_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    expand = Partition._maybe_expand_isr

    def hasty(self: Partition, follower: Any) -> None:
        start, self.leader_epoch_start_offset = self.leader_epoch_start_offset, 0
        expand(self, follower)
        self.leader_epoch_start_offset = start

    patch.setattr(Partition, "_maybe_expand_isr", hasty)


def _accept_any_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "accepts_broker_epoch", lambda self, broker_id, broker_epoch: True)


def _name_no_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_known_epoch", lambda self, broker_id: -1)


def _append_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "up_to_epoch", lambda records, leader_epoch: records)


@pytest.mark.parametrize(
    ("take_out", "story"),
    [
        (_ignore_joining, test_the_high_watermark_waits_for_members_that_are_about_to_join),
        (_ignore_the_epochs_start, test_a_follower_may_not_join_before_it_has_reached_the_start_of_the_epoch),
        (_accept_any_life, test_a_fetch_of_an_earlier_life_says_nothing),
        (_name_no_lives, test_an_isr_change_names_the_lives_of_its_members),
        (_append_everything, test_batches_of_a_later_epoch_are_not_appended),
    ],
)
def test_each_story_fails_without_its_rule(
    take_out: Callable[[pytest.MonkeyPatch], None], story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    with pytest.raises(AssertionError):
        story()
