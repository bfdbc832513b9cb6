"""How much somebody used lately, and how long he must pause: Kafka's sampled rate and its token bucket. Pure; time is
handed in, in seconds."""

from __future__ import annotations

__all__ = ["SampledRate", "TokenBucket"]


class SampledRate:
    """Usage per second over the last windows. Kafka's Rate: the window in hand counts, and before all windows have
    passed the rate is that of a full span."""

    __slots__ = ("_bound", "_floor", "_sample", "_samples", "_total", "_window_ends", "_window_s", "_windows")

    def __init__(self, bound: float, windows: int, window_s: float, now: float) -> None:
        self._windows = windows
        self._window_s = window_s
        self._sample = [now, 0.0]  # [start, usage] of the window in hand
        self._samples: list[list[float]] = []  # oldest first
        self._window_ends = now
        self._total = 0.0
        self.bound = bound

    @property
    def bound(self) -> float:
        return self._bound

    @bound.setter
    def bound(self, bound: float) -> None:
        self._bound = bound
        self._floor = bound * max(self._windows - 1, 1) * self._window_s  # within it, whatever the span is

    def record(self, usage: float, now: float) -> float:
        """Add to the usage; the pause in seconds that brings the rate back to its bound, 0 within it."""
        if now >= self._window_ends:
            self._forget(now)
            self._sample = [now, 0.0]
            self._samples.append(self._sample)
            self._window_ends = now + self._window_s
        self._sample[1] += usage
        self._total += usage
        if self._total <= self._floor:
            return 0.0
        span = self._span(now)
        rate = self._total / span
        return (rate - self._bound) / self._bound * span if rate > self._bound else 0.0

    def take_back(self, usage: float) -> None:
        """What was recorded last did not happen after all."""
        self._sample[1] -= usage
        self._total -= usage

    def rate(self, now: float) -> float:
        self._forget(now)
        return self._total / self._span(now)

    def _forget(self, now: float) -> None:
        oldest = now - self._windows * self._window_s
        kept = [sample for sample in self._samples if sample[0] > oldest]
        if len(kept) != len(self._samples):
            self._samples = kept
            self._total = sum(sample[1] for sample in kept)

    def _span(self, now: float) -> float:
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = self._windows - 1 - int(elapsed / self._window_s)
        return elapsed + max(missing, 0) * self._window_s or self._window_s


class TokenBucket:
    """Bursts are fine, on average the rate holds. Tokens may go below zero: whoever overdrew waits until they are back
    (KIP-599)."""

    __slots__ = ("_burst", "_tokens", "_updated", "bound")

    def __init__(self, bound: float, windows: int, window_s: float, now: float) -> None:
        self.bound = bound
        self._burst = bound * windows * window_s
        self._tokens = self._burst
        self._updated = now

    def pause(self, now: float) -> float:
        """How long to wait until something may be spent again, 0 if at once."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self.bound)
        self._updated = now
        return -self._tokens / self.bound if self._tokens < 0 else 0.0

    def record(self, usage: float, now: float) -> float:
        """Spend; the pause that follows from it."""
        self.pause(now)
        self._tokens -= usage
        return self.pause(now)
