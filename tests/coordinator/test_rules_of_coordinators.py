"""Rules of coordinators that a good day never asks for: each story kills a wrong rule that all others let live."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.base.clock import ManualClock
from penstock.coordinator.group.classic_members import SyncRequest
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.service import GroupCoordinator
from penstock.coordinator.shard_log import Record
from penstock.coordinator.transaction.decisions import end
from penstock.coordinator.transaction.initialize import InitializeRequest
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.coordinator.transaction.state import Transaction, TransactionState
from penstock.coordinator.transaction.verification import ClientAbility, verify
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import MemoryLog, World
from tests.coordinator.test_transaction_coordinator import World as Transactions
from tests.coordinator.test_transaction_coordinator import opened, settled

NONE = ErrorCode.NONE


def test_two_commands_of_one_wake_up_do_not_decide_by_the_same_state() -> None:
    """The second one sees what the first one's record made: one producer id, two epochs."""

    async def story() -> None:
        coordinator = await Transactions().coordinator()
        first, second = await asyncio.gather(
            *(coordinator.initialize(InitializeRequest("t", 60_000)) for _ in range(2))
        )
        assert first.producer_id == second.producer_id
        assert {first.producer_epoch, second.producer_epoch} == {0, 1}
        await coordinator.stop()

    asyncio.run(story())


def test_the_markers_of_one_decision_complete_no_other() -> None:
    shard = TransactionShard(0, None, lambda: 9, lambda *_: None, lambda _: None, lambda _: None)
    state = TransactionState.ONGOING
    before = Transaction("t", 7, 3, 60_000, state, partitions=frozenset({("orders", 0)}), start_ms=0, last_update_ms=0)
    older = end(before, 7, 3, True, 1, 1, lambda: 9).update
    newer = end(before, 7, 3, False, 2, 1, lambda: 9).update
    assert older is not None and newer is not None
    shard.transactions["t"] = newer
    refused = shard.complete(older, 3)
    assert (refused.records, refused.response.error) == ([], ErrorCode.INVALID_TXN_STATE)
    assert shard.complete(newer, 3).records


