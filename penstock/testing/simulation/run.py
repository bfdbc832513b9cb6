"""One run: a cluster, its clients and its faults for some virtual seconds; then peace, and a last look at all."""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass, replace

from penstock.cluster import znodes
from penstock.cluster.events import ReplicaAssignment
from penstock.store.interface import Create
from penstock.testing.simulation.clients import Consumer, Producer
from penstock.testing.simulation.coordinated import TOPICS, CoordinatedClients
from penstock.testing.simulation.disk import StoredLog, TopicPartition
from penstock.testing.simulation.faults import FaultInjector, FaultPlan
from penstock.testing.simulation.invariants import Checker, Violation
from penstock.testing.simulation.node import SimCluster, SimNode
from penstock.testing.simulation.real_logs import FileStorage
from penstock.testing.simulation.storage import ModelledStorage, Storage, Stored
from penstock.testing.simulation.virtual_loop import VirtualLoop
from penstock.testing.simulation.world import World

TOPIC = "t"
RECOVERY_SECONDS = 90.0


@dataclass(frozen=True)
class Outcome:
    seed: int
    violation: str | None
    trace: tuple[str, ...]
    virtual_seconds: float
    messages: int
    acknowledged: int
    leader_changes: int
    excused: bool
    coordinated: str = ""

    @property
    def summary(self) -> str:
        excused = ", excused loss" if self.excused else ""
        return (
            f"seed {self.seed}: {self.violation or 'ok'} ({self.virtual_seconds:.0f} virtual s, {self.messages}"
            f" messages, {self.acknowledged} acknowledged, {self.leader_changes} leaders{excused})"
            f"{': ' if self.coordinated else ''}{self.coordinated}"
        )


def run_seed(
    seed: int,
    fault_seconds: float = 12.0,
    partitions: int | None = None,
    min_isr_changes: bool = False,
    real_logs: bool = False,
    coordinators: bool = False,
) -> Outcome:
    """Everything that happens is a function of `seed` and of what else is given. Coordinators need real logs."""
    storage = FileStorage() if real_logs or coordinators else ModelledStorage()
    try:
        return _run(seed, fault_seconds, partitions, min_isr_changes, storage, coordinators)
    finally:
        storage.close()


def _run(
    seed: int,
    fault_seconds: float,
    partitions: int | None,
    min_isr_changes: bool,
    storage: Storage,
    coordinators: bool,
) -> Outcome:
    loop = VirtualLoop()
    asyncio.set_event_loop(None)
    world = World(seed, loop)
    checker = Checker(world.log)
    simulation = Simulation(world, checker, fault_seconds, partitions, min_isr_changes, storage, coordinators)
    violation: str | None = None
    try:
        loop.run_until_complete(simulation.run())
    except Violation as broken:
        violation = str(broken)
    finally:
        _close(loop)
    return Outcome(
        seed,
        violation,
        tuple(world.trace),
        world.now,
        world.messages,
        checker.acknowledged_count,
        len(checker.leaders),
        bool(checker.excused_from),
        simulation.coordinated.figures if simulation.coordinated is not None else "",
    )


def _close(loop: VirtualLoop) -> None:
    """Lives end in the middle of something: their tasks are dropped without a word."""
    loop.set_exception_handler(lambda loop, context: None)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    for _ in range(50):
        if all(task.done() for task in tasks):
            break
        loop.run_until_complete(_breathe())
    loop.close()


async def _breathe() -> None:
    await asyncio.sleep(0)


