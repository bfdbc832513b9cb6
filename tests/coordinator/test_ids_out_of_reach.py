"""The store is away when a coordinator has just been elected: it has no producer ids at hand yet. What needs none goes
on; what needs one is sent back with a word that every client repeats on."""

from __future__ import annotations

import asyncio

from penstock.base.clock import ManualClock
from penstock.coordinator.transaction.initialize import InitializeRequest
from penstock.coordinator.transaction.marker_sender import MarkerWrite
from penstock.coordinator.transaction.producer_ids import ProducerIds, ProducerIdsExhausted
from penstock.coordinator.transaction.service import TransactionCoordinator, TransactionLimits
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.group_world import MemoryLog

TP = ("orders", 0)


class Leaders:
    """All markers are written."""

    def leader_of(self, partition: tuple[str, int]) -> int | None:
        return 1

    async def fence(self, producer_id: int, producer_epoch: int, partitions: frozenset[tuple[str, int]]) -> bool:
        return True

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[tuple[str, int], int]]:
        return [dict.fromkeys(marker.partitions, 0) for marker in markers]


class Store:
    reachable = True

    async def claim_block(self) -> tuple[int, int]:
        if not self.reachable:
            raise ProducerIdsExhausted
        return 1000, 2000


async def elected(log: MemoryLog, store: Store, epoch: int) -> TransactionCoordinator:
    made = TransactionCoordinator(
        log, ManualClock(), TransactionLimits(), ProducerIds(store.claim_block), Leaders(), lambda: 1
    )
    loading = made.runtime.elected(0, epoch)
    assert loading is not None
    await loading
    return made


def test_who_cannot_reach_the_store_still_ends_transactions() -> None:
    async def tell() -> None:
        log, store = MemoryLog(), Store()
        first = await elected(log, store, 0)
        begun = await first.initialize(InitializeRequest("t", 60_000))
        pair = begun.producer_id, begun.producer_epoch
        assert await first.add_partitions("t", *pair, [TP], 2) == {TP: E.NONE}

        store.reachable = False
        second = await elected(log, store, 1)

        assert await second.verify_partitions("t", *pair, [TP]) == {TP: E.NONE}
        assert await second.add_partitions("t", *pair, [("orders", 1)], 2) == {("orders", 1): E.NONE}
        assert (await second.end("t", *pair, True, 2)).error is E.NONE
        assert (await second.initialize(InitializeRequest("new", 60_000))).error is E.COORDINATOR_LOAD_IN_PROGRESS

        store.reachable = True
        assert (await second.initialize(InitializeRequest("new", 60_000))).error is E.NONE
        await first.stop()
        await second.stop()

    asyncio.run(tell())
