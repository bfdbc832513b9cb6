"""Lag in seconds without asking for records: when an offset was written, from the ends that earlier looks saw.

What was written before the first look is asked for, a few partitions a look, and remembered while a group stands still.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

Key = tuple[str, int]
MOST_POINTS = 120
MOST_ASKED = 10  # partitions a look


class LagAges:
    """Not thread-safe: it belongs to the thread that looks at one cluster."""

    def __init__(self, ask: Callable[[str, int, int], float | None]) -> None:
        self._ask = ask
        self._points: dict[Key, list[tuple[int, int]]] = {}  # (end, ms when it was seen), growing
        self._asked: dict[Key, tuple[int, int | None]] = {}  # offset → ms when its record was written
        self._left = 0

    def note(self, at_ms: int, ends: Mapping[Key, int], keys: Iterable[Key]) -> None:
        """Where the consumed partitions end now; those that nobody consumes any more are forgotten."""
        wanted = {key for key in keys if key in ends}
        self._left = MOST_ASKED
        for gone in self._points.keys() - wanted:
            del self._points[gone]
        for gone in self._asked.keys() - wanted:
            del self._asked[gone]
        for key in wanted:
            points = self._points.setdefault(key, [])
            if points and points[-1][0] > ends[key]:
                points.clear()  # the topic was made anew, or its log was cut
            if not points or points[-1][0] < ends[key]:
                points.append((ends[key], at_ms))
            if len(points) > MOST_POINTS:
                del points[1 : MOST_POINTS // 2 : 2]  # the past gets coarser

    def seconds(self, key: Key, offset: int, now_ms: int) -> float | None:
        """How long ago the record at this offset was written; None if that is not known."""
        points = self._points.get(key, [])
        following = bisect_right(points, (offset, 2**63))
        if following == len(points):
            return 0.0
        if following > 0:
            (low, before_ms), (high, after_ms) = points[following - 1], points[following]
            written = before_ms + (after_ms - before_ms) * (offset - low) / max(1, high - low)
            return max(0.0, (now_ms - written) / 1000)
        written_ms = self._written_ms(key, offset, now_ms)
        return None if written_ms is None else max(0.0, (now_ms - written_ms) / 1000)

    def _written_ms(self, key: Key, offset: int, now_ms: int) -> int | None:
        known = self._asked.get(key)
        if known is not None and (known[0] == offset or self._left <= 0):
            return known[1]
        if self._left <= 0:
            return None
        self._left -= 1
        age = self._ask(key[0], key[1], offset)
        written_ms = None if age is None else now_ms - int(age * 1000)
        self._asked[key] = (offset, written_ms)
        return written_ms
