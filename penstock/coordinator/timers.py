"""Timers of coordinator shards: a heap that is cheap to push back.

Sessions are renewed far more often than they expire, so that moving a deadline later only writes a number; the heap
entry finds out when it surfaces. Nothing here reads a clock or waits: the runtime asks for what is due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Protocol

__all__ = ["Timer", "TimerQueue", "Timers"]


class Timers(Protocol):
    """The timers of one shard, as its state machine sees them."""

    def schedule(self, name: Hashable, delay_ms: float, key: Hashable, command: Callable[..., Any]) -> None:
        """Run `command` as a write under `key` after `delay_ms`; a timer of the same name is replaced."""

    def cancel(self, name: Hashable) -> None: ...

    def pending(self, name: Hashable) -> bool: ...


class Timer:
    """One timer; once it is due, whoever runs it asks `is_wanted` at the last moment."""

    __slots__ = ("command", "deadline_ms", "is_wanted", "key", "name", "queued_ms")

    def __init__(self, name: Hashable, deadline_ms: float, key: Hashable, command: Callable[..., Any]) -> None:
        self.name = name
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms
        self.key = key
        self.command = command
        self.is_wanted = True
        """False when it was moved or cancelled after it had been taken out: a session renewed in the same wake-up."""


class TimerQueue:
    """Timers by name, the earliest first."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, Timer] = {}
        self._heap: list[tuple[float, int, Hashable, Timer]] = []
        self._due: dict[Hashable, Timer] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    def schedule(self, name: Hashable, deadline_ms: float, key: Hashable, command: Callable[..., Any]) -> bool:
        """Set or move a timer; True if it may now be the earliest (the driver must look again)."""
        self._unwanted(name)
        timer = self._timers.get(name)
        if timer is not None and deadline_ms >= timer.queued_ms:
            timer.deadline_ms, timer.key, timer.command = deadline_ms, key, command
            return False
        timer = self._timers[name] = Timer(name, deadline_ms, key, command)
        self._push(name, timer)
        return self._heap[0][3] is timer

    def cancel(self, name: Hashable) -> None:
        self._unwanted(name)
        self._timers.pop(name, None)

    def _unwanted(self, name: Hashable) -> None:
        if self._due and (due := self._due.pop(name, None)) is not None:
            due.is_wanted = False

    def done(self, timer: Timer) -> None:
        """What was due has run."""
        if self._due.get(timer.name) is timer:
            del self._due[timer.name]

    def clear(self) -> None:
        for timer in self._due.values():
            timer.is_wanted = False
        self._due.clear()
        self._timers.clear()
        self._heap.clear()

    def next_deadline_ms(self) -> float | None:
        """When to look again (it may turn out that nothing is due then)."""
        while self._heap and self._timers.get(self._heap[0][2]) is not self._heap[0][3]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: float) -> list[Timer]:
        """Take out what is due, the earliest first. Each is either run and `done`, or found unwanted."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, name, timer = heapq.heappop(self._heap)
            if self._timers.get(name) is not timer:
                continue  # cancelled or replaced by an earlier one
            if timer.deadline_ms > now_ms:
                timer.queued_ms = timer.deadline_ms
                self._push(name, timer)
                continue
            del self._timers[name]
            self._due[name] = timer
            due.append(timer)
        return due

    def _push(self, name: Hashable, timer: Timer) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (timer.queued_ms, self._sequence, name, timer))
