"""The tree store on ZooKeeper, through kazoo: the one place that knows kazoo.

kazoo works and calls back on threads of its own; everything is handed over to the event loop here. It forgets its
watches when a connection drops, so after every reconnect all watches that have not fired yet are fired: whoever set
them reads again. While the connection is down operations fail at once with ConnectionLost instead of queueing up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE

from penstock.base.settings import Settings
from penstock.store.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventKind,
    InvalidPath,
    MultiFailed,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    StoreError,
    StoreUnusable,
    TreeStore,
    Watch,
    WatchEvent,
)
from penstock.store.tree import check_path

logger = logging.getLogger(__name__)

_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (zk.NoNodeError, NoNode),
    (zk.NodeExistsError, NodeExists),
    (zk.BadVersionError, BadVersion),
    (zk.NotEmptyError, NotEmpty),
    (zk.NoChildrenForEphemeralsError, NoChildrenForEphemerals),
    (zk.BadArgumentsError, InvalidPath),
    (zk.SessionExpiredError, SessionExpired),
)
_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}


class _PendingWatch:
    """One watch on its way: fires once, on the loop, from an event or from a reconnect."""

    __slots__ = ("path", "watch")

    def __init__(self, path: str, watch: Watch) -> None:
        self.path = path
        self.watch = watch


class ZooKeeperStore(TreeStore):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = SessionState.CLOSED
        self._listeners: list[SessionListener] = []
        self._pending: dict[_PendingWatch, None] = {}
        self._connected = asyncio.Event()
        """Set while kazoo has a connection, whatever session it belongs to."""

    # --- session ---

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = self._make_client()
        self._client.add_listener(self._from_thread)
        self._client.start_async()
        timeout_ms = self._settings["zookeeper.connection.timeout.ms"] or self._session_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
            await self._make_chroot()
        except TimeoutError:
            await self.close()
            address = self._settings["zookeeper.connect"]
            hint = "; is penstock.zookeeper.auth right?" if self._settings["penstock.zookeeper.auth"] else ""
            raise StoreUnusable(f"no ZooKeeper answers at {address} within {timeout_ms} ms{hint}") from None
        except BaseException:
            await self.close()
            raise

    @property
    def _session_timeout_ms(self) -> int:
        return int(self._settings["zookeeper.session.timeout.ms"])

    def _make_client(self) -> Any:
        settings = self._settings
        scheme, _, credential = (settings["penstock.zookeeper.auth"] or "").partition(":")
        options: dict[str, Any] = {}
        if scheme == "digest":
            options["auth_data"] = [("digest", credential)]
        elif scheme == "sasl":
            user, _, password = credential.partition(":")
            options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
        elif scheme:
            raise ConnectionLost("/", "penstock.zookeeper.auth must begin with digest: or sasl:")
        if settings["zookeeper.ssl.client.enable"]:
            options |= {
                "use_ssl": True,
                "ca": settings["zookeeper.ssl.truststore.location"],
                "certfile": settings["zookeeper.ssl.keystore.location"],
                "keyfile": settings["zookeeper.ssl.keystore.location"],
                "keyfile_password": settings["zookeeper.ssl.keystore.password"],
                "verify_certs": True,
                "check_hostname": bool(settings["zookeeper.ssl.endpoint.identification.algorithm"]),
            }
        return KazooClient(
            hosts=settings["zookeeper.connect"],
            timeout=self._session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=1.0),
            logger=logging.getLogger("penstock.store.kazoo"),
            **options,
        )

    async def _make_chroot(self) -> None:
        """A chroot in the connect string is made if it is missing, as Kafka does."""
        chroot = self._client.chroot
        if not chroot:
            return
        self._client.chroot = ""
        try:
            await self.ensure_path(chroot)
        finally:
            self._client.chroot = chroot

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._from_thread)
        self._pending.clear()
        self._change_state(SessionState.CLOSED)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, client.stop)
        await loop.run_in_executor(None, client.close)

    async def restart_session(self) -> None:
        """kazoo begins a new session by itself as soon as a server answers; wait for that and accept it."""
        if self._state is not SessionState.EXPIRED:
            return
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLost("/", "no ZooKeeper server answers") from None
        self._change_state(SessionState.CONNECTED)

    @property
    def session_id(self) -> int:
        session = self._client.client_id if self._client is not None else None
        return int(session[0]) if session is not None and session[0] is not None else 0

    @property
    def session_state(self) -> SessionState:
        return self._state

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _from_thread(self, state: str) -> None:
        self._call_on_loop(self._session_event, state)

    def _call_on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function, *arguments)

    def _session_event(self, state: str) -> None:
        if self._client is None:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            if self._state is SessionState.EXPIRED:
                return  # a new session: `restart_session` lets it in
            self._change_state(SessionState.CONNECTED)
            self._fire_all()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            if self._state is SessionState.CONNECTED:
                self._change_state(SessionState.SUSPENDED)
        elif self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            self._connected.clear()
            self._pending.clear()
            self._change_state(SessionState.EXPIRED)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in list(self._listeners):
            listener(state)

    # --- watches ---

    def _fire_all(self) -> None:
        pending, self._pending = self._pending, {}
        for waiting in pending:
            waiting.watch(WatchEvent(EventKind.CHANGED, waiting.path))

    def _prepare_watch(self, path: str, watch: Watch | None) -> tuple[_PendingWatch | None, Any]:
        if watch is None:
            return None, None
        pending = _PendingWatch(path, watch)
        self._pending[pending] = None

        def fired(event: Any) -> None:  # on a thread of kazoo
            kind = _KINDS.get(event.type)
            if kind is not None:
                self._call_on_loop(self._watch_fired, pending, WatchEvent(kind, path))

        return pending, fired

    def _watch_fired(self, pending: _PendingWatch, event: WatchEvent) -> None:
        if pending in self._pending:
            del self._pending[pending]
            pending.watch(event)

    # --- operations ---

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        data, stat = await self._watched(path, watch, lambda client, fired: client.get_async(path, watch=fired))
        return Node(data, _stat(stat))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._watched(path, watch, lambda client, fired: client.exists_async(path, watch=fired))
        return _stat(stat) if stat is not None else None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._watched(path, watch, lambda client, fired: client.get_children_async(path, watch=fired))
        return sorted(names)

    async def sync(self) -> None:
        client = self._require_session("/")
        await self._result(client.sync_async("/"), "/")

    async def _watched(self, path: str, watch: Watch | None, call: Callable[[Any, Any], Any]) -> Any:
        check_path(path)
        client = self._require_session(path)
        pending, fired = self._prepare_watch(path, watch)
        try:
            return await self._result(call(client, fired), path)
        except StoreError:
            if pending is not None:
                self._pending.pop(pending, None)
            raise

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        client = self._require_session(operations[0].path if operations else "")
        transaction = client.transaction()
        for index, operation in enumerate(operations):
            try:
                check_path(operation.path)
            except InvalidPath as error:
                raise MultiFailed(index, error) from None
            match operation:
                case Create():
                    transaction.create(
                        operation.path,
                        operation.data,
                        acl=self._acl(operation.path),
                        ephemeral=operation.ephemeral,
                        sequence=operation.sequential,
                    )
                case SetData():
                    transaction.set_data(operation.path, operation.data, operation.version)
                case Delete():
                    transaction.delete(operation.path, operation.version)
                case Check():
                    transaction.check(operation.path, operation.version)
        results = await self._result(transaction.commit_async(), operations[0].path if operations else "")
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, zk.RolledBackError | zk.RuntimeInconsistency):
                raise MultiFailed(index, _translated(result, operations[index].path))
        return [_operation_result(op, result) for op, result in zip(operations, results, strict=True)]

    async def _result(self, pending: Any, path: str) -> Any:
        """The outcome of one of kazoo's own futures, waited for on the loop."""
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()

        def finish(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(_translated(error, path))

        def ready(done: Any) -> None:  # on a thread of kazoo
            error = done.exception
            self._call_on_loop(finish, None if error is not None else done.value, error)

        pending.rawlink(ready)
        return await future

    def _acl(self, path: str) -> list[ACL] | None:
        """Who may do what with a new node, None for everybody. A broker that logs in keeps secrets to its own kind in
        any case; zookeeper.set.acl also keeps others from changing the rest."""
        settings = self._settings
        certificate = settings["zookeeper.ssl.client.enable"] and settings["zookeeper.ssl.keystore.location"]
        logs_in = bool(settings["penstock.zookeeper.auth"] or certificate)
        if any(path == folder or path.startswith(f"{folder}/") for folder in SECRET_FOLDERS):
            return list(CREATOR_ALL_ACL) if logs_in or settings["zookeeper.set.acl"] else None
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if settings["zookeeper.set.acl"] else None

    def _require_session(self, path: str) -> Any:
        if self._state is SessionState.EXPIRED:
            raise SessionExpired(path)
        if self._state is not SessionState.CONNECTED or self._client is None:
            raise ConnectionLost(path, "not connected to ZooKeeper")
        return self._client


SECRET_FOLDERS = ("/config/users", "/config/brokers", "/delegation_token", "/penstock")
"""Credentials, tokens and the brokers' secret lie here: with authentication nobody but brokers reads them."""


def _translated(error: BaseException, path: str) -> StoreError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(path)
    if isinstance(error, StoreError):
        return error
    return ConnectionLost(path, f"{type(error).__name__}: {error}")


def _operation_result(operation: Operation, result: Any) -> OperationResult:
    if isinstance(operation, Create):
        return str(result)
    return _stat(result) if isinstance(operation, SetData) else None


def _stat(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        children_count=stat.numChildren,
    )
