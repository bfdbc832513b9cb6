"""Producer ids at hand: decisions take them without waiting, because a block was claimed before.

Blocks come from the cluster (`cluster.producer_ids`), so that no id is given out twice however often brokers die; what
is left of a block when a broker stops is lost, which is fine: there are 2^63.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIdsExhausted(Exception):
    """There is no id at hand; or the next block cannot be had now."""


class ProducerIds:
    """`claim_block` takes the next block of the cluster: (its first id, the one behind its last). It raises
    ProducerIdsExhausted if that cannot be had now."""

    def __init__(self, claim_block: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._claim_block = claim_block
        self._next = 0
        self._end = 0
        self._reserving = asyncio.Lock()

    @property
    def left(self) -> int:
        return self._end - self._next

    async def ensure(self, count: int = 1) -> None:
        """Have at least `count` ids at hand. The rest of a block that is too small is dropped."""
        if self.left >= count:
            return
        async with self._reserving:
            if self.left < count:
                self._next, self._end = await self._claim_block()

    def take(self) -> int:
        if self._next >= self._end:
            raise ProducerIdsExhausted
        self._next += 1
        return self._next - 1
