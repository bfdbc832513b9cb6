"""An asyncio event loop on virtual time: when nothing is ready it jumps to the next timer instead of sleeping.

Nothing in it depends on the real clock or on real sockets, so a run is a function of its seed.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any


class Deadlock(Exception):
    """Nobody is ready and no timer is set: everything waits for something that cannot happen."""


class _NoSelector(selectors.BaseSelector):
    """Stands where the loop would wait for sockets."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self.loop is not None
        if timeout is None:
            raise Deadlock
        if timeout > 0:
            self.loop.jump(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at zero and moves only from timer to timer."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        selector = _NoSelector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._virtual_now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: threads would end in an order of their own."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds
