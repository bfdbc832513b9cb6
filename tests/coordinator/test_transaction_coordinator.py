"""The coordinator and its marker sender without a broker: decisions wait for their commit, markers for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from penstock.base.clock import ManualClock
from penstock.coordinator.transaction.initialize import InitializeRequest
from penstock.coordinator.transaction.marker_sender import MarkerWrite
from penstock.coordinator.transaction.producer_ids import ProducerIds
from penstock.coordinator.transaction.service import TransactionCoordinator, TransactionLimits
from penstock.coordinator.transaction.state import TransactionState
from penstock.coordinator.transaction.verification import ClientAbility, verify
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.group_world import MemoryLog

TP = ("orders", 0)
S = TransactionState


class Partitions:
    """A `MarkerTransport` to brokers that a test can make refuse, vanish and change their roles."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int | None] = {}
        self.answers: list[int | Exception] = []  # what the next requests get; then NONE
        self.written: list[tuple[int, MarkerWrite]] = []
        self.open = asyncio.Event()
        self.open.set()

    def leader_of(self, partition: tuple[str, int]) -> int | None:
        return self.leaders.get(partition, 1)

    async def fence(self, producer_id: int, producer_epoch: int, partitions: frozenset[tuple[str, int]]) -> bool:
        return True

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[tuple[str, int], int]]:
        await self.open.wait()
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        if answer == 0:
            self.written += [(node_id, marker) for marker in markers]
        return [dict.fromkeys(marker.partitions, int(answer)) for marker in markers]


class World:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.clock = ManualClock()
        self.partitions = Partitions()
        self.blocks = 0
        self.epoch = 0

    async def claim_block(self) -> tuple[int, int]:
        self.blocks += 1
        return self.blocks * 1000, self.blocks * 1000 + 1000

    async def coordinator(self) -> TransactionCoordinator:
        """A broker that comes to lead the one partition of the internal topic."""
        limits = TransactionLimits(two_phase_enabled=True, id_expiration_ms=1000)
        made = TransactionCoordinator(
            self.log, self.clock, limits, ProducerIds(self.claim_block), self.partitions, lambda: 1
        )
        loading = made.runtime.elected(0, self.epoch)
        self.epoch += 1
        assert loading is not None
        await loading
        return made


