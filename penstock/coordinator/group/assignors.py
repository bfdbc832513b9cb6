"""Server-side assignors of KIP-848: `uniform` (even and sticky) and `range` (co-partitioned). Pure functions.

Input: members with their subscribed topics and what they held last, and partition counts. Output: partitions per
member. Everything is sorted before it is decided, so that the same input always gives the same answer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from penstock.coordinator.group.records import Assignment

__all__ = ["ASSIGNORS", "AssignorMember", "range_assignor", "uniform_assignor"]


@dataclass(frozen=True, slots=True)
class AssignorMember:
    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    held: Assignment
    """The target assignment it had before"""


Members = Mapping[str, AssignorMember]
PartitionCounts = Mapping[UUID, int]
_Partition = tuple[UUID, int]


def range_assignor(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Per topic, contiguous ranges in member order; static members first, so that they keep their range."""
    result: dict[str, Assignment] = {member_id: {} for member_id in members}
    ordered = sorted(
        members.values(), key=lambda member: (member.instance_id is None, member.instance_id or "", member.member_id)
    )
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        count = partition_counts.get(topic, 0)
        subscribers = [member for member in ordered if topic in member.topics]
        each, extra = divmod(count, len(subscribers))
        start = 0
        for position, member in enumerate(subscribers):
            size = each + (position < extra)
            if size:
                result[member.member_id][topic] = set(range(start, start + size))
            start += size
    return result


def uniform_assignor(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Even counts, and as few moves as that allows."""
    if not members:
        return {}
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        return _uniform_same_topics(members, next(iter(subscriptions)), partition_counts)
    return _uniform_mixed_topics(members, partition_counts)


def _valid_held(member: AssignorMember, partition_counts: PartitionCounts) -> list[_Partition]:
    return [
        (topic, partition)
        for topic in sorted(member.held)
        if topic in member.topics
        for partition in sorted(member.held[topic])
        if partition < partition_counts.get(topic, 0)
    ]


def _uniform_same_topics(
    members: Members, topics: frozenset[UUID], partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    total = sum(partition_counts.get(topic, 0) for topic in topics)
    quota, extra = divmod(total, len(members))
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member_id in sorted(members):
        held = [partition for partition in _valid_held(members[member_id], partition_counts) if partition not in taken]
        allowed = quota
        if len(held) > quota and extra > 0:
            allowed += 1
            extra -= 1
        kept[member_id] = held[:allowed]
        taken.update(kept[member_id])
    free = iter(
        [
            (topic, partition)
            for topic in sorted(topics)
            for partition in range(partition_counts.get(topic, 0))
            if (topic, partition) not in taken
        ]
    )
    for member_id in sorted(members):
        share = kept[member_id]
        allowed = quota
        if len(share) <= quota and extra > 0:
            allowed += 1
            extra -= 1
        while len(share) < allowed:
            share.append(next(free))
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _uniform_mixed_topics(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    owned: dict[str, set[_Partition]] = {member_id: set() for member_id in members}
    taken: set[_Partition] = set()
    for member_id in sorted(members):
        for partition in _valid_held(members[member_id], partition_counts):
            if partition not in taken:
                taken.add(partition)
                owned[member_id].add(partition)
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    # Topics that few members can take go first: the others can make up for them.
    for topic in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic)):
        free = [partition for partition in range(partition_counts.get(topic, 0)) if (topic, partition) not in taken]
        if free:
            _give_to_least_loaded(owned, subscribers[topic], topic, free)
    _balance(subscribers, owned)
    return {member_id: _by_topic(partitions) for member_id, partitions in owned.items()}


def _give_to_least_loaded(
    owned: dict[str, set[_Partition]], subscribers: list[str], topic: UUID, free: list[int]
) -> None:
    loads = [(len(owned[member_id]), member_id) for member_id in subscribers]
    heapify(loads)
    for partition in free:
        load, member_id = heappop(loads)
        owned[member_id].add((topic, partition))
        heappush(loads, (load + 1, member_id))


def _balance(subscribers: dict[UUID, list[str]], owned: dict[str, set[_Partition]]) -> None:
    """Move partitions, topic by topic, from a fuller to an emptier subscriber until no move helps.

    Every move lowers the sum of squared loads, so that it ends; a round without a move is the last one.
    """
    loads = {member_id: len(partitions) for member_id, partitions in owned.items()}
    held: dict[UUID, dict[str, list[int]]] = {topic: {} for topic in subscribers}
    for member_id, partitions in owned.items():
        for topic, partition in sorted(partitions):
            held[topic].setdefault(member_id, []).append(partition)
    moved = True
    while moved:
        moved = False
        for topic in sorted(subscribers):
            for giver, taker, partition in _even_out(subscribers[topic], held[topic], loads):
                owned[giver].discard((topic, partition))
                owned[taker].add((topic, partition))
                moved = True


def _even_out(
    subscribers: list[str], held: dict[str, list[int]], loads: dict[str, int]
) -> Iterator[tuple[str, str, int]]:
    """Moves (giver, taker, partition) of one topic, until its fullest holder and its emptiest subscriber are even."""
    givers = [(-loads[member_id], member_id) for member_id, partitions in held.items() if partitions]
    takers = [(loads[member_id], member_id) for member_id in subscribers]
    heapify(givers)
    heapify(takers)
    while givers and takers:
        (fullest, giver), (emptiest, taker) = givers[0], takers[0]
        if not held[giver]:
            heappop(givers)
        elif -fullest != loads[giver]:
            heapreplace(givers, (-loads[giver], giver))
        elif emptiest != loads[taker]:
            heapreplace(takers, (loads[taker], taker))
        elif loads[giver] - loads[taker] < 2:
            return
        else:
            partition = held[giver].pop()
            if not held.setdefault(taker, []):
                heappush(givers, (-loads[taker] - 1, taker))
            insort(held[taker], partition)
            loads[giver] -= 1
            loads[taker] += 1
            yield giver, taker, partition


def _by_topic(partitions: list[_Partition] | set[_Partition]) -> Assignment:
    assignment: Assignment = {}
    for topic, partition in partitions:
        assignment.setdefault(topic, set()).add(partition)
    return assignment


ASSIGNORS: dict[str, Callable[[Members, PartitionCounts], dict[str, Assignment]]] = {
    "uniform": uniform_assignor,
    "range": range_assignor,
}
