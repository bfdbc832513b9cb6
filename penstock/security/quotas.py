"""Client quotas at work: who used how much, and how long he must pause. There is none of this while no quota is set.

The broker asks with a connection and what was used; the answer is the pause in milliseconds, which goes into the answer
and for which the connection is not read. Connections of proven brokers are exempt.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from penstock.base.clock import Clock
from penstock.base.metrics import Metrics
from penstock.security.quota_limits import FETCH, MUTATION, REQUEST, QuotaLimits
from penstock.security.quota_rates import SampledRate, TokenBucket

__all__ = ["ClientQuotas"]

METERS = 10_000  # the least recently used are forgotten beyond

MeterKey = tuple[str, str, str]


class ClientQuotas:
    """The quotas of one broker: each broker measures for itself, as in Kafka."""

    def __init__(self, settings: Any, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._windows: int = settings["quota.window.num"]
        self._window_s: float = settings["quota.window.size.seconds"]
        self._mutation_windows: int = settings["controller.quota.window.num"]
        self._mutation_window_s: float = settings["controller.quota.window.size.seconds"]
        self.limits = QuotaLimits()
        self.measures_time = False
        self._meters: OrderedDict[MeterKey, SampledRate | TokenBucket] = OrderedDict()
        self._addresses: OrderedDict[str, SampledRate] = OrderedDict()

    def take(self, limits: QuotaLimits) -> None:
        """New limits hold from now on; what was used counts on."""
        self.limits = limits
        self.measures_time = REQUEST in limits.kinds
        self._addresses.clear()

    # Clients -----------------------------------------------------------------------------------------------------

    def worked(self, connection: Any, client_id: str, seconds: float) -> int:
        """Time of this process as a percentage; never more than one window's pause, as the next request tells more."""
        return self._record(REQUEST, connection, client_id, seconds * 100, self._window_s)

    def fetched(self, connection: Any, client_id: str, size: int) -> int:
        """A pause means: answer without records, which then do not count."""
        pause = self._record(FETCH, connection, client_id, size)
        if pause:
            meter = self.meter(FETCH, connection, client_id)
            if isinstance(meter, SampledRate):
                meter.take_back(size)
        return pause

    def fetch_limit_bytes(self, connection: Any, client_id: str) -> int | None:
        """No single answer may hold more than a whole span of windows allows."""
        if FETCH not in self.limits.kinds or connection.broker_id >= 0:
            return None
        limit = self.limits.of_client(FETCH, connection.principal.name, client_id)
        return None if limit is None else max(int(limit.bound * (self._windows - 1) * self._window_s), 1)

    def mutated(self, connection: Any, client_id: str, count: int, *, strict: bool) -> tuple[bool, int]:
        """(whether it may be done now, pause in ms) for changes of partitions. Old clients are never refused."""
        meter = self.meter(MUTATION, connection, client_id)
        if not isinstance(meter, TokenBucket):
            return True, 0
        now = self._clock.monotonic()
        pause = meter.pause(now)
        if strict and pause > 0:
            return False, self.told(MUTATION, pause)
        pause = meter.record(count, now)
        return True, 0 if strict else self.told(MUTATION, pause)

    def _record(self, kind: str, connection: Any, client_id: str, usage: float, longest_s: float = 3600.0) -> int:
        meter = self.meter(kind, connection, client_id)
        if meter is None:
            return 0
        pause = meter.record(usage, self._clock.monotonic())
        return self.told(kind, min(pause, longest_s)) if pause > 0 else 0

    def told(self, kind: str, pause: float) -> int:
        """A pause in milliseconds, and counted."""
        if pause <= 0:
            return 0
        self._metrics.cell("throttled", kind).value += 1
        return max(round(pause * 1000), 1)

    def meter(self, kind: str, connection: Any, client_id: str) -> SampledRate | TokenBucket | None:
        if kind not in self.limits.kinds or connection.broker_id >= 0:
            return None
        limit = self.limits.of_client(kind, connection.principal.name, client_id)
        if limit is None:
            return None
        key = (kind, limit.user, limit.client_id)
        meter = self._meters.get(key)
        if meter is None or meter.bound != limit.bound:
            now = self._clock.monotonic()
            if kind == MUTATION:
                meter = TokenBucket(limit.bound, self._mutation_windows, self._mutation_window_s, now)
            elif isinstance(meter, SampledRate):
                meter.bound = limit.bound  # what was used is not forgotten because the limit moved
            else:
                meter = SampledRate(limit.bound, self._windows, self._window_s, now)
            self._meters[key] = meter
            if len(self._meters) > METERS:
                self._meters.popitem(last=False)
        self._meters.move_to_end(key)
        return meter

    # Addresses ---------------------------------------------------------------------------------------------------

    def connected(self, host: str) -> float:
        """A new connection from there; the seconds for which it must be held back, 0 within the limit."""
        bound = self.limits.of_address(host)
        if bound is None:
            return 0.0
        now = self._clock.monotonic()
        meter = self._addresses.get(host)
        if meter is None:
            meter = self._addresses[host] = SampledRate(bound, self._windows, self._window_s, now)
            if len(self._addresses) > METERS:
                self._addresses.popitem(last=False)
        pause = meter.record(1, now)
        if pause > 0:
            meter.take_back(1)
            self._metrics.cell("throttled", "connection_creation_rate").value += 1
        return pause
