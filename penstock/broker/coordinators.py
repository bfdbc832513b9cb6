"""Brings the coordinators of groups and transactions up and down with their broker.

Their code is a third of what a broker loads, and the first record needs none of it: it comes up a moment after the
broker serves, or with the first request that wants it, whichever is sooner.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

# Requests that a coordinator answers: they wait until it is there.
NEED_COORDINATORS = frozenset({*range(8, 17), 22, *range(24, 29), 42, 47, 61, 65, 66, 68, 69})
START_AFTER_SECONDS = 1.0
_MODULES = ("penstock.broker.group_links", "penstock.broker.transaction_links")


class Coordinators:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._starting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ready = False

    def start_soon(self) -> None:
        """Whoever leads a partition of an internal topic must load it, also if nobody asks yet."""
        self._timer = self._broker.loop.call_later(START_AFTER_SECONDS, self._begin)

    async def ensure(self) -> None:
        if not self.ready:
            await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._starting is None:
            self._starting = self._broker.loop.create_task(self._start())
        return self._starting

    async def _start(self) -> None:
        for name in _MODULES:
            await self._broker.loop.run_in_executor(None, importlib.import_module, name)
        from penstock.broker.group_links import start_groups
        from penstock.broker.transaction_links import start_transactions

        start_groups(self._broker)
        start_transactions(self._broker)
        self.ready = True

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        for coordinator in (self._broker.groups, self._broker.transactions):
            if coordinator is not None:
                await coordinator.stop()
