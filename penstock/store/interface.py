"""The tree store: what Penstock asks of ZooKeeper, and nothing more.

A tree of small nodes with versions, ephemeral nodes that die with the session that made them, numbered children,
one-shot watches, and `multi`: several operations that happen together or not at all. Two rooms keep this promise,
`embedded` (SQLite, one node) and `zookeeper` (kazoo); the same contract tests run against both.

All calls are coroutines of the loop the store was started on, and all callbacks run on that loop. A watch fires once,
after the change that it reports is visible; whoever wants more reads again with a new watch, or uses
`store.subscriptions`.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ANY_VERSION = -1


class StoreError(Exception):
    """A store operation that did not happen. `path` names the node that stood in the way."""

    def __init__(self, path: str = "", detail: str = "") -> None:
        super().__init__(f"{type(self).__name__}: {path}{': ' if detail else ''}{detail}")
        self.path = path


class NoNode(StoreError):
    """The node (or, for a create, its parent) is not there."""


class NodeExists(StoreError):
    """A create found the node already there."""


class BadVersion(StoreError):
    """The node is there, but its version is not the expected one."""


class NotEmpty(StoreError):
    """A delete of a node that still has children."""


class NoChildrenForEphemerals(StoreError):
    """Ephemeral nodes are leaves."""


class InvalidPath(StoreError):
    """A path that no store takes: relative, empty parts, a trailing slash, a NUL."""


class SessionExpired(StoreError):
    """The session is over: its ephemerals are gone, its watches will never fire. `restart_session` begins a new one."""


class ConnectionLost(StoreError):
    """No answer: the operation may or may not have happened. Read before doing it again."""


class StoreUnusable(ConnectionLost):
    """There is no beginning with this store; the message is what an operator reads at a start."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.args = (message,)


class MultiFailed(StoreError):
    """A `multi` that did nothing because operation number `index` failed with `error`."""

    def __init__(self, index: int, error: StoreError) -> None:
        super().__init__(error.path, f"operation {index}: {error}")
        self.index = index
        self.error = error


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper tells about a node beside its data. Times are milliseconds since 1970."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    """The session that owns this node, 0 for a persistent one."""
    data_length: int
    children_count: int


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | Stat | None
"""Create gives the real path, SetData the new Stat, Delete and Check give None."""


class EventKind(enum.Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is gone, the session may still live: whatever must be exclusive has to pause."""
    EXPIRED = "expired"
    """The session is over and so are its ephemerals and watches."""
    CLOSED = "closed"


SessionListener = Callable[[SessionState], None]


class TreeStore(abc.ABC):
    """One session with a tree store."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Connect and begin a session; raises ConnectionLost when nobody answers in time."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once. Idempotent."""

    @abc.abstractmethod
    async def restart_session(self) -> None:
        """After EXPIRED: begin a new session, with no ephemerals and no watches."""

    @property
    @abc.abstractmethod
    def session_id(self) -> int: ...

    @property
    @abc.abstractmethod
    def session_state(self) -> SessionState: ...

    @abc.abstractmethod
    def listen(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` on every change of the session's state; the returned function ends that."""

    @abc.abstractmethod
    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Data and stat. The watch fires on change or deletion. Raises NoNode (and then leaves no watch)."""

    @abc.abstractmethod
    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch fires on creation, change or deletion."""

    @abc.abstractmethod
    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. The watch fires when a child comes or goes, or the node is deleted. Raises NoNode."""

    @abc.abstractmethod
    async def sync(self) -> None:
        """What is read after this shows whatever anybody had written before it: servers of an ensemble lag behind each
        other."""

    @abc.abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All of them in order as one transaction, or MultiFailed and nothing."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path that was made (with its number, when sequential). Raises NodeExists or NoNode (no parent)."""
        (created,) = await self._single(Create(path, data, ephemeral, sequential))
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._single(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._single(Delete(path, version))

    async def _single(self, operation: Operation) -> list[OperationResult]:
        try:
            return await self.multi([operation])
        except MultiFailed as failed:
            raise failed.error from None

    async def ensure_path(self, path: str) -> None:
        """Create the node and its parents where they are missing, with no data."""
        await self.ensure_paths([path])

    async def ensure_paths(self, paths: Sequence[str]) -> None:
        """The same for many, in one transaction: each would cost a sync of the disk or a turn over the network."""
        nodes: dict[str, None] = {}
        for path in paths:
            parts = path.strip("/").split("/")
            nodes.update((f"/{'/'.join(parts[:depth])}", None) for depth in range(1, len(parts) + 1))
        while missing := [node for node in nodes if await self.exists(node) is None]:
            try:
                await self.multi([Create(node) for node in missing])
            except MultiFailed as failed:
                if not isinstance(failed.error, NodeExists):  # else another broker was faster: see what is left
                    raise failed.error from None

    async def delete_tree(self, path: str) -> None:
        """Delete a node with everything below it, deepest first; nodes that are already gone do not matter."""
        try:
            names = await self.children(path)
        except NoNode:
            return
        for name in names:
            await self.delete_tree(f"{path}/{name}")
        try:
            await self.delete(path)
        except NoNode:
            return
