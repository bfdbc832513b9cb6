"""Producer ids: each broker takes blocks of 1000 from the store, so that no id is ever given out twice in a cluster."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.cluster import znodes
from penstock.store.interface import BadVersion, NodeExists, NoNode, TreeStore

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1


class ProducerIdsExhausted(Exception):
    """All 2^63 ids are given away."""


class ProducerIds:
    def __init__(self, store: TreeStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._refilling = asyncio.Lock()

    def take(self) -> int | None:
        """An id at once, or None when the block is used up (then `await next()`)."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        """A producer id that nobody else has or will have."""
        taken = self.take()
        while taken is None:
            async with self._refilling:
                if self._next >= self._end:
                    self._next, self._end = await self.claim_block()
            taken = self.take()
        return taken

    async def claim_block(self) -> tuple[int, int]:
        """[first, end) by compare-and-set; a lost race is tried again at once."""
        while True:
            try:
                node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
            except NoNode:
                with contextlib.suppress(NodeExists):
                    await self._store.create(znodes.PRODUCER_ID_BLOCK)
                continue
            first = znodes.decode_producer_id_block_end(node.data) + 1
            last = first + BLOCK_SIZE - 1
            if last > LAST_PRODUCER_ID:
                raise ProducerIdsExhausted
            data = znodes.encode_producer_id_block(self._node_id, first, last)
            try:
                await self._store.set(znodes.PRODUCER_ID_BLOCK, data, node.stat.version)
            except BadVersion:
                continue
            return first, last + 1
