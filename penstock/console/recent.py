"""Answers of the cluster that many open pages want at the same time: asked for once, and told to all of them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.operate.session import Session

FRESH_SECONDS = 2.5
T = TypeVar("T")


class Recent:
    """By session, because each of them may be told something else."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: weakref.WeakKeyDictionary[Session, dict[str, tuple[float, Any]]] = weakref.WeakKeyDictionary()

    def of(self, session: Session, what: str, ask: Callable[[], T]) -> T:
        known = self._known.setdefault(session, {})
        at, answer = known.get(what, (0.0, None))
        if what in known and self._clock() - at <= FRESH_SECONDS:
            found: T = answer
            return found
        asked = self._clock()
        fresh = ask()
        known[what] = (asked, fresh)
        return fresh

    def forget(self) -> None:
        """Something was changed: whoever did that wants to see it."""
        self._known = weakref.WeakKeyDictionary()
