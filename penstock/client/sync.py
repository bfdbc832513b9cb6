"""The client for plain code: a `Client` on an event loop in a thread of its own.

Safe to carry across `fork` (Spark's Python workers fork): the child notices that it is another process, leaves the
parent's sockets alone and connects anew on first use.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import ClientError
from penstock.client.metadata import ClusterView

__all__ = ["SyncClient"]

T = TypeVar("T")


class _Engine:
    """A loop, its thread and the client that lives there."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self.thread.start()
        self.client = asyncio.run_coroutine_threadsafe(self._make(make_client), self.loop).result()

    async def _make(self, make_client: Callable[[], Client]) -> Client:
        return make_client()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.client.close(), self.loop).result(timeout=10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=10)


class SyncClient:
    """Blocking calls; may be shared between threads."""

    def __init__(self, bootstrap: str | Iterable[str], **options: Any) -> None:
        self._make_client: Callable[[], Client] = lambda: Client(bootstrap, **options)
        self._engine: _Engine | None = None
        self._lock = threading.Lock()
        self._parents: list[_Engine] = []
        self._closed = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **options: Any) -> SyncClient:
        Client.from_properties(properties, **options)  # complains now, not at the first call
        made = cls("unused:1")
        made._make_client = lambda: Client.from_properties(properties, **options)
        return made

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        engine, self._engine = self._engine, None
        if engine is not None and engine.pid == os.getpid():
            engine.stop()

    def run(self, work: Callable[[Client], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run an async function of the client to its end: `sync.run(lambda client: client.metadata(None))`."""
        client, loop = self._live()

        async def call() -> T:
            return await work(client)

        future = asyncio.run_coroutine_threadsafe(call(), loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def _live(self) -> tuple[Client, asyncio.AbstractEventLoop]:
        if self._closed:
            raise ClientError("this client is closed")
        engine = self._engine
        if engine is not None and engine.pid != os.getpid():
            # We are the child of a fork. The parent's loop must not be garbage-collected here: its epoll is shared.
            self._parents.append(engine)
            self._lock = threading.Lock()
            self._engine = None
        with self._lock:
            if self._engine is None:
                self._engine = _Engine(self._make_client)
            return self._engine.client, self._engine.loop

    # --- the same calls as Client ---

    def metadata(self, topics: Iterable[str] | None = (), *, auto_create: bool = False) -> ClusterView:
        return self.run(lambda client: client.metadata(topics, auto_create=auto_create))

    def call_any(self, api_name: str, message: Any, **options: Any) -> Any:
        return self.run(lambda client: client.call_any(api_name, message, **options))

    def call_broker(self, node_id: int, api_name: str, message: Any, **options: Any) -> Any:
        return self.run(lambda client: client.call_broker(node_id, api_name, message, **options))

    def call_leader(self, topic: str, partition: int, api_name: str, message: Any, **options: Any) -> Any:
        return self.run(lambda client: client.call_leader(topic, partition, api_name, message, **options))

    def call_coordinator(self, kind: str, key: str, api_name: str, message: Any, **options: Any) -> Any:
        return self.run(lambda client: client.call_coordinator(kind, key, api_name, message, **options))

    def call_controller(self, api_name: str, message: Any, **options: Any) -> Any:
        return self.run(lambda client: client.call_controller(api_name, message, **options))

    def finalized_feature(self, name: str) -> int:
        return self.run(lambda client: client.finalized_feature(name))

    def produce(self, topic: str, partition: int, batches: bytes, **options: Any) -> records.Produced:
        return self.run(lambda client: records.produce(client, topic, partition, batches, **options))

    def fetch(self, offsets: Mapping[tuple[str, int], int], **options: Any) -> dict[tuple[str, int], records.Fetched]:
        return self.run(lambda client: records.fetch(client, offsets, **options))

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], **options: Any
    ) -> dict[tuple[str, int], records.OffsetAt]:
        return self.run(lambda client: records.list_offsets(client, timestamps, **options))
