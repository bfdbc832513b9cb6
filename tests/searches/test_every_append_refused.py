"""Every append of a coordinator's life goes wrong once: refused, committed too late, or lost by a fail-over behind it.

One scripted life of groups and transactions is run to count its appends, then once per append and kind of fault. What
must hold afterwards, whatever happened: every request is answered, every partition of a settled group has one owner,
no dead member is kept, what was deleted stays deleted, every transaction ends with a marker on every partition.

The fault is handed in with the log. A failure names the append and the kind: `lived("groups", 17, "lost")` repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.base.clock import ManualClock
from penstock.coordinator.group import admin, commands
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest, HeartbeatResult
from penstock.coordinator.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from penstock.coordinator.group.offsets import Committer, OffsetToCommit
from penstock.coordinator.runtime import EXCLUSIVE, Write
from penstock.coordinator.shard_log import Appended, Producer
from penstock.coordinator.transaction.initialize import InitializeRequest
from penstock.coordinator.transaction.marker_sender import MarkerWrite
from penstock.coordinator.transaction.producer_ids import ProducerIds
from penstock.coordinator.transaction.service import TransactionCoordinator, TransactionLimits
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.group_world import MemoryLog, World

KINDS = ("refused", "late", "lost")
PARTITIONS = 6
TOPIC_ID = UUID(int=1)
PRODUCER = Producer(7, 0)
COME_AGAIN = frozenset(
    {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS}
)


class FaultyLog(MemoryLog):
    """One append goes wrong: `at` is its number, `kind` the way."""

    def __init__(self, at: int, kind: str) -> None:
        super().__init__()
        self.tried = 0
        self.at = at
        self.kind = kind
        self.struck = False

    def _take(self, partition: int, encoded: bytes) -> Appended:
        number = self.tried
        self.tried += 1
        if number == self.at:
            self.struck = True
            if self.kind == "refused":
                return Appended(E.NOT_ENOUGH_REPLICAS)
            self.commits = False
        return super()._take(partition, encoded)


# Groups ------------------------------------------------------------------------------------------------------------


class ClassicClient:
    """A consumer of the classic protocol that does as it is told, and again if it is told nothing useful."""

    def __init__(self, life: GroupLife, group_id: str) -> None:
        self.life, self.group_id = life, group_id
        self.member_id, self.generation = "", -1
        self.share: set[int] = set()
        self.waiting: list[Any] | None = None
        self.next: Callable[[], None] = self.join

    def go_on(self) -> None:
        if self.waiting is None:
            self.next()
        elif self.waiting:
            answer, self.waiting = self.waiting[0], None
            self.heard(answer)

    def start_over(self, error: E) -> None:
        if error in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            self.member_id = ""
        self.generation, self.share = -1, set()
        self.next = self.join

    def join(self) -> None:
        self.heard = self.joined
        owned = {"t": sorted(self.share)} if self.share else {}
        metadata = encode_subscription(Subscription(["t"], owned=owned, version=1))
        self.waiting = self.life.asked(
            self.life.world.join(self.member_id, self.group_id, protocols=[("range", metadata)])
        )

    def joined(self, answer: Any) -> None:
        if answer.error is E.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error is not E.NONE:
            self.start_over(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            names = sorted(name for name, _, _ in answer.members) if answer.leader == self.member_id else []
            self.assignments = {
                name: encode_assignment({"t": list(range(number, PARTITIONS, len(names)))})
                for number, name in enumerate(names)
            }
            self.next = self.sync

    def sync(self) -> None:
        self.heard = self.synced
        self.waiting = self.life.asked(
            self.life.world.sync(self.member_id, self.generation, self.group_id, **self.assignments)
        )

    def synced(self, answer: Any) -> None:
        if answer.error is not E.NONE:
            self.start_over(answer.error)
            return
        self.share = set(decode_assignment(answer.assignment).get("t", [])) if answer.assignment else set()
        self.next = self.beat

    def beat(self) -> None:
        error = self.life.world.heartbeat(self.member_id, self.generation, self.group_id)
        if error is E.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif error is not E.NONE and error not in COME_AGAIN:
            self.start_over(error)

    def leave(self) -> None:
        self.life.write(
            self.group_id,
            lambda shard, now: commands.leave(shard, self.group_id, [commands.LeavingMember(self.member_id)], now),
        )


class ConsumerClient:
    """A consumer of the new protocol."""

    def __init__(self, life: GroupLife, group_id: str, member_id: str) -> None:
        self.life, self.group_id, self.member_id = life, group_id, member_id
        self.epoch = 0
        self.share: set[int] = set()
        self.waiting: list[Any] | None = None

    def go_on(self, epoch: int | None = None) -> None:
        if self.waiting is None:
            request = HeartbeatRequest(
                self.group_id,
                self.member_id,
                self.epoch if epoch is None else epoch,
                rebalance_timeout_ms=20_000,
                topic_names=["t"],
                owned={TOPIC_ID: set(self.share)} if self.share and self.epoch else {},
            )
            self.waiting = self.life.write(
                self.group_id, lambda shard, now: commands.consumer_heartbeat(shard, request, now)
            )
        if self.waiting:
            (error, result), self.waiting = self.waiting[0], None
            if error is E.NONE and isinstance(result, HeartbeatResult):
                self.heard(result)

    def heard(self, result: HeartbeatResult) -> None:
        if result.error is not E.NONE:
            self.epoch, self.share = 0, set()
            return
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.share = set(result.assignment.get(TOPIC_ID, set()))


class GroupLife:
    """Two groups that grow, lose members in every way, change their kind; offsets, transactions, deletions."""

    def __init__(self, at: int, kind: str) -> None:
        self.log = FaultyLog(at, kind)
        self.world = World(self.log, ManualClock(), initial_rebalance_delay_ms=100)
        self.world.topics.create("t", PARTITIONS)
        self.gone_id = self.world.topics.create("gone", 1)
        self.answers: list[list[Any]] = []
        self.clients: list[ClassicClient | ConsumerClient] = []

    def asked(self, answers: list[Any]) -> list[Any]:
        self.answers.append(answers)
        return answers

    def write(self, key: Any, command: Callable[..., Any]) -> list[Any]:
        answers: list[Any] = []
        self.world.runtime.write(0, key, command, lambda error, response: answers.append((error, response)))
        self.world.settle()
        return self.asked(answers)

    def until_done(self, key: Any, command: Callable[..., Any]) -> None:
        """As an administrator: again until it was done."""
        for _ in range(20):
            answers = self.write(key, command)
            self.rounds(1)
            if not answers:
                self.rounds(8)
            if answers[0][0] not in COME_AGAIN:
                return
        raise AssertionError("never done")

    def rounds(self, count: int) -> None:
        for _ in range(count):
            for client in self.clients:
                client.go_on()
            self.heal()
            self.world.pass_time(700)

    def heal(self) -> None:
        """The fault that has struck takes its course."""
        if not self.log.struck or self.log.commits:
            return
        if self.log.kind == "late":
            self.world.pass_time(6_000)
            self.log.commit_all()
            self.world.settle()
        else:
            self.log.commits = True
            self.world.fail_over()

    def live(self) -> None:
        classic = [ClassicClient(self, "c") for _ in range(3)]
        consumers = [ConsumerClient(self, "m", f"m{number}") for number in range(3)]
        self.clients = [*classic, *consumers]
        self.rounds(8)
        for group_id in ("c", "m", "d"):
            entry = OffsetToCommit("gone", 0, 5, -1, "", self.gone_id.bytes)
            self.until_done(
                None,
                lambda shard, now, g=group_id, e=entry: shard_commit(shard, g, e, now),
            )
        classic[0].leave()
        consumers[0].go_on(-1)
        self.clients = [*classic[1:], *consumers[1:]]
        self.rounds(4)
        self.clients = [classic[1], consumers[1]]  # two more fall silent
        self.rounds(70)
        mixed = ConsumerClient(self, "c", "guest")
        self.clients.append(mixed)  # the classic group becomes a consumer group
        self.rounds(12)
        self.clients.remove(mixed)
        mixed.go_on(-1)  # and a classic one again
        self.rounds(20)
        self.until_done(
            None,
            lambda shard, now: commands.commit_transaction_offsets(
                shard, Committer("d"), PRODUCER, [OffsetToCommit("t", 0, 9, -1, "")], now
            ),
        )
        self.until_done(EXCLUSIVE, lambda shard, _now: admin.delete_group(shard, "d"))
        del self.world.topics.topics["gone"]
        self.world.coordinator.topics_deleted({"gone"})
        self.rounds(3)
        self.world.end_transaction(PRODUCER, commit=True)
        self.rounds(70)

    def check(self) -> None:
        world = self.world
        unanswered = [answers for answers in self.answers if not answers]
        assert not unanswered, f"{len(unanswered)} requests without an answer"
        classic = [client for client in self.clients if isinstance(client, ClassicClient)]
        consumers = [client for client in self.clients if isinstance(client, ConsumerClient)]
        for group_id, clients in (("c", classic), ("m", consumers)):
            shares = [partition for client in clients for partition in sorted(client.share)]
            assert sorted(shares) == list(range(PARTITIONS)), f"{group_id}: {shares}"
            assert set(world.shard.groups[group_id].members) == {client.member_id for client in clients}
        group = world.shard.groups["c"]
        if isinstance(group, ClassicGroup):
            assert group.state is ClassicState.STABLE
        else:
            assert isinstance(group, ConsumerGroup)
        world.topics.topics["gone"] = world.topics.topics["t"]._replace(name="gone", topic_id=UUID(int=99))
        assert world.committed("d", "gone") == -1
        assert world.committed("d", "t") == -1
        assert world.committed("c", "gone") == -1, "a topic that came again inherits an offset"
        world.fail_over()
        assert "d" not in {listing.group_id for listing in admin.list_groups(world.shard)}


def shard_commit(shard: Any, group_id: str, entry: OffsetToCommit, now_ms: int) -> Any:
    """An offset, committed past the checks of membership."""
    records, errors = shard.offsets.commit_records(group_id, [entry], now_ms, 4096)
    return Write(records, errors)


def live_groups(at: int, kind: str) -> FaultyLog:
    life = GroupLife(at, kind)
    life.live()
    life.check()
    return life.log


# Transactions ------------------------------------------------------------------------------------------------------


class Brokers:
    """A `MarkerTransport`: which transactions are open on which partition."""

    def __init__(self) -> None:
        self.open: set[tuple[int, tuple[str, int]]] = set()

    def leader_of(self, partition: tuple[str, int]) -> int | None:
        return 1

    async def fence(self, producer_id: int, producer_epoch: int, partitions: frozenset[tuple[str, int]]) -> bool:
        return True

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[tuple[str, int], int]]:
        for marker in markers:
            for partition in marker.partitions:
                self.open.discard((marker.producer_id, partition))
        return [dict.fromkeys(marker.partitions, 0) for marker in markers]


class TransactionLife:
    """Two ids, each with a commit, an abort, a time-out and a restart in the middle of a transaction."""

    def __init__(self, at: int, kind: str) -> None:
        self.log = FaultyLog(at, kind)
        self.clock = ManualClock()
        self.brokers = Brokers()
        self.epoch = 0
        self.abandoned = asyncio.Barrier(2)

    async def claim_block(self) -> tuple[int, int]:
        return 1_000, 2_000

    async def lead(self) -> None:
        loading = self.coordinator.runtime.elected(0, self.epoch)
        self.epoch += 1
        assert loading is not None
        await loading

    async def live(self) -> None:
        self.coordinator = TransactionCoordinator(
            self.log,
            self.clock,
            TransactionLimits(two_phase_enabled=True),
            ProducerIds(self.claim_block),
            self.brokers,
            lambda: 1,
        )
        await self.lead()
        await asyncio.gather(*(self.producer(name) for name in ("a", "b")))
        for _ in range(100):
            await self.coordinator.abort_timed_out()
            if not any(t.state.is_preparing for t in self.transactions()) and not self.coordinator.markers.in_flight:
                break
            await self.heal()
            await asyncio.sleep(0.01)

    def transactions(self) -> list[Any]:
        return [t for _, shard in self.coordinator.runtime.machines() for t in shard.transactions.values()]

    async def heal(self) -> None:
        if not self.log.struck or self.log.commits:
            return
        if self.log.kind == "late":
            self.clock.advance(6_000)
            self.coordinator.runtime.run_timers()
            self.log.commit_all()
        else:
            self.coordinator.runtime.resigned(0)
            self.log.lose_uncommitted()
            self.log.commits = True
            await self.lead()

    async def until_done(self, ask: Callable[[], Any]) -> Any:
        """As a client: again while it is told to come again."""
        for _ in range(200):
            asking = asyncio.ensure_future(ask())
            while not asking.done():
                await asyncio.sleep(0)
                await self.heal()
            answer = asking.result()
            error = next(iter(answer.values())) if isinstance(answer, dict) else answer.error
            if error not in COME_AGAIN:
                return answer
            await asyncio.sleep(0.002)
        raise AssertionError("never done")

    async def producer(self, name: str) -> None:
        partitions = [("t", 0), ("t", 1)]
        pair = await self.begin(name)
        for round_number, (commit, crash) in enumerate([(True, False), (False, False), (True, True), (False, True)]):
            await self.add(name, pair, partitions)
            if crash and round_number == 2:
                pair = await self.begin(name)  # a new process: what was open is aborted
                continue
            if crash:
                # Nobody ends it. The clock is everybody's: it may jump only when no other transaction is to be ended.
                await self.abandoned.wait()
                self.clock.advance(61_000)
                await self.until_aborted(name)
                continue
            held = pair
            ended = await self.until_done(lambda held=held, c=commit: self.coordinator.end(name, *held, c, 2))
            assert ended.error is E.NONE, ended
            pair = (ended.producer_id, ended.producer_epoch)

    async def begin(self, name: str) -> tuple[int, int]:
        granted = await self.until_done(lambda: self.coordinator.initialize(InitializeRequest(name, 60_000)))
        assert granted.error is E.NONE, granted
        return granted.producer_id, granted.producer_epoch

    async def add(self, name: str, pair: tuple[int, int], partitions: list[tuple[str, int]]) -> None:
        codes = await self.until_done(lambda: self.coordinator.add_partitions(name, *pair, partitions, 2))
        assert set(codes.values()) == {E.NONE}, codes
        self.brokers.open.update((pair[0], partition) for partition in partitions)

    async def until_aborted(self, name: str) -> None:
        for _ in range(200):
            await self.heal()
            scan = asyncio.ensure_future(self.coordinator.abort_timed_out())
            while not scan.done():
                await asyncio.sleep(0)
                await self.heal()
            _, transaction = self.coordinator.describe(name)
            if transaction is not None and transaction.state.is_idle:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"{name} is never aborted")

    def check(self) -> None:
        states = {t.transactional_id: t.state.shown for t in self.transactions()}
        assert set(states) == {"a", "b"}
        assert not [state for state in states.values() if state.startswith("Prepare") or state == "Ongoing"], states
        assert self.brokers.open == set(), "a transaction without its markers"


def live_transactions(at: int, kind: str) -> FaultyLog:
    async def run() -> FaultyLog:
        life = TransactionLife(at, kind)
        await asyncio.wait_for(life.live(), 60)
        life.check()
        await life.coordinator.stop()
        return life.log

    return asyncio.run(run())


LIVES = {"groups": live_groups, "transactions": live_transactions}


def lived(what: str, at: int, kind: str) -> None:
    try:
        LIVES[what](at, kind)
    except Exception as error:
        raise AssertionError(f"lived({what!r}, {at}, {kind!r}): {error!r}") from error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", LIVES)
def test_a_life_survives_each_append_going_wrong(what: str, kind: str) -> None:
    appends = LIVES[what](-1, kind).tried
    assert appends > 10
    for at in range(appends):
        lived(what, at, kind)
