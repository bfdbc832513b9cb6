"""This broker's place in its cluster: the cluster id, its registration in the store, its life as others see it."""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from typing import TYPE_CHECKING, Any

from penstock.cluster import znodes
from penstock.cluster.image import BrokerRegistration, Endpoint
from penstock.store.interface import NodeExists, NoNode, SessionState, StoreError, TreeStore

if TYPE_CHECKING:
    from penstock.cluster.image_holder import ImageHolder

logger = logging.getLogger(__name__)

REGISTER_RETRY_SECONDS = 0.5
REGISTER_ATTEMPTS = 60


class NodeIdTaken(Exception):
    """Another live broker is registered under our id."""


async def ensure_tree(store: TreeStore) -> None:
    for path in znodes.PERSISTENT_PATHS:
        await store.ensure_path(path)


async def ensure_cluster_id(store: TreeStore) -> str:
    """The id of the cluster; the first broker of all makes it up."""
    try:
        return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
    except NoNode:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        await store.ensure_path(znodes.CLUSTER_ID.rpartition("/")[0])
        try:
            await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(made))
        except NodeExists:
            return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
        return made


class Membership:
    """Keeps the ephemeral `/brokers/ids/N`: makes it, and makes it anew when the store's session was lost."""

    def __init__(
        self,
        store: TreeStore,
        holder: ImageHolder,
        node_id: int,
        endpoints: dict[str, Endpoint],
        rack: str | None,
        clock: Any,
    ) -> None:
        self._store = store
        self._holder = holder
        self._node_id = node_id
        self._endpoints = endpoints
        self._rack = rack
        self._clock = clock
        self._again: asyncio.Task[None] | None = None
        self._unlisten: Any = None
        self.closing = False

    @property
    def epoch(self) -> int:
        return self._holder.broker_epoch

    async def register(self) -> None:
        """A dead predecessor of our id may still be there until its session ends: wait for that, but not for ever."""
        path = znodes.broker_path(self._node_id)
        registration = BrokerRegistration(self._node_id, -1, self._endpoints, self._rack)
        data = znodes.encode_broker(registration, self._clock.now_ms())
        for attempt in range(REGISTER_ATTEMPTS):
            try:
                await self._store.create(path, data, ephemeral=True)
                break
            except NodeExists:
                stat = await self._store.exists(path)
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    break
                if attempt == REGISTER_ATTEMPTS - 1:
                    raise NodeIdTaken(f"another broker is registered under id {self._node_id}") from None
                await asyncio.sleep(REGISTER_RETRY_SECONDS)
        stat = await self._store.exists(path)
        if stat is None:
            raise NodeIdTaken(f"the registration of broker {self._node_id} vanished")
        self._holder.broker_epoch = stat.czxid
        if self._unlisten is None:
            self._unlisten = self._store.listen(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and not self.closing and self._again is None:
            self._again = asyncio.ensure_future(self._come_back())

    async def _come_back(self) -> None:
        try:
            while not self.closing:
                try:
                    await self._store.restart_session()
                    await self.register()
                    return
                except StoreError as error:
                    logger.warning("registering again after a lost session: %s", error)
                    await asyncio.sleep(REGISTER_RETRY_SECONDS)
        finally:
            self._again = None

    async def leave(self) -> None:
        self.closing = True
        if self._unlisten is not None:
            self._unlisten()
        if self._again is not None:
            self._again.cancel()
        if self._store.session_state is SessionState.CONNECTED:
            try:
                await self._store.delete(znodes.broker_path(self._node_id))
            except StoreError as error:
                logger.debug("registration already gone: %s", error)