def test_a_replaced_coordinator_asks_nobody_again() -> None:
    async def story() -> None:
        world = Transactions()
        coordinator = await world.coordinator()
        pair = await opened(coordinator)
        world.partitions.answers = [int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
        assert (await coordinator.end("t", *pair, True, 2)).error is NONE
        while world.partitions.answers or coordinator.markers.in_flight:
            await asyncio.sleep(0.001)
        assert world.partitions.written == []
        await coordinator.stop()

    asyncio.run(asyncio.wait_for(story(), 120))


def test_what_a_consumer_group_reads_keeps_its_offset_however_old_it_is() -> None:
    world = World(offsets_retention_ms=1_000)
    world.topics.create("t", 1)
    world.topics.create("left", 1)
    joined = world.consumer_join("a", "t")
    for topic in ("t", "left"):
        assert world.commit("a", joined.member_epoch, 5, topic=topic, version=9) == [NONE]
    for _ in range(200):
        world.pass_time(30_000)
        world.consumer_heartbeat("a", joined.member_epoch)
        if world.committed(topic="left") == -1:
            break
    assert world.committed(topic="left") == -1
    assert world.committed(topic="t") == 5


def test_a_heartbeat_that_says_nothing_of_what_it_holds_gives_nothing_back() -> None:
    world = World()
    topic_id = world.topics.create("t", 2)
    first = world.consumer_join("a", "t")
    assert first.assignment == {topic_id: {0, 1}}
    world.consumer_join("b", "t")
    told = world.consumer_heartbeat("a", first.member_epoch)
    assert told.assignment is not None and len(told.assignment[topic_id]) == 1, "it must give one back"
    for _ in range(3):
        assert world.consumer_heartbeat("a", told.member_epoch).error is NONE
    given = world.consumer_heartbeat("b", world.consumer_group().members["b"].member_epoch)
    assert not (given.assignment or {}), "a has not said that it let go"
    world.consumer_heartbeat("a", told.member_epoch, owned=told.assignment)
    given = world.consumer_heartbeat("b", world.consumer_group().members["b"].member_epoch)
    assert given.assignment is not None and len(given.assignment[topic_id]) == 1


def test_who_does_not_come_back_in_time_is_no_member_of_the_next_generation() -> None:
    world = World(initial_rebalance_delay_ms=0)
    absent, first = world.join_with_id(session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    world.pass_time(1)
    assert world.sync(absent, first[0].generation)[0].error is NONE
    _, second = world.join_with_id(session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    world.pass_time(5_001)
    assert [member_id for member_id, _, _ in second[0].members] == [second[0].member_id]
    assert list(world.group().members) == [second[0].member_id]


@pytest.mark.parametrize("waits_for", ["join", "sync"])
def test_the_process_that_was_replaced_is_told_so_wherever_it_waits(waits_for: str) -> None:
    world = World(initial_rebalance_delay_ms=0)
    leader = world.join(instance_id="x")
    waiting = world.join(instance_id="one")
    if waits_for == "sync":
        world.pass_time(1)
        follower = waiting[0] if leader[0].leader == leader[0].member_id else leader[0]
        answers = world.sync(
            follower.member_id, follower.generation, instance_id="one" if follower is waiting[0] else "x"
        )
        world.join(instance_id="one" if follower is waiting[0] else "x")
        assert [answer.error for answer in answers] == [ErrorCode.FENCED_INSTANCE_ID]
    else:
        world.join(instance_id="one")
        assert [answer.error for answer in waiting] == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_client_that_comes_again_by_itself_is_not_kept_waiting() -> None:
    """Produce 11 and earlier: markers on their way are told at once; from 12 on the broker waits for them a moment."""
    asked: list[bool] = []

    class Busy:
        async def add_or_verify(
            self, name: str, producer_id: int, epoch: int, partitions: list[Any], verify_only: bool
        ) -> dict[Any, ErrorCode]:
            asked.append(verify_only)
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)

    def answer(version: int) -> ErrorCode:
        ability = ClientAbility.of_produce(version)
        found = asyncio.run(verify(Busy(), "t", 7, 0, lambda: {("orders", 0): object()}, ability))
        return found[("orders", 0)].error

    assert answer(11) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert asked == [True]
    assert answer(12) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert asked.count(False) > 1


def test_a_shard_whose_records_were_lost_is_read_again() -> None:
    """The disk took back what was appended: the coordinator starts over from its log, and answers."""

    async def story() -> None:
        coordinator = await Transactions().coordinator()
        begun = await coordinator.initialize(InitializeRequest("t", 60_000))
        coordinator.runtime.reload(0)
        while coordinator.runtime.loading:
            await asyncio.sleep(0)
        error, shard = coordinator.runtime.find(0)
        assert error is NONE and shard is not None
        assert shard.transactions["t"].producer_id == begun.producer_id
        await coordinator.stop()

    asyncio.run(story())


def test_a_scan_sends_the_markers_that_nobody_sends() -> None:
    """Whoever should have (the load, whose question to the log was refused) could not: the next scan looks again."""

    async def story() -> None:
        world = Transactions()
        coordinator = await world.coordinator()
        pair = await opened(coordinator)
        world.partitions.open.clear()
        assert (await coordinator.end("t", *pair, True, 1)).error is NONE
        coordinator.markers.drop_shard(0)
        world.partitions.open.set()
        await coordinator.abort_timed_out()
        assert await settled(coordinator) is TransactionState.COMPLETE_COMMIT
        await coordinator.stop()

    asyncio.run(story())


def test_a_member_keeps_its_place_while_its_coordinator_loads() -> None:
    """A heartbeat is answered as if nothing were, a sync with the word to join again; of a coordinator that it is not,
    the member hears so."""

    async def story() -> None:
        read = asyncio.Event()

        class Slow(MemoryLog):
            async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
                await read.wait()
                return await super().read(partition, offset, max_bytes)

        log = Slow()
        log.append(0, [Record(b"\x00\x00\x00\x00", None)], 0, None, 0)
        groups = GroupCoordinator(log, ManualClock(), GroupConfig(), lambda: 1)
        assert groups.heartbeat("g", "m", 1, None) is ErrorCode.NOT_COORDINATOR
        loading = groups.runtime.elected(0, 1)
        assert loading is not None
        await asyncio.sleep(0)
        assert groups.heartbeat("g", "m", 1, None) is NONE
        synced = await groups.sync(SyncRequest("g", "m", 1))
        assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
        read.set()
        await loading
        assert groups.heartbeat("g", "m", 1, None) is ErrorCode.UNKNOWN_MEMBER_ID
        await groups.stop()

    asyncio.run(story())
