"""Clients of the simulation: idempotent producers with acks=all, and consumers that believe what they see."""

from __future__ import annotations

import asyncio
import itertools

from penstock.client.errors import ClientError
from penstock.protocol.errors import ErrorCode
from penstock.testing.simulation.disk import Entry, TopicPartition
from penstock.testing.simulation.life import Life
from penstock.testing.simulation.node import SimCluster, SimNode
from penstock.testing.simulation.world import EPOCH_MS

CALL_TIMEOUT_SECONDS = 2.5
_values = itertools.count()


class SimClient:
    def __init__(self, name: str, cluster: SimCluster, where: TopicPartition) -> None:
        self.life = Life(name)
        self.cluster = cluster
        self.world = cluster.world
        self.where = where

    def guess_leader(self) -> SimNode | None:
        """As a client does: from the metadata of some broker, which may be stale."""
        up = [node for node in self.cluster.nodes.values() if node.up]
        if not up:
            return None
        told = self.world.random.choice(up).manager.image.partition(*self.where)
        return None if told is None else self.cluster.nodes.get(told.leader)


class Producer(SimClient):
    """One batch in flight; a batch is sent again until it is acknowledged."""

    def __init__(self, producer_id: int, cluster: SimCluster, where: TopicPartition) -> None:
        super().__init__(f"producer-{producer_id}", cluster, where)
        self.producer_id = producer_id
        self.sequence = 0
        self.active = True
        self.idle = asyncio.Event()

    async def run(self) -> None:
        random = self.world.random
        while self.active:
            await asyncio.sleep(random.expovariate(12.0))
            await self._send(Entry(0, 0, self.producer_id, self.sequence, random.randint(1, 3), 0))
        self.idle.set()

    async def _send(self, entry: Entry) -> None:
        checker = self.cluster.checker
        sealed, batch = self._sealed(entry)
        while True:
            error, base_offset = await self._try(batch)
            if error == ErrorCode.NONE:
                checker.acknowledge(self.where, sealed, base_offset)
                self.sequence = self.cluster.storage.next_sequence(sealed)
                return
            # A leader that does not know yet that it is deposed may lack our last batch and say OUT_OF_ORDER: ask on.
            # Only where records were lost with an excuse a new identity is needed.
            if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.where in checker.excused_from:
                self.producer_id += 1000
                self.sequence = 0
                sealed, batch = self._sealed(entry._replace(producer=self.producer_id, sequence=0))
            await asyncio.sleep(self.world.random.uniform(0.02, 0.3))

    def _sealed(self, entry: Entry) -> tuple[Entry, bytes]:
        named = entry._replace(value=entry.producer * 1_000_000 + entry.sequence)
        return self.cluster.storage.sealed(named, int(self.world.now * 1000) + EPOCH_MS)

    async def _try(self, batch: bytes) -> tuple[int, int]:
        node = self.guess_leader()
        if node is None:
            return int(ErrorCode.LEADER_NOT_AVAILABLE), -1
        try:
            return await self.world.call(
                self.life, node.life, lambda: node.handle_produce(self.where, batch, 1500), CALL_TIMEOUT_SECONDS
            )
        except ClientError:
            return int(ErrorCode.NETWORK_EXCEPTION), -1


class Consumer(SimClient):
    """Reads from the leader and checks each record against what was committed."""

    def __init__(self, number: int, cluster: SimCluster, where: TopicPartition) -> None:
        super().__init__(f"consumer-{number}", cluster, where)
        self.offset = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.world.random.uniform(0.05, 0.3))
            node = self.guess_leader()
            if node is None:
                continue
            asked = self.offset

            async def read(node: SimNode = node, asked: int = asked) -> tuple[int, int]:
                error, _, log_start, entries = await node.handle_consume(self.where, asked)
                # Checked at once: what the answer says is true now, whenever it arrives.
                self.cluster.checker.visible(self.where, entries, node.id)
                if error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return error, max(log_start, 0)
                return error, entries[-1].next_offset if entries else asked

            try:
                error, position = await self.world.call(self.life, node.life, read, CALL_TIMEOUT_SECONDS)
            except ClientError:
                continue
            if not error or error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offset = position
