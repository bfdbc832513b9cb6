"""Producer ids: never the same one twice in a cluster, however often brokers die.

A broker reserves blocks of 1000 in the store (`/latest_producer_id_block`, as Kafka's ZooKeeper brokers do) and hands
them out from memory; what is left of a block when it stops is lost, which is fine: there are 2^63.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

BLOCK_SIZE = 1000


class ProducerIdsExhausted(Exception):
    """More ids were taken than `ensure` had made sure of: a bug of ours."""


class ProducerIds:
    """`reserve_block` takes the next block of the cluster and returns its (first, last) id."""

    def __init__(self, reserve_block: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._reserve_block = reserve_block
        self._next = 0
        self._last = -1
        self._reserving = asyncio.Lock()

    @property
    def left(self) -> int:
        return self._last - self._next + 1

    async def ensure(self, count: int = 1) -> None:
        """Have at least `count` ids at hand. The rest of a block that is too small is dropped."""
        if self.left >= count:
            return
        async with self._reserving:
            if self.left < count:
                self._next, self._last = await self._reserve_block()

    def take(self) -> int:
        if self._next > self._last:
            raise ProducerIdsExhausted
        self._next += 1
        return self._next - 1
