"""Where the replicas of new partitions go: evenly over brokers, over racks first, then over machines, leaders spread.

Brokers are put in an order that changes rack and machine at every step. Partition p is led by the broker at place
start + p; its followers stand at growing distances from there, a distance that shifts after each full round so that not
all partitions of one leader share their followers. A rack is used twice only when every rack has a replica, and inside
of what that leaves a machine only when every machine has one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping


class PlacementError(ValueError):
    """The asked number of replicas cannot be placed."""


def place_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
    first_partition: int = 0,
    machines: Mapping[int, str | None] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Replica lists for partitions `first_partition`…; `racks` names the live brokers and where they stand, `machines`
    which of them share a machine (one that says nothing has its own)."""
    if replication_factor < 1:
        raise PlacementError(f"The replication factor must be at least 1, not {replication_factor}.")
    if replication_factor > len(racks):
        raise PlacementError(
            f"Replication factor {replication_factor} is larger than the number of live brokers, {len(racks)}."
        )
    machine_of = machines_of(racks, machines or {})
    known = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    # Racks count only when every broker has one: with a few unknown, any spread over racks would be a guess.
    use_racks = len(known) == len(racks)
    rack_of = known if use_racks else machine_of
    order = _alternating(_alternating(sorted(racks), machine_of), rack_of)
    count = len(order)
    start = rng.randrange(count)
    shift = rng.randrange(count)
    shares = len(set(rack_of.values())) < count
    stride = len(set(rack_of.values())) if use_racks or shares else 1
    placed = {}
    for step in range(partition_count):
        partition = first_partition + step
        if step and (partition % count) == 0:
            shift += 1
        leader_place = (partition + start) % count
        placed[partition] = _one_list(order, rack_of, machine_of, leader_place, shift * stride, replication_factor)
    return placed


def machines_of(brokers: Iterable[int], machines: Mapping[int, str | None]) -> dict[int, str]:
    """The machine of each broker; one that names none stands alone."""
    return {broker_id: machines.get(broker_id) or f"\0{broker_id:010d}" for broker_id in brokers}


def _one_list(
    order: list[int],
    rack_of: Mapping[int, str],
    machine_of: Mapping[int, str],
    leader_place: int,
    shift: int,
    replication_factor: int,
) -> tuple[int, ...]:
    count = len(order)
    replicas = [order[leader_place]]
    candidates = [order[(leader_place + 1 + (shift + k) % (count - 1)) % count] for k in range(count - 1)]
    while len(replicas) < replication_factor:
        replicas.append(_next_replica(replicas, candidates, rack_of, machine_of))
    return tuple(replicas)


def _next_replica(
    replicas: list[int], candidates: list[int], rack_of: Mapping[int, str], machine_of: Mapping[int, str]
) -> int:
    """The first candidate in a rack of its own, else on a machine of its own, else any."""
    racks = {rack_of[r] for r in replicas}
    machines = {machine_of[r] for r in replicas}
    free = [c for c in candidates if c not in replicas]
    elsewhere = (c for c in free if rack_of[c] not in racks)
    apart = (c for c in free if machine_of[c] not in machines)
    return next(itertools.chain(elsewhere, apart, free))


def _alternating(brokers: Iterable[int], place_of: Mapping[int, str]) -> list[int]:
    """Neighbours in different places as long as that is possible: one of each place, round and round; inside of a
    place the brokers keep their order."""
    waiting: dict[str, list[int]] = {}
    for broker_id in brokers:
        waiting.setdefault(place_of[broker_id], []).append(broker_id)
    order: list[int] = []
    while waiting:
        for place in sorted(waiting):
            order.append(waiting[place].pop(0))
            if not waiting[place]:
                del waiting[place]
    return order
