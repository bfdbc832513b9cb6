"""Stories of groups with members of both protocols: when the classic ones are called to join again, as in Kafka 4.3."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.group.classic_members import SyncRequest
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World

NONE = ErrorCode.NONE
CALLED = ErrorCode.REBALANCE_IN_PROGRESS


class Mixed:
    """Two classic members at rest beside the consumer `new`."""

    def __init__(self, **config: Any) -> None:
        self.world = World(initial_rebalance_delay_ms=0, **config)
        self.world.topics.create("t", 6)
        self.first, answers = self.world.join_with_id()
        self.world.pass_time(1)
        self.world.sync(self.first, answers[0].generation)
        self.world.consumer_join("new", "t")
        self.second, _ = self.world.join_with_id()
        for _ in range(5):
            self.generation = max(self._join_and_sync(member) for member in (self.first, self.second))
            self.beat()
        assert [self.called(member) for member in (self.first, self.second)] == [NONE, NONE]

    def _join_and_sync(self, member: str) -> int:
        (answer,) = self.world.join(member, session_timeout_ms=300_000)
        self.world.sync(member, answer.generation)
        return answer.generation

    def beat(self) -> None:
        """The consumer's heartbeat, which has the assignment made."""
        member = self.world.consumer_group().members["new"]
        assert self.world.consumer_heartbeat("new", member.member_epoch, owned=member.assigned).error is NONE

    def called(self, member: str) -> ErrorCode:
        return self.world.heartbeat(member, self.generation)


def test_a_classic_member_is_called_when_there_is_a_new_assignment_not_before() -> None:
    group = Mixed()
    assert group.world.leave(group.second) == [NONE]
    assert group.called(group.first) is NONE, "the epoch of the group has moved, its assignment not yet"
    assert group.world.sync(group.first, group.generation)[0].error is NONE
    group.beat()
    assert group.called(group.first) is CALLED
    assert group.world.sync(group.first, group.generation)[0].error is CALLED


def test_classic_members_alone_in_a_consumer_group_are_called_at_once() -> None:
    """Where groups may not go back, nobody else would ever have the assignment made."""
    group = Mixed(consumer_migration_policy="upgrade")
    group.world.consumer_heartbeat("new", -1)
    assert isinstance(group.world.shard.groups["g"], ConsumerGroup)
    assert group.called(group.first) is CALLED


def test_a_classic_member_syncs_with_the_protocol_that_it_was_told() -> None:
    group = Mixed()
    request = SyncRequest("g", group.first, group.generation, protocol_type="consumer", protocol="roundrobin")
    assert group.world.sync_with(request)[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_one_that_is_told_by_its_sync_to_join_and_never_does_is_taken_out() -> None:
    group = Mixed()
    group.world.leave(group.second)
    group.beat()
    assert group.world.sync(group.first, group.generation)[0].error is CALLED
    for _ in range(13):
        group.world.pass_time(5_000)
        group.beat()
    assert group.first not in group.world.consumer_group().members


def test_a_classic_member_commits_with_an_older_generation_what_it_has_held_since_then() -> None:
    """As members of the new protocol do (seen of Kafka in lockstep)."""
    group = Mixed()
    members = group.world.consumer_group().members
    member, other = members[group.first], members[group.second]
    held, foreign = (sorted(p for of in one.assigned.values() for p in of)[0] for one in (member, other))
    group.world.leave(group.second)
    group.beat()
    before, after = member.member_epoch, group._join_and_sync(group.first)
    assert after > before
    assert group.world.commit(group.first, before, partition=held) == [NONE]
    assert group.world.commit(group.first, before, partition=foreign) == [ErrorCode.ILLEGAL_GENERATION], (
        "not its own then"
    )
    assert group.world.commit(group.first, after + 1, partition=held) == [ErrorCode.ILLEGAL_GENERATION]
