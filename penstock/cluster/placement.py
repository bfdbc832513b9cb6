"""Where the replicas of new partitions go: evenly over brokers, over racks first, with leaders spread.

Brokers are put in an order that changes the rack at every step. Partition p is led by the broker at place start + p;
its followers stand at growing distances from there, a distance that shifts after each full round so that not all
partitions of one leader share their followers. A rack is used twice only when every rack has a replica.
"""

from __future__ import annotations

import random
from collections.abc import Mapping


class PlacementError(ValueError):
    """The asked number of replicas cannot be placed."""


def place_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replica lists for partitions `first_partition`…; `racks` names the live brokers and where they stand."""
    if replication_factor < 1:
        raise PlacementError(f"The replication factor must be at least 1, not {replication_factor}.")
    if replication_factor > len(racks):
        raise PlacementError(
            f"Replication factor {replication_factor} is larger than the number of live brokers, {len(racks)}."
        )
    known = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    # Racks count only when every broker has one: with a few unknown, any spread over racks would be a guess.
    use_racks = len(known) == len(racks)
    order = _alternating(known) if use_racks else sorted(racks)
    rack_of = known if use_racks else {broker_id: str(broker_id) for broker_id in racks}
    count = len(order)
    start = rng.randrange(count)
    shift = rng.randrange(count)
    rack_count = len(set(rack_of.values())) if use_racks else 1
    placed = {}
    for step in range(partition_count):
        partition = first_partition + step
        if step and (partition % count) == 0:
            shift += 1
        leader_place = (partition + start) % count
        placed[partition] = _one_list(order, rack_of, leader_place, shift * rack_count, replication_factor)
    return placed


def _one_list(
    order: list[int], rack_of: Mapping[int, str], leader_place: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    count = len(order)
    replicas = [order[leader_place]]
    used_racks = {rack_of[replicas[0]]}
    rack_total = len(set(rack_of.values()))
    candidates = [order[(leader_place + 1 + (shift + k) % (count - 1)) % count] for k in range(count - 1)]
    while len(replicas) < replication_factor:
        rack_free = len(used_racks) < rack_total
        chosen = next(c for c in candidates if c not in replicas and (not rack_free or rack_of[c] not in used_racks))
        replicas.append(chosen)
        used_racks.add(rack_of[chosen])
    return tuple(replicas)


def _alternating(rack_of: Mapping[int, str]) -> list[int]:
    """Brokers with neighbours in different racks as long as that is possible: one of each rack, round and round."""
    waiting: dict[str, list[int]] = {}
    for broker_id in sorted(rack_of):
        waiting.setdefault(rack_of[broker_id], []).append(broker_id)
    order: list[int] = []
    while waiting:
        for rack in sorted(waiting):
            order.append(waiting[rack].pop(0))
            if not waiting[rack]:
                del waiting[rack]
    return order
