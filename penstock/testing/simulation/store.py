"""The store of the simulation: the real tree, with sessions that expire while their owner may still run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.cluster import znodes
from penstock.store.interface import (
    ConnectionLost,
    Create,
    Delete,
    EventKind,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    TreeStore,
    Watch,
    WatchEvent,
)
from penstock.store.tree import Tree
from penstock.testing.simulation.world import STORE, Process, World

SESSION_TIMEOUT_SECONDS = 3.0
PING_SECONDS = 0.5
OPERATION_TIMEOUT_SECONDS = 1.0
T = TypeVar("T")


class SimEnsemble:
    """The servers: always consistent, never lost (that is ZooKeeper's promise, not ours to test)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = Tree()
        self.sessions: dict[int, SimSession] = {}
        self.lost_answer_probability = 0.0
        self.on_written: Callable[[], None] = lambda: None
        self._last_session = 0
        for path in znodes.PERSISTENT_PATHS:
            self._ensure(path)

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            node = "/" + "/".join(parts[:depth])
            if self.tree.exists(node) is None:
                self.tree.apply([Create(node)], 0, 0)

    def open_session(self, session: SimSession) -> int:
        self._last_session += 1
        self.sessions[self._last_session] = session
        return self._last_session

    def end_session(self, session_id: int) -> None:
        if self.sessions.pop(session_id, None) is None:
            return
        for path in self.tree.ephemerals_of(session_id):
            self.apply([Delete(path)], session_id)

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        transaction = self.tree.apply(operations, session_id, int(self.world.now * 1000))
        for event in transaction.events:
            for session in list(self.sessions.values()):
                session.fire(event)
        self.on_written()
        return transaction.results


class SimSession(TreeStore):
    """A node's session. Cut off, it is suspended; cut off for too long, it is over, and its owner learns that last."""

    def __init__(self, ensemble: SimEnsemble, owner: Process) -> None:
        self._ensemble = ensemble
        self._world = ensemble.world
        self._owner = owner
        self._listeners: list[SessionListener] = []
        self._state = SessionState.CLOSED
        self._id = 0
        self._last_heard = 0.0
        self._watches: dict[tuple[str, str], list[Watch]] = {}
        self._missed = False
        self.paused = False

    async def start(self) -> None:
        self._begin()
        self._world.spawn(self._ping())

    async def close(self) -> None:
        self._state = SessionState.CLOSED
        self._ensemble.end_session(self._id)

    async def restart_session(self) -> None:
        await self._reach()
        # Nobody speaks for the old session any more: if the servers still have it, it ends by itself.
        self._world.loop.call_later(SESSION_TIMEOUT_SECONDS, self._ensemble.end_session, self._id)
        self._begin()

    def _begin(self) -> None:
        self._watches = {}
        self._id = self._ensemble.open_session(self)
        self._last_heard = self._world.now
        self._set_state(SessionState.CONNECTED)

    @property
    def session_id(self) -> int:
        return self._id

    @property
    def session_state(self) -> SessionState:
        return self._state

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _set_state(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            for listener in list(self._listeners):
                listener(state)

    def _linked(self) -> bool:
        there, here = STORE, self._owner.name
        return self._owner.alive and self._world.connected(here, there) and self._world.connected(there, here)

    def _reachable(self) -> bool:
        return self._linked() and not self.paused

    async def _ping(self) -> None:
        """Both sides of the heartbeat: the servers' clock does not stop when the owner does."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            session_id = self._id
            if self._reachable():
                if session_id not in self._ensemble.sessions:
                    if self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
                        self._set_state(SessionState.EXPIRED)
                    continue
                self._last_heard = self._world.now
                if self._state is SessionState.SUSPENDED:
                    self._set_state(SessionState.CONNECTED)
                if self._missed:
                    self._missed = False
                    for pair in list(self._watches):
                        self._fire_missed(pair)
            else:
                if self._owner.alive and not self.paused and self._state is SessionState.CONNECTED:
                    self._set_state(SessionState.SUSPENDED)
                if self._world.now - self._last_heard > SESSION_TIMEOUT_SECONDS:
                    if session_id in self._ensemble.sessions:
                        self._world.log(f"store: session of {self._owner.name} expired")
                    self._ensemble.end_session(session_id)
                    if not self._owner.alive:
                        return

    def _fire_missed(self, pair: tuple[str, str]) -> None:
        """What changed while the session was cut off is told after it is back; telling too much does no harm."""
        path, kind = pair
        for watch in self._watches.pop(pair):
            self._call(watch, WatchEvent(EventKind.CHILDREN if kind == "children" else EventKind.CHANGED, path))

    async def _reach(self) -> None:
        await self._owner.gate()
        await asyncio.sleep(self._world.delay())
        if not self._reachable():
            await asyncio.sleep(OPERATION_TIMEOUT_SECONDS)
            await self._owner.gate()
            raise ConnectionLost("", "the store does not answer")

    async def _ask(self, read: Callable[[], T]) -> T:
        await self._reach()
        if self._id not in self._ensemble.sessions:
            self._set_state(SessionState.EXPIRED)
            raise SessionExpired("", "the session is over")
        answer = read()
        await asyncio.sleep(self._world.delay())
        await self._owner.gate()
        if self._world.random.random() < self._ensemble.lost_answer_probability:
            raise ConnectionLost("", "the answer was lost")
        return answer

    def _watch(self, path: str, kind: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.setdefault((path, kind), []).append(watch)

    def fire(self, event: WatchEvent) -> None:
        kinds = {
            EventKind.CREATED: ("data",),
            EventKind.CHANGED: ("data",),
            EventKind.DELETED: ("data", "children"),
            EventKind.CHILDREN: ("children",),
        }[event.kind]
        if not self._linked():
            self._missed = True  # told after the reconnect
            return
        for kind in kinds:
            for watch in self._watches.pop((event.path, kind), []):
                self._call(watch, event)

    def _call(self, watch: Watch, event: WatchEvent) -> None:
        self._world.spawn(self._deliver(watch, event, self._id))

    async def _deliver(self, watch: Watch, event: WatchEvent, session_id: int) -> None:
        await asyncio.sleep(self._world.delay())
        await self._owner.gate()
        if session_id == self._id:
            watch(event)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        def read() -> Node:
            node = self._ensemble.tree.get(path)
            self._watch(path, "data", watch)
            return node

        return await self._ask(read)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def read() -> Stat | None:
            self._watch(path, "data", watch)
            return self._ensemble.tree.exists(path)

        return await self._ask(read)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read() -> list[str]:
            names = self._ensemble.tree.children(path)
            self._watch(path, "children", watch)
            return names

        return await self._ask(read)

    async def sync(self) -> None:
        await self._ask(lambda: None)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return await self._ask(lambda: self._ensemble.apply(operations, self._id))


__all__ = ["MultiFailed", "NoNode", "NodeExists", "SimEnsemble", "SimSession"]
