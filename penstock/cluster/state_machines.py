"""The life of a partition and of a replica, as tables. A move that is not in the table is a bug and fails loudly.

States are not stored: they follow from the registration on record, from who lives, and from pending deletions.
"""

from __future__ import annotations

import enum

from penstock.cluster.image import NO_LEADER, PartitionRegistration


class PartitionStatus(enum.Enum):
    NON_EXISTENT = "non-existent"
    NEW = "new"
    """Assigned, but never led: it has no state node yet."""
    ONLINE = "online"
    OFFLINE = "offline"
    """It was led once and nobody eligible lives."""


class ReplicaStatus(enum.Enum):
    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"
    """Its broker is down: the deletion waits."""


_P = PartitionStatus
PARTITION_MOVES: dict[PartitionStatus, frozenset[PartitionStatus]] = {
    _P.NON_EXISTENT: frozenset({_P.NEW, _P.ONLINE}),  # created and led within one decision
    _P.NEW: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE, _P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.NON_EXISTENT}),  # deletion passes through offline in one decision
    _P.OFFLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.NON_EXISTENT}),
}

_R = ReplicaStatus
REPLICA_MOVES: dict[ReplicaStatus, frozenset[ReplicaStatus]] = {
    _R.NON_EXISTENT: frozenset({_R.NEW}),
    _R.NEW: frozenset({_R.ONLINE, _R.OFFLINE}),
    _R.ONLINE: frozenset({_R.ONLINE, _R.OFFLINE}),
    _R.OFFLINE: frozenset({_R.ONLINE, _R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.DELETION_SUCCESSFUL, _R.DELETION_INELIGIBLE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.NON_EXISTENT}),
    _R.DELETION_INELIGIBLE: frozenset({_R.ONLINE, _R.OFFLINE, _R.DELETION_STARTED}),
}


class IllegalMove(AssertionError):
    """A decision that the tables forbid."""


def partition_status(partition: PartitionRegistration | None) -> PartitionStatus:
    if partition is None:
        return PartitionStatus.NON_EXISTENT
    if partition.partition_epoch < 0:
        return PartitionStatus.NEW
    return PartitionStatus.OFFLINE if partition.leader == NO_LEADER else PartitionStatus.ONLINE


def deletion_status(is_waiting: bool, is_live: bool) -> ReplicaStatus:
    """Where a replica of a topic under deletion stands."""
    if not is_waiting:
        return ReplicaStatus.DELETION_SUCCESSFUL
    return ReplicaStatus.DELETION_STARTED if is_live else ReplicaStatus.DELETION_INELIGIBLE


def check_partition_move(what: object, old: PartitionStatus, new: PartitionStatus) -> None:
    if new not in PARTITION_MOVES[old]:
        raise IllegalMove(f"partition {what}: {old.value} → {new.value}")


def check_replica_move(what: object, old: ReplicaStatus, new: ReplicaStatus) -> None:
    if new not in REPLICA_MOVES[old]:
        raise IllegalMove(f"replica {what}: {old.value} → {new.value}")
