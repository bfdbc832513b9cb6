"""Long lists in a request are gone through in slices: after a few milliseconds everybody else gets a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

__all__ = ["in_slices"]

SLICE_SECONDS = 0.002

Item = TypeVar("Item")


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Each item, and now and then a pause in which the loop does other things. The loop's own time counts, so that a
    simulated broker pauses in the same places whenever its seed is run."""
    now = asyncio.get_running_loop().time
    ends = now() + SLICE_SECONDS
    for item in items:
        yield item
        if now() > ends:
            await asyncio.sleep(0)
            ends = now() + SLICE_SECONDS
