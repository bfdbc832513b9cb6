"""Replicas on the move: start, progress, end, cancel, and what is refused."""

from __future__ import annotations

import pytest

from penstock.cluster.events import AlterPartitions, AlterPartitionsAnswer, AlterReassignments, IsrChange, IsrMember
from penstock.protocol.errors import ErrorCode
from tests.cluster.world import World


def reassign(world: World, target: tuple[int, ...] | None, topic: str = "t", **options: bool) -> int:
    answers = world.happen(AlterReassignments({(topic, 0): target}, **options))
    assert isinstance(answers, dict)
    return int(answers[(topic, 0)].error_code)


def catch_up(world: World, *isr: int) -> int:
    """The leader reports this ISR; returns the answer's code."""
    p = world.partition("t")
    members = tuple(IsrMember(b, world.epochs[b]) for b in isr)
    change = IsrChange(0, p.leader_epoch, p.partition_epoch, members, topic="t")
    answer = world.happen(AlterPartitions(p.leader, world.epochs[p.leader], (change,)))
    assert isinstance(answer, AlterPartitionsAnswer)
    return answer.changes[0].error_code


def test_replicas_move_to_other_brokers() -> None:
    world = World(1, 2, 3, 4)
    world.create_topic("t", (1, 2))
    assert reassign(world, (3, 4)) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.adding, p.removing, p.leader) == ((3, 4, 1, 2), (3, 4), (1, 2), 1)
    assert catch_up(world, 1, 2, 3) == ErrorCode.NONE
    assert world.partition("t").is_reassigning, "one new replica is not enough"
    assert catch_up(world, 1, 2, 3, 4) == ErrorCode.NEW_LEADER_ELECTED
    p = world.partition("t")
    assert (p.replicas, p.isr, p.leader, p.adding, p.removing) == ((3, 4), (3, 4), 3, (), ())
    assert p.leader_epoch == 1


def test_the_leader_stays_when_it_is_among_the_targets() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2))
    reassign(world, (3, 1))
    assert catch_up(world, 1, 2, 3) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.isr, p.leader, p.leader_epoch) == ((3, 1), (1, 3), 1, 1)


def test_a_smaller_replication_factor_takes_effect_at_once_when_the_targets_are_in_sync() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    assert reassign(world, (2, 3)) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.isr, p.leader, p.adding, p.removing) == ((2, 3), (2, 3), 2, (), ())


def test_a_larger_replication_factor_waits_for_the_new_replicas() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1,))
    assert reassign(world, (1, 2, 3)) == ErrorCode.NONE
    assert world.partition("t").adding == (2, 3)
    catch_up(world, 1, 2, 3)
    p = world.partition("t")
    assert (p.replicas, p.isr, p.leader_epoch, p.adding) == ((1, 2, 3), (1, 2, 3), 0, ())


def test_another_order_changes_only_the_preferred_leader() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    assert reassign(world, (2, 1)) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.leader, p.leader_epoch, p.is_reassigning) == ((2, 1), 1, 0, False)


def test_cancel_brings_the_old_replicas_back() -> None:
    world = World(1, 2, 3, 4)
    world.create_topic("t", (1, 2))
    reassign(world, (3, 4))
    catch_up(world, 1, 2, 3)
    assert reassign(world, None) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.isr, p.leader, p.adding, p.removing) == ((1, 2), (1, 2), 1, (), ())
    assert p.leader_epoch == 1, "a replica left the list: the leader must stop counting it"


def test_cancel_is_refused_when_only_new_replicas_are_in_sync() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1,))
    reassign(world, (2, 3))
    catch_up(world, 1, 2)
    world.brokers_down(1)
    assert world.partition("t").isr == (2,)
    assert reassign(world, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition("t").leader == 2


def test_a_running_reassignment_can_be_replaced() -> None:
    world = World(1, 2, 3, 4)
    world.create_topic("t", (1, 2))
    reassign(world, (1, 3))
    assert reassign(world, (1, 4)) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.adding, p.removing) == ((1, 4, 2), (4,), (2,))
    catch_up(world, 1, 2, 4)
    assert world.partition("t").replicas == (1, 4)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_targets_that_cannot_be(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    before = world.partition("t")
    assert reassign(world, target) == code
    assert world.partition("t") == before


def test_unknown_partitions_and_forbidden_factors() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2))
    assert reassign(world, (1,), topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = reassign(world, (1, 2, 3), allow_replication_factor_change=False)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(world, (1, 3), allow_replication_factor_change=False) == ErrorCode.NONE


def test_a_new_controller_finishes_a_reassignment() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1,))
    reassign(world, (2, 3))
    world.reload()
    assert world.partition("t").adding == (2, 3)
    catch_up(world, 1, 2, 3)
    assert world.partition("t").replicas == (2, 3)


def test_partitions_grow_while_replicas_move() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2))
    reassign(world, (1, 3))
    world.grow_topic("t", (2, 3))
    assert world.partition("t", 0).adding == (3,)
    catch_up(world, 1, 2, 3)
    assert (world.partition("t", 0).replicas, world.partition("t", 1).replicas) == ((1, 3), (2, 3))