def story(tell: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def told() -> None:
            await asyncio.wait_for(_as_coroutine(tell(World())), 120)

        asyncio.run(told())

    run.__name__ = tell.__name__  # type: ignore[attr-defined]
    return run


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


async def settled(coordinator: TransactionCoordinator, transactional_id: str = "t") -> TransactionState:
    for _ in range(1000):
        transaction = coordinator.describe(transactional_id)[1]
        if transaction is not None and not transaction.state.is_preparing and coordinator.markers.in_flight == 0:
            return transaction.state
        await asyncio.sleep(0.01)
    raise AssertionError("the transaction does not come to its end")


async def opened(coordinator: TransactionCoordinator, **fields: Any) -> tuple[int, int]:
    decision = await coordinator.initialize(InitializeRequest("t", 60_000, **fields))
    pair = (decision.producer_id, decision.producer_epoch)
    assert set((await coordinator.add_partitions("t", *pair, [TP, ("orders", 1)], 2)).values()) == {E.NONE}
    return pair


@story
async def test_markers_go_out_when_the_decision_is_committed_and_not_before(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.log.commits = False
    ending = asyncio.ensure_future(coordinator.end("t", *pair, True, 2))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    assert world.partitions.written == []
    world.log.commit_all()
    assert (await ending).error is E.NONE
    assert await settled(coordinator) is S.COMPLETE_COMMIT
    ((node, marker),) = world.partitions.written
    assert (node, marker.commit, marker.producer_epoch, marker.partitions) == (1, True, 1, (TP, ("orders", 1)))
    await coordinator.stop()


@story
async def test_a_decision_that_was_lost_with_its_coordinator_never_happened(world: World) -> None:
    first = await world.coordinator()
    pair = await opened(first)
    world.log.commits = False
    ending = asyncio.ensure_future(first.end("t", *pair, True, 2))
    for _ in range(20):
        await asyncio.sleep(0)
    first.runtime.resigned(0)
    assert (await ending).error is E.NOT_COORDINATOR
    world.log.lose_uncommitted()
    world.log.commits = True
    second = await world.coordinator()
    assert second.describe("t")[1].state is S.ONGOING  # type: ignore[union-attr]
    assert world.partitions.written == []
    assert (await second.end("t", *pair, False, 2)).error is E.NONE
    assert await settled(second) is S.COMPLETE_ABORT
    await first.stop()
    await second.stop()


@story
async def test_a_new_coordinator_sends_the_markers_of_what_was_decided(world: World) -> None:
    first = await world.coordinator()
    pair = await opened(first)
    world.partitions.open.clear()
    assert (await first.end("t", *pair, True, 2)).error is E.NONE
    first.runtime.resigned(0)
    await first.stop()
    world.partitions.open.set()
    second = await world.coordinator()
    assert await settled(second) is S.COMPLETE_COMMIT
    (sent,) = world.partitions.written
    assert sent[1].coordinator_epoch == 1
    await second.stop()


@pytest.mark.parametrize(
    "trouble",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        ConnectionError("gone"),
    ],
    ids=str,
)
def test_markers_are_sent_until_they_arrive(trouble: int | Exception) -> None:
    @story
    async def told(world: World) -> None:
        coordinator = await world.coordinator()
        pair = await opened(coordinator)
        world.partitions.answers = [trouble, trouble]
        assert (await coordinator.end("t", *pair, False, 2)).error is E.NONE
        world.partitions.leaders[TP] = 2  # the next try goes to the leader of then
        assert await settled(coordinator) is S.COMPLETE_ABORT
        assert {(node, marker.partitions) for node, marker in world.partitions.written} == {
            (2, (TP,)),
            (1, (("orders", 1),)),
        }
        await coordinator.stop()

    told()


@story
async def test_deleted_partitions_need_no_marker_and_leaderless_ones_wait(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.partitions.leaders = {TP: None, ("orders", 1): -1}
    assert (await coordinator.end("t", *pair, True, 2)).error is E.NONE
    await asyncio.sleep(0.05)
    assert coordinator.markers.in_flight == 1
    world.partitions.leaders[("orders", 1)] = 3
    assert await settled(coordinator) is S.COMPLETE_COMMIT
    assert [(node, marker.partitions) for node, marker in world.partitions.written] == [(3, (("orders", 1),))]
    await coordinator.stop()


@story
async def test_a_partition_that_the_coordinator_has_not_heard_of_is_not_added(world: World) -> None:
    """Its leader knows it already and asks in a producer's name; without a marker it would stand still for ever."""
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    new = ("just-created", 0)
    world.partitions.leaders[new] = None
    assert await coordinator.add_partitions("t", *pair, [TP, new], 2) == {
        TP: E.OPERATION_NOT_ATTEMPTED,
        new: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await coordinator.verify_partitions("t", *pair, [new]))[new] is E.UNKNOWN_TOPIC_OR_PARTITION
    world.partitions.leaders[new] = 2  # the image has arrived
    assert await coordinator.add_partitions("t", *pair, [new], 2) == {new: E.NONE}
    assert (await coordinator.end("t", *pair, True, 2)).error is E.NONE
    assert await settled(coordinator) is S.COMPLETE_COMMIT
    assert {tp for _, marker in world.partitions.written for tp in marker.partitions} == {TP, ("orders", 1), new}
    await coordinator.stop()


@story
async def test_a_replaced_coordinator_stops_sending(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.partitions.answers = [int(E.TRANSACTION_COORDINATOR_FENCED)]
    assert (await coordinator.end("t", *pair, True, 2)).error is E.NONE
    for _ in range(100):
        if coordinator.markers.in_flight == 0:
            break
        await asyncio.sleep(0.01)
    assert coordinator.describe("t")[1].state is S.PREPARE_COMMIT  # type: ignore[union-attr]
    await coordinator.stop()


@story
async def test_requests_wait_a_moment_for_markers_and_then_are_told_to_come_again(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.partitions.open.clear()
    ended = await coordinator.end("t", *pair, True, 2)
    pair = (ended.producer_id, ended.producer_epoch)
    assert await coordinator.add_partitions("t", *pair, [TP], 2) == {TP: E.CONCURRENT_TRANSACTIONS}
    asking = asyncio.ensure_future(coordinator.add_partitions("t", *pair, [TP], 2))
    await asyncio.sleep(0.01)
    world.partitions.open.set()
    assert await asking == {TP: E.NONE}
    await coordinator.stop()


@story
async def test_time_outs_and_expiry(world: World) -> None:
    coordinator = await world.coordinator()
    await opened(coordinator)
    forgotten = await coordinator.initialize(InitializeRequest("two-phase", 1, enable_two_phase=True))
    pair = (forgotten.producer_id, forgotten.producer_epoch)
    assert await coordinator.add_partitions("two-phase", *pair, [TP], 2) == {TP: E.NONE}
    world.clock.advance(60_001)
    assert await coordinator.abort_timed_out() == 1
    assert await settled(coordinator) is S.COMPLETE_ABORT
    assert [(entry.transaction.transactional_id, entry.age_ms) for entry in coordinator.open_transactions()] == [
        ("two-phase", 60_001)
    ]
    assert await coordinator.forget_expired() == 0
    world.clock.advance(1000)
    assert await coordinator.forget_expired() == 1
    assert coordinator.describe("t")[0] is E.TRANSACTIONAL_ID_NOT_FOUND
    second = await world.coordinator()
    assert second.describe("t")[0] is E.TRANSACTIONAL_ID_NOT_FOUND
    assert second.describe("two-phase")[1].state is S.ONGOING  # type: ignore[union-attr]
    await coordinator.stop()
    await second.stop()


@story
async def test_a_log_that_refuses_changes_nothing(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.log.refuses = E.NOT_ENOUGH_REPLICAS
    assert (await coordinator.end("t", *pair, True, 2)).error is E.COORDINATOR_NOT_AVAILABLE
    assert coordinator.describe("t")[1].state is S.ONGOING  # type: ignore[union-attr]
    world.log.refuses = E.NONE
    assert (await coordinator.end("t", *pair, True, 2)).error is E.NONE
    await coordinator.stop()


@story
async def test_a_completion_that_the_log_refuses_is_written_later(world: World) -> None:
    """Nobody has to wait for a scan: until it is written the producer can begin nothing."""
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.partitions.open.clear()
    assert (await coordinator.end("t", *pair, True, 2)).error is E.NONE
    world.log.refuses = E.NOT_ENOUGH_REPLICAS
    world.partitions.open.set()
    while coordinator.markers.in_flight:
        await asyncio.sleep(0.01)
    world.log.refuses = E.NONE
    assert await settled(coordinator) is S.COMPLETE_COMMIT
    assert len(world.partitions.written) == 1, "the markers were there already"
    await coordinator.stop()


class Link:
    """The way to a coordinator that answers as told."""

    def __init__(self, *answers: E) -> None:
        self.answers = list(answers)
        self.asked: list[bool] = []

    async def add_or_verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[Any], verify_only: bool
    ) -> dict[Any, E]:
        self.asked.append(verify_only)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return dict.fromkeys(partitions, answer)


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (10, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (10, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (11, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (11, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
        (12, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (12, E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS),
        (12, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
        (12, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_coordinator_says_in_the_words_of_produce(version: int, said: E, told: E) -> None:
    link, guard = Link(said), object()
    asking: Coroutine[Any, Any, Any] = verify(link, "t", 1, 0, lambda: {TP: guard}, ClientAbility.of_produce(version))
    assert asyncio.run(asking) == {TP: (told, guard)}
    assert set(link.asked) == {version < 12}


def test_an_implicit_add_is_tried_again_while_markers_travel_each_time_with_the_guards_of_then() -> None:
    link = Link(E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS, E.NONE)
    guards = ["first", "second", "third"]
    asking: Coroutine[Any, Any, Any] = verify(
        link, "t", 1, 0, lambda: {TP: guards.pop(0)}, ClientAbility.of_produce(12)
    )
    assert asyncio.run(asking) == {TP: (E.NONE, "third")}
    assert len(link.asked) == 3


def test_nobody_is_asked_about_a_transaction_that_opened_meanwhile() -> None:
    link = Link(E.CONCURRENT_TRANSACTIONS)
    guards = [{TP: "first"}, {}]
    asking: Coroutine[Any, Any, Any] = verify(link, "t", 1, 0, lambda: guards.pop(0), ClientAbility.of_produce(12))
    assert asyncio.run(asking) == {}
    assert len(link.asked) == 1


@story
async def test_markers_go_out_also_when_the_decision_was_committed_too_late_for_its_client(world: World) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    world.log.commits = False
    ending = asyncio.ensure_future(coordinator.end("t", *pair, True, 2))
    for _ in range(20):
        await asyncio.sleep(0)
    world.clock.advance(6_000)
    coordinator.runtime.run_timers()
    assert (await ending).error is E.COORDINATOR_NOT_AVAILABLE
    world.log.commit_all()
    assert await settled(coordinator) is S.COMPLETE_COMMIT
    assert len(world.partitions.written) == 1
    await coordinator.stop()


@story
async def test_a_producer_that_starts_over_with_its_own_pair_is_not_fenced_by_the_abort_that_it_asked_for(
    world: World,
) -> None:
    coordinator = await world.coordinator()
    pair = await opened(coordinator)
    request = InitializeRequest("t", 60_000, expected_producer_id=pair[0], expected_epoch=pair[1])
    decision = await coordinator.initialize(request)
    while decision.error is E.CONCURRENT_TRANSACTIONS:
        await asyncio.sleep(0.01)
        decision = await coordinator.initialize(request)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (E.NONE, pair[0], pair[1] + 1)
    await coordinator.stop()
