"""How many connections there may be, and how fast they may come: for the broker, for a listener, for an address."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import Any

__all__ = ["ConnectionLimits", "CreationRate", "plain_host"]


def plain_host(host: str) -> str:
    """IPv4 clients of an IPv6 socket are still known by their IPv4 address."""
    return host[7:] if host.startswith("::ffff:") else host


class CreationRate:
    """New connections per second: a bucket that holds one second's worth, and says how long to wait when empty."""

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self._left = float(per_second)
        self._at = now

    def change(self, per_second: int) -> None:
        if per_second != self.per_second:
            self.per_second = per_second
            self._left = min(self._left, float(per_second))

    def take(self) -> None:
        self._left -= 1

    def wait_seconds(self, now: float) -> float:
        """0: one may come in now."""
        self._left = min(float(self.per_second), self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left >= 1:
            return 0.0
        return (1 - self._left) / self.per_second if self.per_second else 1.0


class ConnectionLimits:
    """Connections of the whole broker: how many, and how many per address."""

    def __init__(self, settings: Any, now: float = 0.0) -> None:
        self.total = 0
        self.per_host: Counter[str] = Counter()
        self.creation = CreationRate(settings["max.connection.creation.rate"], now)
        self.take(settings)

    def take(self, settings: Any) -> None:
        """All of them may be changed while the broker runs; connections that are open stay."""
        self.max_total: int = settings["max.connections"]
        self.max_per_host: int = settings["max.connections.per.ip"]
        self.per_host_overrides = _overrides(settings["max.connections.per.ip.overrides"])
        self.creation.change(settings["max.connection.creation.rate"])

    @property
    def full(self) -> bool:
        return self.total >= self.max_total

    def enter(self, host: str) -> bool:
        if self.per_host[host] >= self.per_host_overrides.get(host, self.max_per_host):
            return False
        self.per_host[host] += 1
        self.total += 1
        return True

    def leave(self, host: str) -> None:
        self.total -= 1
        self.per_host[host] -= 1
        if not self.per_host[host]:
            del self.per_host[host]


def _overrides(text: Any) -> dict[str, int]:
    entries = text if isinstance(text, (list, tuple)) else str(text or "").split(",")
    overrides: dict[str, int] = {}
    for entry in entries:
        host, separator, count = entry.strip().rpartition(":")
        if separator:
            with contextlib.suppress(OSError):
                for found in socket.getaddrinfo(host, None):
                    overrides[plain_host(str(found[4][0]))] = int(count)
    return overrides
