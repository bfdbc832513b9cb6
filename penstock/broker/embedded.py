"""A broker inside another Python program: its own thread and event loop, and no trace in its host.

No signal handlers, no event-loop policy, no global logging, no garbage-collector settings are touched.

    with penstock.Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from penstock.base.settings import Settings

START_SECONDS = 60.0
STOP_SECONDS = 60.0


class EmbeddedBroker:
    """The real broker on a free port. Settings are Kafka's own, with underscores: `num_partitions=3`.

    `folder` keeps the data; without it a temporary one is used and removed. Names that are no identifiers go into
    `settings`. The broker starts with `start()` or the `with` statement and can be started again after `stop()`.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: dict[str, str] | None = None,
        **named_settings: Any,
    ) -> None:
        self._given_folder = None if folder is None else Path(folder)
        self._host = host
        self._port = port
        self._overrides = {name.replace("_", "."): _text(value) for name, value in named_settings.items()}
        self._overrides.update(settings or {})
        self._temporary: Path | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked: asyncio.Event | None = None
        self._broker: Any = None
        self._started: Future[None] = Future()

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return f"{self._host}:{self.port}"

    @property
    def port(self) -> int:
        if self._broker is None:
            raise RuntimeError("the broker is not running")
        return int(self._broker.listeners[0].port)

    @property
    def folder(self) -> Path:
        """Where its logs are."""
        folder = self._given_folder or self._temporary
        if folder is None:
            raise RuntimeError("the broker was not started")
        return folder

    def start(self) -> EmbeddedBroker:
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._given_folder is None and self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="penstock-"))
        overrides = {
            "log.dirs": str(self.folder),
            "listeners": f"PLAINTEXT://{self._host}:{self._port}",
            "group.initial.rebalance.delay.ms": "0",
            **self._overrides,
        }
        settings = Settings.load(None, overrides)
        self._started = Future()
        self._thread = threading.Thread(target=self._run, args=(settings,), name="penstock-broker", daemon=True)
        self._thread.start()
        try:
            self._started.result(START_SECONDS)
        except BaseException:
            self._thread.join(STOP_SECONDS)
            self._thread = None
            self._remove_temporary()
            raise
        self._port = self.port  # a restart keeps the address
        return self

    def stop(self) -> None:
        """Stop gracefully; a temporary folder is removed."""
        self._stop_thread()
        self._remove_temporary()

    def restart(self) -> None:
        """Stop and start again on the same port and folder."""
        self._stop_thread()
        self.start()

    def _stop_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop_asked is not None:
            self._loop.call_soon_threadsafe(self._stop_asked.set)
        thread.join(STOP_SECONDS)
        if thread.is_alive():
            raise RuntimeError("the broker did not stop in time")
        self._broker = self._loop = self._stop_asked = None

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _run(self, settings: Settings) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(settings))
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                raise

    async def _serve(self, settings: Settings) -> None:
        from penstock.broker.broker import Broker

        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        broker = Broker(settings)
        await broker.start()
        self._broker = broker
        self._started.set_result(None)
        await self._stop_asked.wait()
        await broker.stop()

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
