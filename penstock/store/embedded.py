"""The tree store of a single node: ZooKeeper's rules (tree.py) on top of a SQLite file, in the broker's own process.

Reads come from memory. A write is worked out in memory, made durable by one SQLite transaction in a worker thread,
and only then becomes visible and fires watches. The file is locked: one process at a time. Sessions are as
short-lived as the process, so ephemeral nodes are never stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.base.clock import Clock, SystemClock
from penstock.store.interface import (
    ConnectionLost,
    Delete,
    Node,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    StoreUnusable,
    TreeStore,
    Watch,
)
from penstock.store.tree import Transaction, Tree, TreeNode
from penstock.store.watches import WatchTable

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, version INTEGER NOT NULL, created_children INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_UPSERT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

logger = logging.getLogger(__name__)


def _for_its_owner(path: Path) -> None:
    """Users' credentials lie in it: nobody else may read it, also where an earlier release left it open."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def connect(path: Path) -> sqlite3.Connection:
    """Opened by one thread, used by another from then on."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)


class EmbeddedDatabase:
    """The tree and its file, shared by all sessions of this process. Without a path it lives in memory only."""

    def __init__(
        self,
        path: Path | None = None,
        clock: Clock | None = None,
        connect: Callable[[Path], sqlite3.Connection] = connect,
    ) -> None:
        self.tree = Tree()
        self.clock: Clock = clock or SystemClock()
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._write_lock = asyncio.Lock()
        self._sessions: dict[int, EmbeddedStore] = {}
        self._next_session = 1
        self._users = 0

    def open(self) -> None:
        self._users += 1
        if self._users > 1 or self._path is None:
            return
        try:
            self._load(self._path)
        except BaseException:
            self._users -= 1
            self._close_file()
            raise

    def _load(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            is_new = not path.exists() or path.stat().st_size == 0
            _for_its_owner(path)
            connection = self._connection = self._connect(path)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            if is_new:  # nothing to lose yet: one sync below instead of seven
                connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            if not is_new:
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN EXCLUSIVE")
            stored = connection.execute("PRAGMA user_version").fetchone()[0]
            if stored > SCHEMA_VERSION:
                raise StoreUnusable(f"the store {path} is of a newer release (schema {stored}, known {SCHEMA_VERSION})")
            if stored < SCHEMA_VERSION:  # else nothing is written: a store can be opened on a full disk
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
            if is_new:
                _sync(path)
                _sync(path.parent)
                connection.execute("PRAGMA synchronous = FULL")  # the next commit syncs the whole journal
            counters = dict(connection.execute("SELECT name, value FROM counter"))
            rows = connection.execute(
                "SELECT path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, created_children FROM node"
            )
            tree = Tree()
            tree.load(((row[0], TreeNode(*row[1:])) for row in rows), counters.get("zxid", 0))
        except sqlite3.OperationalError as error:
            hint = "; is another broker using it?" if "locked" in str(error) else ""
            raise StoreUnusable(f"the store {path} cannot be opened ({error}){hint}") from error
        except sqlite3.DatabaseError as error:
            raise StoreUnusable(f"the store {path} is not a usable store file: {error}") from error
        except OSError as error:
            why = f"{path.parent} is a file" if path.parent.is_file() else error.strerror
            raise StoreUnusable(f"the store {path} cannot be opened: {why}") from error
        self._next_session = counters.get("session", 0) + 1
        self.tree = tree
        self._worker = ThreadPoolExecutor(1, "penstock-store")

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._close_file()

    def _close_file(self) -> None:
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin_session(self, store: EmbeddedStore) -> int:
        session_id = self._next_session
        self._next_session += 1
        self._sessions[session_id] = store
        return session_id

    async def end_session(self, session_id: int) -> None:
        if self._sessions.pop(session_id, None) is None:
            return
        ephemerals = self.tree.ephemerals_of(session_id)
        if ephemerals:
            await self.write([Delete(path) for path in ephemerals], session_id)

    async def write(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        # Shielded: a caller that gives up must not leave a stored transaction out of the tree.
        return await asyncio.shield(asyncio.ensure_future(self._write(operations, session_id)))

    async def _write(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        async with self._write_lock:
            transaction = self.tree.prepare(operations, session_id, self.clock.now_ms())
            if not transaction.changed:
                return transaction.results
            if self._worker is not None:
                loop = asyncio.get_running_loop()
                try:
                    await loop.run_in_executor(self._worker, self._make_durable, transaction)
                except sqlite3.Error as error:
                    raise ConnectionLost(str(self._path), f"write failed: {error}") from error
            self._commit(transaction)
        return transaction.results

    def _commit(self, transaction: Transaction) -> None:
        self.tree.commit(transaction)
        for session in list(self._sessions.values()):
            session.fire(transaction)

    def _make_durable(self, transaction: Transaction) -> None:
        connection = self._connection
        assert connection is not None
        if connection.in_transaction:  # the disk refused even to take the last one back
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for path, node in transaction.changed.items():
                if node is None or node.ephemeral_owner:
                    connection.execute("DELETE FROM node WHERE path = ?", (path,))
                else:
                    connection.execute(
                        _UPSERT,
                        (
                            path,
                            node.data,
                            node.czxid,
                            node.mzxid,
                            node.pzxid,
                            node.ctime_ms,
                            node.mtime_ms,
                            node.version,
                            node.created_children,
                        ),
                    )
            # zxids and session ids must never repeat: broker epochs are made of them.
            for name, value in (("zxid", transaction.zxid), ("session", self._next_session)):
                connection.execute("INSERT OR REPLACE INTO counter VALUES (?, ?)", (name, value))
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class EmbeddedStore(TreeStore):
    """One session with an embedded database."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self._database = database
        self._watches = WatchTable()
        self._listeners: list[SessionListener] = []
        self._state = SessionState.CLOSED
        self._session_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._database.open()
        self._begin()

    async def restart_session(self) -> None:
        if self._state is SessionState.EXPIRED:
            self._begin()

    def _begin(self) -> None:
        self._session_id = self._database.begin_session(self)
        self._change_state(SessionState.CONNECTED)

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        self._watches.clear()
        if self._state is SessionState.CONNECTED:
            try:
                await self._database.end_session(self._session_id)
            except ConnectionLost as error:  # a full disk: ephemerals are not stored, so nothing is left behind
                logger.warning("the session ends without a trace: %s", error)
        self._change_state(SessionState.CLOSED)
        self._database.close()

    async def expire(self) -> None:
        """End the session from the store's side, as ZooKeeper does to a client it no longer hears. For tests."""
        self._watches.clear()
        await self._database.end_session(self._session_id)
        self._change_state(SessionState.EXPIRED)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_state(self) -> SessionState:
        return self._state

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        self._require_session(path)
        node = self._database.tree.get(path)
        if watch is not None:
            self._watches.add_node(path, watch)
        return node

    async def sync(self) -> None:
        """One process, one tree: there is nothing to wait for."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._require_session(path)
        stat = self._database.tree.exists(path)
        if watch is not None:
            self._watches.add_node(path, watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._require_session(path)
        names = self._database.tree.children(path)
        if watch is not None:
            self._watches.add_children(path, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._require_session(operations[0].path if operations else "")
        return await self._database.write(operations, self._session_id)

    def fire(self, transaction: Transaction) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        for watch, event in self._watches.take(transaction.events):
            loop.call_soon(watch, event)

    def _require_session(self, path: str) -> None:
        if self._state is SessionState.EXPIRED:
            raise SessionExpired(path)
        if self._state is not SessionState.CONNECTED:
            raise ConnectionLost(path, "the store is not open")

    def _change_state(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            listener(state)
