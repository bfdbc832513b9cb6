"""Incremental reconciliation of one member with its target (KIP-848): revoke, then release, then assign. Pure.

A partition is handed to its new owner only after the old one has said that it let go; members whose partitions do not
move are never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.group.consumer_group import ConsumerMember, MemberState
from penstock.coordinator.group.records import Assignment

__all__ = ["contains_any", "is_subset", "reconcile"]


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[tuple[UUID, int], str],
    owned: Assignment | None,
    subscribed: set[UUID],
) -> ConsumerMember:
    """The member after this heartbeat. `owned` is what the client says it holds (None: it did not say)."""
    wanted = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch and is_subset(member.assigned, wanted):
            return member
    elif member.state is MemberState.UNREVOKED_PARTITIONS and (
        owned is None or contains_any(owned, member.pending_revocation)
    ):
        return member  # still holds what it must give back
    return _next_assignment(member, target_epoch, wanted, owners, owned)


def _next_assignment(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owners: Mapping[tuple[UUID, int], str],
    owned: Assignment | None,
) -> ConsumerMember:
    kept: Assignment = {}
    to_revoke: Assignment = {}
    to_add: Assignment = {}
    unreleased = False
    for topic_id in {*target, *member.assigned}:
        wanted = target.get(topic_id, set())
        current = member.assigned.get(topic_id, set())
        _put(kept, topic_id, current & wanted)
        _put(to_revoke, topic_id, current - wanted)
        missing = wanted - current
        free = {
            partition
            for partition in missing
            if owners.get((topic_id, partition), member.member_id) == member.member_id
        }
        _put(to_add, topic_id, free)
        unreleased = unreleased or len(free) < len(missing)
    if to_revoke and (owned is None or contains_any(owned, to_revoke)):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=to_revoke)
    for topic_id, partitions in to_add.items():
        kept[topic_id] = kept.get(topic_id, set()) | partitions
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return replace(member.with_epoch(target_epoch), state=state, assigned=kept, pending_revocation={})


def _put(assignment: Assignment, topic_id: UUID, partitions: set[int]) -> None:
    if partitions:
        assignment[topic_id] = partitions


def contains_any(holder: Assignment, sought: Assignment) -> bool:
    return any(holder.get(topic_id, _NOTHING) & partitions for topic_id, partitions in sought.items())


def is_subset(part: Assignment, whole: Assignment) -> bool:
    return all(partitions <= whole.get(topic_id, _NOTHING) for topic_id, partitions in part.items())


_NOTHING: set[int] = set()
