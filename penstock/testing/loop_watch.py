"""How long one piece of work holds the loop of an embedded broker, in processor time: other load does not count.

with LoopWatch(broker) as watch:
    attack()
assert watch.longest_seconds < 0.1
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any

_STEP_SECONDS = 0.002


class LoopWatch:
    """A timer on the broker's loop; what its thread worked between two ticks is the stall another client feels."""

    def __init__(self, broker: Any) -> None:
        self._loop: asyncio.AbstractEventLoop = broker._loop
        self._worked = 0.0
        self._running = False
        self.longest_seconds = 0.0

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest_seconds = max(self.longest_seconds, now - self._worked)
        self._worked = now
        if self._running:
            self._loop.call_later(_STEP_SECONDS, self._tick)

    def _on_loop(self, action: Any) -> None:
        done: Future[None] = Future()

        def run() -> None:
            action()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(120)

    def _begin(self) -> None:
        self._worked = time.thread_time()
        self._running = True
        self._tick()

    def _finish(self) -> None:
        self._running = False
        self._tick()

    def __enter__(self) -> LoopWatch:
        self._on_loop(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_loop(self._finish)
