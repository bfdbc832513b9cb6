"""Replication throttles: which replicas are throttled and whether the rate is exceeded.

A throttle skips data, it never delays a request. Settings: `leader|follower.replication.throttled.rate` (of a broker)
and `leader|follower.replication.throttled.replicas` (of a topic: `*` or `partition:broker,…`).
"""

from __future__ import annotations

from collections import deque

ALL_PARTITIONS = frozenset({-1})
UNLIMITED = 2**63 - 1


def throttled_partitions(value: str, broker_id: int) -> frozenset[int]:
    """The partitions that a topic's list throttles on this broker."""
    value = value.strip()
    if value in ("", "none"):
        return frozenset()
    if value == "*":
        return ALL_PARTITIONS
    entries = (entry.strip().partition(":") for entry in value.split(",") if entry.strip())
    return frozenset(int(partition) for partition, _, broker in entries if broker == str(broker_id))


class ReplicationQuota:
    """Bytes per second over a sliding window of samples (replication.quota.window.num × .size.seconds)."""

    def __init__(self, samples: int = 11, sample_seconds: float = 1.0) -> None:
        self.bytes_per_second = UNLIMITED
        self._max_samples = samples
        self._sample_seconds = sample_seconds
        self._samples: deque[tuple[float, int]] = deque()  # (start, bytes)
        self._total_bytes = 0
        self._throttled: dict[str, frozenset[int]] = {}

    def set_topic(self, topic: str, partitions: frozenset[int]) -> None:
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def throttles(self, topic: str, partition: int) -> bool:
        if not self._throttled:
            return False
        partitions = self._throttled.get(topic)
        return partitions is not None and (partitions is ALL_PARTITIONS or partition in partitions)

    def record(self, size_bytes: int, now: float) -> None:
        self._expire(now)
        if self._samples and now - self._samples[-1][0] < self._sample_seconds:
            start, known = self._samples[-1]
            self._samples[-1] = (start, known + size_bytes)
        else:
            self._samples.append((now, size_bytes))
        self._total_bytes += size_bytes

    def exceeded(self, now: float) -> bool:
        if self.bytes_per_second == UNLIMITED:
            return False
        self._expire(now)
        return self.rate(now) > self.bytes_per_second

    def rate(self, now: float) -> float:
        """Bytes per second over the samples; a young window counts as nearly full, so that a burst is not a rate."""
        if not self._samples:
            return 0.0
        elapsed = max(now - self._samples[0][0], (self._max_samples - 1) * self._sample_seconds)
        return self._total_bytes / elapsed

    def _expire(self, now: float) -> None:
        oldest = now - self._max_samples * self._sample_seconds
        while self._samples and self._samples[0][0] < oldest:
            self._total_bytes -= self._samples.popleft()[1]
