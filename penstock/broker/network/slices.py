"""Long lists in a request are gone through in slices: after a few milliseconds everybody else gets a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

__all__ = ["in_slices"]

SLICE_SECONDS = 0.002

Item = TypeVar("Item")


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Each item, and now and then a pause in which the loop does other things."""
    ends = perf_counter() + SLICE_SECONDS
    for item in items:
        yield item
        if perf_counter() > ends:
            await asyncio.sleep(0)
            ends = perf_counter() + SLICE_SECONDS
