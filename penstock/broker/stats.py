"""Counters that the hot path can afford: plain integers, turned into Prometheus text only when somebody asks."""

from __future__ import annotations

LATENCY_BUCKETS = 28  # bucket n counts answers that took less than 2^n microseconds: up to two minutes


class ApiStats:
    """Requests of one API: how many, how many failed, how long they took."""

    __slots__ = ("buckets", "count", "errors", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.errors = 0
        self.seconds = 0.0
        self.buckets = [0] * LATENCY_BUCKETS

    def observe(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        bucket = int(seconds * 1_000_000).bit_length()
        self.buckets[bucket if bucket < LATENCY_BUCKETS else LATENCY_BUCKETS - 1] += 1


class BrokerStats:
    """Everything that is counted in broker/, by one owner."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiStats] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.sendfile_bytes = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_expired = 0
        self.loop_lag_seconds = 0.0
        self.loop_lag_max_seconds = 0.0

    def api(self, key: int, name: str) -> ApiStats:
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiStats(name)
        return found
