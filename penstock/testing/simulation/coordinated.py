"""The clients of coordinators in a run: groups (classic, KIP-848, both), transactional producers of both versions, and
readers; and what must be true of them in the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.coordinator.group.classic_group import ClassicGroup
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.service import TOPIC as GROUP_TOPIC
from penstock.coordinator.java_hash import partition_of
from penstock.coordinator.transaction.service import TOPIC as TRANSACTION_TOPIC
from penstock.testing.simulation.coordinating import INTERNAL_PARTITIONS
from penstock.testing.simulation.group_clients import ClassicSeat, ConsumerSeat, OffsetReader, Seat
from penstock.testing.simulation.group_rules import GroupRules
from penstock.testing.simulation.transaction_clients import CommittedReader, TransactionalProducer
from penstock.testing.simulation.transaction_rules import TransactionRules

if TYPE_CHECKING:
    from penstock.testing.simulation.disk import TopicPartition
    from penstock.testing.simulation.node import SimCluster, SimNode

OUTPUT = "x"
OUTPUT_PARTITIONS = 2
TOPICS = {OUTPUT: OUTPUT_PARTITIONS, GROUP_TOPIC: INTERNAL_PARTITIONS, TRANSACTION_TOPIC: INTERNAL_PARTITIONS}
PRODUCERS = 3
SEATS: dict[str, tuple[type[Seat], ...]] = {
    "classic": (ClassicSeat, ClassicSeat, ClassicSeat),
    "modern": (ConsumerSeat, ConsumerSeat, ConsumerSeat),
    "mixed": (ClassicSeat, ConsumerSeat, ClassicSeat),
}


class CoordinatedClients:
    """`topic` is what groups read."""

    def __init__(self, cluster: SimCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.groups = GroupRules(cluster.checker, lambda: cluster.world.now)
        self.transactions = TransactionRules(cluster.checker)
        self.outputs: list[TopicPartition] = [(OUTPUT, index) for index in range(OUTPUT_PARTITIONS)]
        cluster.checker.on_excused = self._excused
        cluster.coordinated = True
        cluster.observed = (topic, *TOPICS)

    def start(self) -> None:
        world = self.cluster.world
        self.seats = [
            kind(f"{group}-{number}", group, self.topic, self.cluster, self.groups)
            for group, kinds in SEATS.items()
            for number, kind in enumerate(kinds)
        ]
        self.producers = [
            TransactionalProducer(number, self.outputs, self.topic, self.cluster, self.transactions)
            for number in range(PRODUCERS)
        ]
        self.offsets = [OffsetReader(group, self.topic, self.cluster, self.groups) for group in SEATS]
        readers = [CommittedReader(where, self.cluster, self.transactions) for where in self.outputs]
        clients: list[Seat | TransactionalProducer | OffsetReader | CommittedReader]
        clients = [*self.seats, *self.producers, *self.offsets, *readers]
        for client in clients:
            world.spawn(client.run())

    def calm(self) -> None:
        """Members stay from now on; producers end what they do."""
        for seat in self.seats:
            seat.stays = True
        for producer in self.producers:
            producer.active = False

    def _excused(self, where: TopicPartition) -> None:
        topic, index = where
        if topic == GROUP_TOPIC:
            self.groups.log_lost(index)
        elif topic == TRANSACTION_TOPIC:
            names = (f"transactions-{number}" for number in range(PRODUCERS))
            lost = [name for name in names if partition_of(name, INTERNAL_PARTITIONS) == index]
            self.transactions.excused_clients.update(lost)

    # -- in peace ------------------------------------------------------------------------------------------------

    def unhealthy(self) -> str:
        why = next((f"{p.name} is not done" for p in self.producers if not p.idle.is_set()), "")
        for group, kinds in SEATS.items():
            why = why or self.groups.unsettled(group, self.cluster.partition_count(self.topic), len(kinds))
            why = why or self._kept_dead(group)
        return why or self._stuck() or self._unanswered()

    def _kept_dead(self, group: str) -> str:
        """Nobody is a member who is not there."""
        node, index = self._coordinator(group)
        if node is None or node.broker is None:
            return f"group {group} has no coordinator"
        _, shard = node.broker.groups.runtime.find(index)
        found = None if shard is None else shard.groups.get(group)
        if not isinstance(found, ClassicGroup | ConsumerGroup):
            return f"group {group} is not there"
        living = {seat.member_id for seat in self.seats if seat.group == group}
        return "" if set(found.members) == living else f"group {group} has {sorted(found.members)}, {living} live"

    def _coordinator(self, group: str) -> tuple[SimNode | None, int]:
        index = partition_of(group, INTERNAL_PARTITIONS)
        state = self.cluster.recorded((GROUP_TOPIC, index))
        return (None if state is None else self.cluster.nodes.get(state.leader)), index

    def _stuck(self) -> str:
        """In peace no transaction stays open: readers of committed data see everything."""
        if self.transactions.excused_clients:
            return ""
        for where in (*self.outputs, *((GROUP_TOPIC, index) for index in range(INTERNAL_PARTITIONS))):
            log = self._log(where)
            if log is None:
                return f"{where} has no leader"
            if log.last_stable_offset != log.high_watermark and where not in self.cluster.checker.excused_from:
                return f"{where}: last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}"
        return ""

    def _log(self, where: TopicPartition) -> Any:
        state = self.cluster.recorded(where)
        node = None if state is None else self.cluster.nodes.get(state.leader)
        found = None if node is None else node.manager.find(*where)
        return None if found is None else found.log

    def _unanswered(self) -> str:
        """Whatever a living broker was asked before this look, it has answered."""
        now = self.cluster.world.now
        return next(
            (
                f"{what}, asked {now - since:.1f} s ago, is not answered"
                for life, what, since in self.cluster.unanswered.values()
                if life.alive and now - since > 15.0
            ),
            "",
        )

    async def judge(self) -> None:
        for seat in self.seats:
            seat.active = False
        for reader in self.offsets:
            while await reader.look() is None:
                await asyncio.sleep(0.5)
        excused = self.cluster.checker.excused_from
        logs = {}
        for where in self.outputs:
            if where not in excused:
                log = self._log(where)
                region = log.read(log.log_start_offset, 1 << 30)
                data = b""
                while region.length:
                    data += self.cluster.storage.bytes_of(region)
                    region = log.read(region.next_offset, 1 << 30)
                logs[where] = data
        offsets = {}
        for producer in self.producers:
            if producer.offsets_at not in excused:
                found = await self._offset_of(producer.name)
                offsets[producer.name] = found
        self.transactions.judge(logs, offsets)

    async def _offset_of(self, group: str) -> int | None:
        reader = OffsetReader(group, self.topic, self.cluster, GroupRules(self.cluster.checker, lambda: 0.0))
        reader.judged = False
        while (offsets := await reader.look()) is None:
            await asyncio.sleep(0.5)
        return offsets.get(0)

    @property
    def figures(self) -> str:
        return (
            f"{self.groups.rebalances} shares given, {self.groups.commits} offsets acknowledged,"
            f" {sum(r.looks for r in self.offsets)} looked up, {self.transactions.ended} of"
            f" {len(self.transactions.transactions)} transactions ended, {self.transactions.seen} values seen"
        )
