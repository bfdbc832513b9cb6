"""Watches that last: waiting for a node to go, and callbacks that are armed again after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.store.interface import ConnectionLost, NoNode, SessionState, StoreError, TreeStore, WatchEvent


async def wait_until_deleted(store: TreeStore, path: str, timeout_s: float) -> bool:
    """True when the node is gone, False when time is up first."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        fired = asyncio.Event()
        try:  # not `exists`: a watch on a node that is gone would wait for ever for another one of that name
            await store.get(path, lambda _, fired=fired: fired.set())  # type: ignore[misc]
        except NoNode:
            return True
        try:
            async with asyncio.timeout_at(deadline):
                await fired.wait()
        except TimeoutError:
            return await store.exists(path) is None


class ChildrenSubscription:
    """Calls `on_change` with the sorted children of a node, first at `start` and then after each change.

    Re-armed after every event and after a lost session; `on_change` may miss steps in between, never the last state.
    """

    def __init__(self, store: TreeStore, path: str, on_change: Callable[[list[str]], None]) -> None:
        self._store = store
        self._path = path
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self._unlisten = self._store.listen(self._on_session)
        self._on_change(await self._read())
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        self._unlisten()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._wake.set()

    def _fired(self, _: WatchEvent) -> None:
        self._wake.set()

    async def _read(self) -> list[str]:
        try:
            return await self._store.children(self._path, self._fired)
        except NoNode:
            if await self._store.exists(self._path, self._fired) is not None:
                self._wake.set()
            return []

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                self._on_change(await self._read())
            except ConnectionLost:
                await asyncio.sleep(0.2)
                self._wake.set()
            except StoreError:
                continue  # the session is over; the next one wakes us
