"""Standing for controller: the claim to the election node, giving it back, and who waits before standing again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from penstock.base.clock import Clock
from penstock.cluster import own_znodes, znodes
from penstock.cluster.controller_store import FencedWriter
from penstock.cluster.image import NO_BROKER
from penstock.cluster.loading import read_brokers
from penstock.store.interface import (
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionState,
    SetData,
    StoreError,
    TreeStore,
    WatchEvent,
)

logger = logging.getLogger(__name__)


class Candidacy:
    def __init__(self, store: TreeStore, node_id: int, clock: Clock, wake: Callable[[], None]) -> None:
        self._store, self._node_id, self._clock, self._wake = store, node_id, clock, wake
        self._stands_again_s = 0.0
        self._missed: Mapping[int, int] = {}
        """For whose sake it stepped aside: broker id → epoch."""
        self.is_in_doubt = False
        """The election node may have changed since it was won."""
        self.controller_id = NO_BROKER
        """Who is controller as far as the store told last."""

    def doubt(self) -> None:
        self.is_in_doubt = True
        self._wake()

    async def win(self) -> tuple[int, int] | None:
        """(epoch, version of the epoch node) when this broker is the controller now."""
        try:
            current = await self._store.get(znodes.CONTROLLER, self._changed)
        except NoNode:
            current = None
        if current is not None:
            self.controller_id = znodes.decode_controller(current.data)
            if current.stat.ephemeral_owner != self._store.session_id:
                return None
            epoch_node = await self._store.get(znodes.CONTROLLER_EPOCH)
            return int(epoch_node.data), epoch_node.stat.version
        if await self._must_wait():
            return None
        try:
            epoch_node = await self._store.get(znodes.CONTROLLER_EPOCH)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self._store.create(znodes.CONTROLLER_EPOCH, b"0")
            epoch_node = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = int(epoch_node.data) + 1
        claim = znodes.encode_controller(self._node_id, self._clock.now_ms())
        try:
            await self._store.multi(
                [
                    Create(znodes.CONTROLLER, claim, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), epoch_node.stat.version),
                ]
            )
        except MultiFailed:
            self._wake()  # somebody was faster: look again
            return None
        self.controller_id = self._node_id
        self.is_in_doubt = False
        await self._store.exists(znodes.CONTROLLER, self._changed)
        logger.info("broker %d is the controller now, epoch %d", self._node_id, epoch)
        return epoch, epoch_node.stat.version + 1

    def _changed(self, _: WatchEvent) -> None:
        self.doubt()

    async def give_back(self) -> None:
        """At a stop: the session ends later, others need not wait for that."""
        if self._store.session_state is SessionState.CONNECTED:
            with contextlib.suppress(StoreError):
                await self._store.delete(znodes.CONTROLLER)

    async def step_aside(self, writer: FencedWriter, missed: Mapping[int, int], patience_s: float) -> None:
        """Leave the place to somebody who hears more, and note whom we missed."""
        logger.warning("the controller misses brokers %s: another one shall try", sorted(missed))
        self._missed = dict(missed)
        self._stands_again_s = self._clock.monotonic() + patience_s
        note = own_znodes.encode_missed(writer.epoch, missed)
        await writer.write_operations([SetData(znodes.MISSED_BROKERS, note), Delete(znodes.CONTROLLER)])

    async def _must_wait(self) -> bool:
        """Who stepped aside gives the others time to take over; if nobody does it stands again. It need not wait for
        brokers whose sessions have ended: about those there is no doubt."""
        left_s = self._stands_again_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        registered = await read_brokers(self._store, lambda _: self._wake())
        if not any(i in registered and registered[i].epoch == epoch for i, epoch in self._missed.items()):
            return False
        if await self._store.exists(znodes.CONTROLLER, self._changed) is None:
            asyncio.get_running_loop().call_later(left_s, self._wake)
        else:
            self._wake()  # somebody has just taken over
        return True

    async def missed_by_predecessor(self, controller_epoch: int) -> frozenset[int]:
        try:
            return own_znodes.decode_missed((await self._store.get(znodes.MISSED_BROKERS)).data, controller_epoch)
        except NoNode:
            return frozenset()
