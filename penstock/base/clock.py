"""Time, handed in: whatever decides by time takes a `Clock`, so that tests and the simulation own it."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: what records and files carry."""

    def monotonic(self) -> float:
        """Seconds that never run backwards: for time-outs and durations."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until somebody moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, milliseconds: float) -> None:
        """Let time pass on both clocks."""
        if milliseconds < 0:
            raise ValueError("time does not run backwards; use set_wall to move the wall clock")
        self._now_ms += round(milliseconds)
        self._monotonic_ms += milliseconds

    def set_wall(self, now_ms: int) -> None:
        """Move only the wall clock, as an operator or NTP may do, also backwards."""
        self._now_ms = now_ms
