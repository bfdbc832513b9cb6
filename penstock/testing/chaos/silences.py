"""How long a partition answered nobody, and because of what: each silence beside the fault that it belongs to.

A silence longer than the cluster needs to notice a fault and to act on it is a fault of ours, unless so few brokers
lived that no partition could have its min.insync.replicas, or the machine was too busy to judge.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WORTH_TELLING_SECONDS = 3.0
GRACE_SECONDS = 5.0
"""For clients to find the new leader, on top of what the cluster may take to elect it."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault from its beginning to the moment when everything was whole again."""

    name: str
    began: float
    ended: float
    live: int
    """Brokers that ran all the while."""
    is_busy: bool = False
    """The machine had more to do than it should have had."""


@dataclass(frozen=True, slots=True)
class Silence:
    partitions: tuple[int, ...]
    """Those that were silent at that time; the longest silence among them is told."""
    began: float
    ended: float
    cause: str
    judged_seconds: float
    """Its longest stretch in which enough brokers lived."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def line(self) -> str:
        outside = "" if self.judged_seconds == self.seconds else f" ({self.judged_seconds:.1f} s of them judged)"
        where = f"of {len(self.partitions)} partitions" if len(self.partitions) > 1 else f"of {self.partitions[0]}"
        return f"silence {where} {self.began:7.1f} to {self.ended:7.1f}, {self.seconds:4.1f} s{outside}: {self.cause}"


def bound_seconds(session_timeout_ms: int, heartbeat_timeout_ms: int, replica_lag_ms: int) -> float:
    return max(session_timeout_ms, heartbeat_timeout_ms, 1.5 * replica_lag_ms) / 1000 + GRACE_SECONDS


def is_machine_busy() -> bool:
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def find_silences(
    acknowledged_at: Mapping[int, Iterable[float]],
    incidents: Sequence[Incident],
    min_live: int,
    began: float = 0.0,
) -> list[Silence]:
    """Those worth telling, longest first; times are told from `began` on. Silences of several partitions that overlap
    are one: they have one cause."""
    found = sorted(
        (earlier, later, partition)
        for partition, times in acknowledged_at.items()
        for earlier, later in itertools.pairwise(sorted(times))
        if later - earlier >= WORTH_TELLING_SECONDS
    )
    groups: list[list[tuple[float, float, int]]] = []
    for one in found:
        if groups and one[0] < max(later for _, later, _ in groups[-1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    silences = []
    for group in groups:
        judged = {one: _judged(one[0], one[1], incidents, min_live) for one in group}
        earlier, later, _ = worst = max(group, key=lambda one: (judged[one], one[1] - one[0]))
        partitions = tuple(sorted({partition for _, _, partition in group}))
        cause = _cause(earlier, later, incidents)
        silences.append(Silence(partitions, earlier - began, later - began, cause, judged[worst]))
    return sorted(silences, key=lambda silence: -silence.seconds)


def _cause(began: float, ended: float, incidents: Sequence[Incident]) -> str:
    """The faults that fell into it; without one, the last that was over before."""
    during = [one for one in incidents if one.began < ended and one.ended > began]
    if during:
        return ", then ".join(f"{one.name} {one.began - began:+.1f} s" for one in during)
    before = [one for one in incidents if one.ended <= began]
    return f"nothing; last {before[-1].name}, over {began - before[-1].ended:.1f} s before" if before else "nothing"


def _judged(began: float, ended: float, incidents: Sequence[Incident], min_live: int) -> float:
    longest, start = 0.0, began
    for one in sorted(incidents, key=lambda incident: incident.began):
        if (one.live < min_live or one.is_busy) and one.began < ended and one.ended > start:
            longest = max(longest, one.began - start)
            start = max(start, one.ended)
    return max(longest, ended - start, 0.0)
