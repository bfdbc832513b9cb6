"""Moving replicas: start, finish and cancel of a partition's reassignment (KIP-455).

While it runs, the replica list is the target followed by what is to go; `adding` and `removing` say which is which.
It is finished when the new replicas are in sync, and then the list is the target.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from penstock.cluster.changes import Changes, Decision
from penstock.cluster.elections import elect
from penstock.cluster.events import AlterReassignments, PartitionAnswer, TopicPartition
from penstock.cluster.image import NO_LEADER, PartitionRegistration
from penstock.protocol.errors import ErrorCode


def alter_reassignments(changes: Changes, event: AlterReassignments) -> Decision:
    answers: dict[TopicPartition, PartitionAnswer] = {}
    for where, target in sorted(event.targets.items()):
        partition = changes.partition(*where)
        if changes.topic(where[0]) is None or partition is None:
            answers[where] = PartitionAnswer(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic partition named {where[0]}-{where[1]}."
            )
        elif target is None:
            answers[where] = _cancel(changes, where, partition)
        else:
            answers[where] = _start(changes, where, partition, target, event.allow_replication_factor_change)
    return changes.finish(answers)


def original_replicas(partition: PartitionRegistration) -> tuple[int, ...]:
    """The replicas without those that a running reassignment adds."""
    return tuple(r for r in partition.replicas if r not in partition.adding)


def target_replicas(partition: PartitionRegistration) -> tuple[int, ...]:
    """The replicas that will remain."""
    return tuple(r for r in partition.replicas if r not in partition.removing)


def _start(
    changes: Changes,
    where: TopicPartition,
    partition: PartitionRegistration,
    target: tuple[int, ...],
    allow_replication_factor_change: bool,
) -> PartitionAnswer:
    original = original_replicas(partition)
    refusal = check_manual_replicas(changes.brokers.keys(), target)
    if refusal is not None:
        return PartitionAnswer(ErrorCode.INVALID_REPLICA_ASSIGNMENT, refusal)
    if not allow_replication_factor_change and len(target) != len(target_replicas(partition)):
        return PartitionAnswer(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(target_replicas(partition))} to {len(target)}",
        )
    adding = tuple(r for r in target if r not in original)
    removing = tuple(r for r in original if r not in target)
    replicas = target + removing
    isr = tuple(r for r in partition.isr if r in replicas)
    moved = replace(partition, replicas=replicas, adding=adding, removing=removing, isr=isr)
    if moved == partition:
        return PartitionAnswer(ErrorCode.NONE)
    if not _keep_led(changes, where, moved):
        return PartitionAnswer(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The change would leave {where[0]}-{where[1]} without an in-sync replica.",
        )
    changes.rewrite_assignment(where[0])
    finish_if_complete(changes, where)
    return PartitionAnswer(ErrorCode.NONE)


def _cancel(changes: Changes, where: TopicPartition, partition: PartitionRegistration) -> PartitionAnswer:
    if not partition.is_reassigning:
        return PartitionAnswer(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = original_replicas(partition)
    isr = tuple(r for r in partition.isr if r in replicas)
    if not _keep_led(changes, where, replace(partition, replicas=replicas, adding=(), removing=(), isr=isr)):
        return PartitionAnswer(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Cannot cancel: none of the original replicas {list(replicas)} of {where[0]}-{where[1]} is in sync.",
        )
    changes.rewrite_assignment(where[0])
    return PartitionAnswer(ErrorCode.NONE)


def _keep_led(changes: Changes, where: TopicPartition, moved: PartitionRegistration) -> bool:
    """Put the changed list, with another leader if the old one left it. False (and no change) if nobody could
    lead."""
    unclean = changes.allows_unclean_election(where[0])
    hopeful = {*moved.isr, *moved.eligible, *moved.last_known} & set(moved.replicas)
    if moved.partition_epoch >= 0 and not hopeful and not unclean:
        return False
    if moved.leader != NO_LEADER and moved.leader not in moved.isr:
        moved = elect(changes, moved, unclean=unclean)
        if moved.leader == NO_LEADER:
            return False
    changes.put(where, moved)
    return True


def finish_if_complete(changes: Changes, where: TopicPartition) -> bool:
    """Make the target the list if the new replicas are in sync and one of the targets can lead."""
    partition = changes.partition(*where)
    if partition is None or not partition.is_reassigning:
        return False
    target = target_replicas(partition)
    isr = tuple(r for r in partition.isr if r in target)
    needed = target if len(target) < len(original_replicas(partition)) or not partition.adding else partition.adding
    if not isr or not set(needed) <= set(isr):
        return False
    done = replace(partition, replicas=target, adding=(), removing=(), isr=isr)
    if done.leader not in isr or not changes.can_serve(done, done.leader):
        done = elect(changes, done, unclean=False)
        if done.leader == NO_LEADER:
            return False
    changes.put(where, done)
    changes.rewrite_assignment(where[0])
    return True


def check_manual_replicas(known_brokers: Container[int], replicas: tuple[int, ...]) -> str | None:
    """Why this list of replicas cannot be, or None."""
    if not replicas:
        return "An assignment needs at least one replica."
    seen: set[int] = set()
    for broker_id in replicas:
        if broker_id in seen:
            return f"Broker {broker_id} stands in the assignment {list(replicas)} more than once."
        if broker_id not in known_brokers:
            return f"Broker {broker_id} of the assignment {list(replicas)} is not registered."
        seen.add(broker_id)
    return None
