"""What an acknowledged image proves about its broker: replicas were made, disks work or do not, deletions are done."""

from __future__ import annotations

from dataclasses import replace

from penstock.cluster import znodes
from penstock.cluster.changes import Changes, ControllerState, Decision
from penstock.cluster.elections import elect_offline_partitions, leave_isr
from penstock.cluster.events import ImageAcknowledged, ReplicasFailed, TopicPartition
from penstock.cluster.image import NO_LEADER
from penstock.cluster.liveness import admit
from penstock.cluster.state_machines import ReplicaStatus, check_replica_move


def says_something_new(state: ControllerState, event: ImageAcknowledged) -> bool:
    """False for nearly all acknowledgements: those need no decision."""
    broker = state.image.brokers.get(event.broker_id)
    if broker is not None and broker.fenced and event.version >= state.image.version:
        return True
    if any(event.broker_id in deletion.waiting_for for deletion in state.deletions.values()):
        return True
    unconfirmed = state.notes.unconfirmed.get(event.broker_id, {})
    if event.given_up or any(version <= event.version for version in unconfirmed.values()):
        return True
    return event.offline is not None and set(event.offline) != state.notes.offline.get(event.broker_id, {}).keys()


def image_acknowledged(changes: Changes, event: ImageAcknowledged) -> Decision:
    broker = changes.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return changes.finish()
    if broker.fenced and event.version >= changes.image.version:
        admit(changes, broker)
    _confirm_new(changes, event)
    if event.offline is not None:
        _compare_offline(changes, event, event.offline)
    for where in event.given_up:
        _begin_anew(changes, event.broker_id, where)
    _finish_deletions(changes, event)
    return changes.finish()


def replicas_failed(changes: Changes, event: ReplicasFailed) -> Decision:
    for where in sorted(set(event.partitions)):
        _take_offline(changes, event.broker_id, where)
    return changes.finish()


def _take_offline(changes: Changes, broker_id: int, where: TopicPartition) -> None:
    partition = changes.partition(*where)
    if partition is None or broker_id not in partition.replicas or broker_id in partition.offline:
        return
    changes.put(where, replace(partition, offline=(*partition.offline, broker_id)))
    leave_isr(changes, where, {broker_id})


def _confirm_new(changes: Changes, event: ImageAcknowledged) -> None:
    not_made = {*(event.offline or ()), *event.unmade}
    for topic, version in changes.state.notes.unconfirmed.get(event.broker_id, {}).items():
        if version > event.version:
            continue
        for where, partition in list(changes.partitions([topic])):
            if event.broker_id in (partition.new or ()) and where not in not_made:
                rest = tuple(r for r in partition.new or () if r != event.broker_id)
                changes.put(where, replace(partition, new=rest))


def _compare_offline(changes: Changes, event: ImageAcknowledged, told: tuple[TopicPartition, ...]) -> None:
    """A broker that knows that we take a replica for lost, and does not say so itself, has got it back."""
    known = changes.state.notes.offline.get(event.broker_id, {})
    for where in told:
        if where not in known:
            _take_offline(changes, event.broker_id, where)
    healed = [where for where, version in known.items() if where not in told and version <= event.version]
    for where in healed:
        partition = changes.partition(*where)
        if partition is not None:
            rest = tuple(r for r in partition.offline if r != event.broker_id)
            changes.put(where, replace(partition, offline=rest))
    if healed:
        elect_offline_partitions(changes, sorted({topic for topic, _ in healed}))


def _begin_anew(changes: Changes, broker_id: int, where: TopicPartition) -> None:
    """The operator accepts that this replica's data is lost. It waits while nobody leads: others may hold what is left,
    and must not be cut to its nothing, so somebody has to allow an unclean election among them first. If that is
    allowed and all of them are off line, there is none who could lead but one that begins anew."""
    partition = changes.partition(*where)
    if partition is None or broker_id not in partition.offline:
        return
    is_alone = len(partition.replicas) == 1
    nobody_else = set(partition.replicas) <= set(partition.offline) and changes.allows_unclean_election(where[0])
    if partition.leader in (NO_LEADER, broker_id) and not (is_alone or nobody_else):
        return
    kept = {r: e for r, e in zip(partition.eligible, partition.eligible_epochs, strict=True) if r != broker_id}
    anew = replace(
        partition,
        offline=tuple(r for r in partition.offline if r != broker_id),
        new=(*(partition.new or ()), broker_id),
        eligible=tuple(kept),
        eligible_epochs=tuple(kept.values()),
        last_known=tuple(r for r in partition.last_known if r != broker_id or is_alone),
    )
    changes.put(where, anew, bump=is_alone)
    elect_offline_partitions(changes, [where[0]])


def _finish_deletions(changes: Changes, event: ImageAcknowledged) -> None:
    """A broker that applied the image without a topic has dropped its replicas; after the last one the tombstone
    goes."""
    for topic_id, deletion in sorted(changes.deletions.items()):
        if event.broker_id not in deletion.waiting_for or event.version < deletion.version:
            continue
        name = deletion.topic
        check_replica_move((name, event.broker_id), ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL)
        waiting = deletion.waiting_for - {event.broker_id}
        if waiting:
            # Not on record: after a fail-over the others simply acknowledge again.
            changes.deletions[topic_id] = replace(deletion, waiting_for=waiting)
        else:
            del changes.deletions[topic_id]
            changes.removed_trees.append(znodes.tombstone_path(topic_id))