class Simulation:
    def __init__(
        self,
        world: World,
        checker: Checker,
        fault_seconds: float,
        partitions: int | None = None,
        min_isr_changes: bool = False,
        storage: Storage | None = None,
        coordinators: bool = False,
    ) -> None:
        self.world = world
        self.min_isr_changes = min_isr_changes
        self.checker = checker
        self.fault_seconds = fault_seconds
        draw: random.Random = world.random
        self.node_count = draw.choice((3, 3, 4, 5))
        self.cluster = SimCluster(
            world, checker, storage or ModelledStorage(), min_insync_replicas=draw.choice((1, 2, 2))
        )
        drawn = draw.choice((1, 2, 3))
        self.places: list[TopicPartition] = [(TOPIC, index) for index in range(partitions or drawn)]
        self.coordinated = CoordinatedClients(self.cluster, TOPIC) if coordinators else None
        self.topics = {TOPIC: len(self.places), **(TOPICS if coordinators else {})}
        self.hosted = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        checker.trusted_logs = self._trusted_logs
        self.cluster.ensemble.on_written = self._store_written
        self._create_cluster_id()

    async def run(self) -> None:
        for topic, count in self.topics.items():
            self._create_topic(topic, count)
        for node_id in range(1, self.node_count + 1):
            node = self.cluster.nodes[node_id] = SimNode(node_id, self.cluster)
            node.boot()
        producers = [
            Producer(number, self.cluster, self.places[number % len(self.places)])
            for number in range(1, len(self.places) * 2 + 1)
        ]
        consumers = [Consumer(number, self.cluster, where) for number, where in enumerate(self.places)]
        running = [self.world.spawn(producer.run()) for producer in producers]
        running += [self.world.spawn(consumer.run()) for consumer in consumers]
        plan = replace(FaultPlan.drawn(self.cluster), min_isr_changes=self.min_isr_changes)
        faults = FaultInjector(self.cluster, self.hosted, plan)
        if self.coordinated is not None:
            self.coordinated.start()
        await self._watch(2.0)
        running.append(self.world.spawn(faults.run()))
        await self._watch(self.fault_seconds)
        self.world.log("peace")
        faults.end()
        await self._watch(1.0)
        for producer in producers:
            producer.active = False
        if self.coordinated is not None:
            self.coordinated.calm()
        await self._recovered(producers, faults)
        if self.coordinated is not None:
            await self.coordinated.judge()
            self._check()
        self._last_look()

    async def _watch(self, seconds: float) -> None:
        """Let time pass; a violation in any task ends the run here."""
        until = self.world.now + seconds
        while self.world.now < until:
            await asyncio.sleep(0.05)
            self._check()

    def _check(self) -> None:
        if self.checker.violation is not None:
            raise self.checker.violation
        for task in list(self.world.tasks):
            if task.done() and not task.cancelled() and isinstance(task.exception(), Violation):
                raise task.exception() or AssertionError

    async def _recovered(self, producers: list[Producer], faults: FaultInjector) -> None:
        """In peace everything heals by itself, within bounds."""
        until = self.world.now + RECOVERY_SECONDS
        why = "?"
        while self.world.now < until:
            await self._watch(0.5)
            faults.end()  # a fault that began before the peace may have left something down
            why = next((f"{p.life.name} still waits" for p in producers if not p.idle.is_set()), "")
            why = why or (self.coordinated.unhealthy() if self.coordinated is not None else "")
            why = why or self._unhealthy()
            if not why:
                return
        self.checker.demand(False, f"not healthy after {RECOVERY_SECONDS:.0f} s of peace: {why}")

    def _unhealthy(self) -> str:
        for where in self.hosted:
            state, replicas = self._recorded(where)
            if state is None or set(state.isr) != set(replicas):
                return f"{where}: {state} of {replicas}"
            leader = self.cluster.nodes[state.leader].manager.find(*where)
            if leader is None or not leader.is_leader:
                return f"{where}: {state.leader} does not know that it leads"
            ends = {r: self._stored(r, where).end_offset for r in replicas}
            if len(set(ends.values())) > 1 or leader.log.high_watermark != leader.log.log_end_offset:
                return f"{where}: log ends {ends}, high watermark {leader.log.high_watermark}"
        return ""

    def _last_look(self) -> None:
        for where in self.hosted:
            _, replicas = self._recorded(where)
            first = self._stored(replicas[0], where)
            for replica in replicas:
                stored = self._stored(replica, where)
                self.checker.dense(where, replica, stored)
                self.checker.has_acknowledged(where, stored, f"replica {replica} in the end")
                self.checker.demand(stored.entries == first.entries, f"{where}: replicas differ in the end")
            if where in self.places and where not in self.checker.excused_from:
                self.checker.exactly_once(where, first)

    # -- what is recorded ----------------------------------------------------------------------------------------

    def _create_cluster_id(self) -> None:
        tree = self.cluster.ensemble.tree
        tree.apply([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id("simulated"))], 0, 0)

    def _create_topic(self, topic: str, partitions: int) -> None:
        nodes = list(range(1, self.node_count + 1))
        assignments = {i: ReplicaAssignment(tuple(self.world.random.sample(nodes, 3))) for i in range(partitions)}
        topic_id = uuid.UUID(int=self.world.random.getrandbits(128) | 1)
        data = znodes.encode_topic(topic_id, assignments)
        self.cluster.ensemble.tree.apply([Create(znodes.topic_path(topic), data)], 0, 0)

    def _recorded(self, where: TopicPartition) -> tuple[znodes.PartitionState | None, tuple[int, ...]]:
        return self.cluster.recorded(where), self.cluster.topic(where[0]).assignments[where[1]].replicas

    def _stored(self, node_id: int, where: TopicPartition) -> Stored:
        return self.cluster.nodes[node_id].disk.stored(where) or StoredLog(uuid.UUID(int=0))

    def _trusted_logs(self, where: TopicPartition) -> list[Stored]:
        state, _ = self._recorded(where)
        if state is None:
            return []
        return [
            self._stored(r, where)
            for r in (*state.isr, *state.eligible)
            if self.cluster.nodes[r].can_prove(state.broker_epochs.get(r, -1))
        ]

    def _store_written(self) -> None:
        """ISR ⊆ AR, whatever is written."""
        for where in self.hosted:
            state, replicas = self._recorded(where)
            if state is not None:
                self.checker.isr_within_assignment(where, state.isr, replicas)
        if self.cluster.nodes:
            self.checker.look_for_excuses()
