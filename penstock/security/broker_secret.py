"""The secret that brokers prove themselves with: made by the first broker, kept in the store, followed by all."""

from __future__ import annotations

import asyncio
import json
import logging

from penstock.base.outside_json import load_json
from penstock.security.broker_proof import SECRET_BYTES, BrokerSecrets
from penstock.store.interface import BadVersion, NodeExists, NoNode, StoreError, TreeStore, WatchEvent

__all__ = ["SECRET_PATH", "BrokerSecretKeeper", "rotate_secret"]

logger = logging.getLogger(__name__)

SECRET_PATH = "/penstock/broker_secret"


def _encode(secrets: BrokerSecrets) -> bytes:
    return json.dumps({"version": 1, "secrets": [value.hex() for value in secrets.values]}).encode()


def _decode(data: bytes) -> BrokerSecrets:
    try:
        values = tuple(bytes.fromhex(text) for text in load_json(data)["secrets"])
    except (ValueError, KeyError, TypeError):
        values = ()
    if not values or any(len(value) != SECRET_BYTES for value in values):
        raise StoreError(SECRET_PATH, "this node does not hold broker secrets")
    return BrokerSecrets(values[:2])


async def _read_or_create(store: TreeStore) -> BrokerSecrets:
    while True:
        try:
            return _decode((await store.get(SECRET_PATH)).data)
        except NoNode:
            await store.ensure_path(SECRET_PATH.rpartition("/")[0])
            try:
                await store.create(SECRET_PATH, _encode(BrokerSecrets.generate()))
            except NodeExists:
                continue  # another broker was faster


async def rotate_secret(store: TreeStore) -> None:
    """A new secret; the last one stays valid until the next rotation."""
    while True:
        secrets = await _read_or_create(store)
        stat = (await store.get(SECRET_PATH)).stat
        try:
            await store.set(SECRET_PATH, _encode(secrets.rotated()), stat.version)
        except BadVersion:
            continue
        return


class BrokerSecretKeeper:
    """What this broker knows of the secret; a change in the store is taken over as it happens."""

    secrets: BrokerSecrets

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.secrets = await _read_or_create(self._store)
        await self._follow()

    async def find(self, name: str) -> bytes | None:
        """The secret of that name; one that was made a moment ago may not have reached us yet."""
        found = self.secrets.find(name)
        if found is None:
            self.secrets = await _read_or_create(self._store)
            found = self.secrets.find(name)
        return found

    async def _follow(self) -> None:
        try:
            self.secrets = _decode((await self._store.get(SECRET_PATH, self._changed)).data)
        except StoreError as error:
            # `find` reads again when a name is unknown, so that nothing is lost but a moment.
            logger.warning("the broker secret cannot be read now: %s", error)

    def _changed(self, event: WatchEvent) -> None:
        self._reading = asyncio.ensure_future(self._follow())

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
