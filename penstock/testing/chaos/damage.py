"""What a fault has broken, how it is made whole again, and who can still work together meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Pair = frozenset[int]
"""Two hosts that do not reach each other, in one direction at least."""


@dataclass(frozen=True, slots=True)
class Damage:
    heal: Callable[[], None]
    brokers: frozenset[int] = frozenset()
    """Those that do not work."""
    zookeepers: frozenset[int] = frozenset()
    cuts: frozenset[Pair] = frozenset()
    is_over: bool = False
    """It has healed already: a fault that takes its time by itself."""


def able_brokers(hosts: Iterable[int], damages: Iterable[Damage]) -> int:
    """How many brokers work and reach each other; none while no majority of ZooKeeper servers does, for nothing can be
    recorded then."""
    broken = list(damages)
    everybody = sorted(hosts)
    cuts = frozenset().union(*(damage.cuts for damage in broken))
    brokers = set(everybody).difference(*(damage.brokers for damage in broken))
    zookeepers = set(everybody).difference(*(damage.zookeepers for damage in broken))
    if 2 * _largest_group(zookeepers, cuts) <= len(everybody):
        return 0
    return _largest_group(brokers, cuts)


def _largest_group(members: set[int], cuts: frozenset[Pair]) -> int:
    for size in range(len(members), 0, -1):
        for group in itertools.combinations(sorted(members), size):
            if not any(frozenset(pair) in cuts for pair in itertools.combinations(group, 2)):
                return size
    return 0
