"""A decision too large for one transaction: whichever of its transactions survive a crash, the next controller finds a
valid state and goes on from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import pytest

from penstock.cluster import controller_store, znodes
from penstock.cluster.controller import decide
from penstock.cluster.controller_store import FencedWriter, StateUnknown
from penstock.cluster.events import (
    AlterPartitions,
    AlterReassignments,
    DeletionsRequested,
    Event,
    IsrChange,
    IsrMember,
    ReplicaAssignment,
    TopicRecord,
    TopicsChanged,
)
from penstock.store.embedded import EmbeddedStore
from penstock.store.interface import ConnectionLost, Create, Operation, OperationResult
from tests.cluster.world import SESSION, World

PARTITIONS = 4
TRANSACTIONS = 8
"""More than any of these decisions has."""


class DyingStore(EmbeddedStore):
    """Only some transactions reach the disk; the process dies with the others in flight."""

    survivors: frozenset[int] = frozenset()
    count = 0

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        number, self.count = self.count, self.count + 1
        if number not in self.survivors:
            raise ConnectionLost("the controller died")
        return await super().multi(operations)


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_store, "OPERATIONS_PER_MULTI", 2)


def store_some(world: World, event: Event, survivors: frozenset[int]) -> int:
    """Decide, and write what survives; how many transactions were begun."""
    decision = decide(world.state, event)
    store = DyingStore(world.database)
    store.survivors = survivors

    async def write() -> None:
        await store.start()
        try:
            await FencedWriter(store, 1, 0).write(decision.output)
        except StateUnknown:
            pass
        finally:
            await store.close()

    asyncio.run(write())
    return store.count


def crashes(prepare: Callable[[], tuple[World, Event]]) -> Iterator[World]:
    """The world after each way to die in the middle of that decision, under its next controller."""
    seen: set[int] = set()
    for size in range(TRANSACTIONS + 1):
        for survivors in combinations(range(TRANSACTIONS), size):
            world, event = prepare()
            world._ensure(znodes.CONTROLLER_EPOCH)
            seen.add(store_some(world, event, frozenset(survivors)))
            world.reload()
            yield world
    assert max(seen) > 2, "the decision was not large enough to prove anything"


def reassigned(world: World) -> Event:
    """All partitions move from (1, 2) to (3, 4), whose replicas have just caught up."""
    world.create_topic("t", *([(1, 2)] * PARTITIONS))
    world.acknowledge(1, 2, 3, 4)
    world.happen(AlterReassignments({("t", index): (3, 4) for index in range(PARTITIONS)}))
    changes = []
    for index in range(PARTITIONS):
        p = world.partition("t", index)
        members = tuple(IsrMember(broker) for broker in (1, 2, 3, 4))
        changes.append(IsrChange(index, p.leader_epoch, p.partition_epoch, members, topic="t"))
    return AlterPartitions(1, world.epochs[1], tuple(changes))


def test_the_end_of_a_reassignment() -> None:
    def prepare() -> tuple[World, Event]:
        world = World(1, 2, 3, 4)
        return world, reassigned(world)

    for world in crashes(prepare):
        for index in range(PARTITIONS):
            p = world.partition("t", index)
            assert p.leader in p.replicas and p.leader in p.isr, "nobody leads who has been told to delete"
            assert set(p.replicas) in ({3, 4}, {1, 2, 3, 4})


def test_the_start_of_a_reassignment() -> None:
    def prepare() -> tuple[World, Event]:
        world = World(1, 2, 3, 4)
        world.create_topic("t", *([(1, 2)] * PARTITIONS))
        world.create_topic("u", *([(1, 2)] * PARTITIONS))
        world.create_topic("v", *([(1, 2)] * PARTITIONS))
        world.acknowledge(1, 2, 3, 4)
        return world, AlterReassignments({(t, i): (2, 3) for t in "tuv" for i in range(PARTITIONS)})

    for world in crashes(prepare):
        for topic in "tuv":
            for index in range(PARTITIONS):
                p = world.partition(topic, index)
                assert p.leader in (1, 2) and 3 not in p.isr
                assert p.new == ((3,) if 3 in p.replicas else ()), "an added replica is never taken for a lost one"


def test_a_new_topic() -> None:
    def prepare() -> tuple[World, Event]:
        world = World(1, 2)
        assignments = {index: ReplicaAssignment((1, 2)) for index in range(PARTITIONS)}
        other = World(1).create_topic("t", (1,))
        data = znodes.encode_topic(other, assignments)
        world.tree.apply([Create(znodes.topic_path("t"), data)], SESSION, 0)
        return world, TopicsChanged({"t": TopicRecord(other, assignments, 0)})

    for world in crashes(prepare):
        for index in range(PARTITIONS):
            p = world.partition("t", index)
            assert (p.leader, p.isr, p.new) == (1, (1, 2), (1, 2))


def test_a_deletion() -> None:
    def prepare() -> tuple[World, Event]:
        world = World(1, 2)
        world.create_topic("t", *([(1, 2)] * 2))
        world._ensure(znodes.deletion_path("t"))
        return world, DeletionsRequested(("t",))

    for world in crashes(prepare):
        assert "t" not in world.image.topics and znodes.topic_path("t") not in world.tree.nodes
        assert [deletion.topic for deletion in world.state.deletions.values()] == ["t"], "its holders will be told"
