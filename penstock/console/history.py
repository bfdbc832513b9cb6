"""Figures over time: fine for the last hour, by the minute for a week, under names such as `topic:orders:in`.

In memory for the charts; kept by a `Keeper` (history_keepers.py), so that charts survive a restart.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

FINE_SECONDS, FINE_POINTS = 5, 720  # an hour
COARSE_SECONDS, COARSE_POINTS = 60, 7 * 24 * 60
MOST_SERIES = 20_000

Point = tuple[int, float]
"""(ms since 1970, value)."""


class Keeper(Protocol):
    """Where minutes are kept."""

    def load(self, since_ms: int) -> Iterator[tuple[int, Mapping[str, float]]]: ...

    def keep(self, at_ms: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class _Series:
    __slots__ = ("coarse", "count", "fine", "total")

    def __init__(self) -> None:
        self.fine: deque[Point] = deque(maxlen=FINE_POINTS)
        self.coarse: deque[Point] = deque(maxlen=COARSE_POINTS)
        self.total, self.count = 0.0, 0


class History:
    """Thread-safe: the poller writes, pages read."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._clock_ms = clock_ms
        self._series: dict[str, _Series] = {}
        self._lock = threading.Lock()
        self._minute = clock_ms() // (COARSE_SECONDS * 1000)

    def load(self, keeper: Keeper) -> None:
        since = self._clock_ms() - COARSE_POINTS * COARSE_SECONDS * 1000
        for at_ms, values in keeper.load(since):
            with self._lock:
                for name, value in values.items():
                    self._of(name).coarse.append((at_ms, value))

    def add(self, at_ms: int, values: Mapping[str, float]) -> Mapping[str, float] | None:
        """Note figures of one look. Once a minute is over its averages come back, to be kept."""
        with self._lock:
            finished = self._finish_minute(at_ms) if at_ms // (COARSE_SECONDS * 1000) != self._minute else None
            for name, value in values.items():
                series = self._of(name)
                series.fine.append((at_ms, value))
                series.total += value
                series.count += 1
        return finished

    def _finish_minute(self, at_ms: int) -> dict[str, float]:
        end_ms = (self._minute + 1) * COARSE_SECONDS * 1000
        self._minute = at_ms // (COARSE_SECONDS * 1000)
        averages = {}
        for name, series in self._series.items():
            if series.count:
                averages[name] = round(series.total / series.count, 3)
                series.coarse.append((end_ms, averages[name]))
                series.total, series.count = 0.0, 0
        return averages

    def _of(self, name: str) -> _Series:
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= MOST_SERIES:
                oldest = min(self._series, key=lambda known: self._last(self._series[known]))
                del self._series[oldest]
            series = self._series[name] = _Series()
        return series

    @staticmethod
    def _last(series: _Series) -> int:
        return max(series.fine[-1][0] if series.fine else 0, series.coarse[-1][0] if series.coarse else 0)

    def points(self, name: str, seconds: int) -> list[Point]:
        """The last so many seconds of a series; fine for up to an hour, else by the minute."""
        since = self._clock_ms() - seconds * 1000
        with self._lock:
            series = self._series.get(name)
            if series is None:
                return []
            fine = [point for point in series.fine if point[0] >= since]
            first_fine = fine[0][0] if fine else self._clock_ms() + 1
            coarse = [point for point in series.coarse if since <= point[0] < first_fine]
            return coarse + (fine if seconds <= FINE_SECONDS * FINE_POINTS else fine[:: COARSE_SECONDS // FINE_SECONDS])
