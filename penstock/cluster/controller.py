"""The controller's decision core: (state, event) → (next state, store writes, image delta, answer).

Pure and deterministic: no I/O, no clock, no randomness, everything sorted. The state is immutable and nothing counts
until the writes are in the store: a driver that cannot write keeps the old state.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster import own_znodes, znodes
from penstock.cluster.acknowledgements import image_acknowledged, replicas_failed
from penstock.cluster.changes import (
    Changes,
    ControllerPolicy,
    ControllerState,
    Decision,
    TopicDeletion,
    unled,
)
from penstock.cluster.elections import (
    elect_leaders,
    elect_offline_partitions,
    first_registration,
    leave_isr,
    rebalance_leaders,
)
from penstock.cluster.eligible import drop_unproven
from penstock.cluster.events import (
    AlterPartitions,
    AlterReassignments,
    BrokersChanged,
    BrokersSilent,
    ConfigsChanged,
    ControlledShutdown,
    ControlledShutdownAnswer,
    DeletionsRequested,
    ElectLeaders,
    Event,
    ImageAcknowledged,
    ImbalanceCheck,
    ReplicasFailed,
    Stage,
    StoreWrite,
    TopicPartition,
    TopicRecord,
    TopicsChanged,
)
from penstock.cluster.image import NO_LEADER, MetadataImage
from penstock.cluster.isr import alter_partitions
from penstock.cluster.liveness import fence_silent
from penstock.cluster.reassignment import alter_reassignments, finish_if_complete
from penstock.cluster.state_machines import ReplicaStatus, check_replica_move, deletion_status
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import Create

__all__ = [
    "ControllerPolicy",
    "ControllerState",
    "Decision",
    "TopicDeletion",
    "decide",
    "initial_state",
    "settle",
]


def initial_state(
    cluster_id: str, controller_id: int, controller_epoch: int, policy: ControllerPolicy | None = None
) -> ControllerState:
    """What a controller knows on its first day: nothing. Version 0, so that the first delta is 1."""
    image = MetadataImage(cluster_id, controller_id, controller_epoch, version=0)
    return ControllerState(image, policy or ControllerPolicy())


def decide(state: ControllerState, event: Event) -> Decision:
    """What to write, what to tell the brokers and what to answer because of `event`."""
    changes = Changes(state)
    match event:
        case BrokersChanged():
            return _brokers_changed(changes, event)
        case TopicsChanged():
            return _topics_changed(changes, event)
        case DeletionsRequested():
            return _deletions_requested(changes, event)
        case ConfigsChanged():
            return _configs_changed(changes, event)
        case AlterPartitions():
            return alter_partitions(changes, event)
        case ElectLeaders():
            return elect_leaders(changes, event)
        case AlterReassignments():
            return alter_reassignments(changes, event)
        case ControlledShutdown():
            return _controlled_shutdown(changes, event)
        case ReplicasFailed():
            return replicas_failed(changes, event)
        case ImageAcknowledged():
            return image_acknowledged(changes, event)
        case BrokersSilent():
            return fence_silent(changes, event)
        case ImbalanceCheck():
            return rebalance_leaders(changes)


def settle(
    state: ControllerState,
    recorded: Mapping[TopicPartition, Mapping[int, int]] | None = None,
    doomed: Mapping[str, TopicRecord] | None = None,
) -> Decision:
    """After a failover, with everything loaded: what the last controller left undone (dead leaders, elections,
    finished reassignments, the deletion of `doomed` topics) is done now. `recorded` names the registrations under
    which ISR members were in sync: who lives, but not in that one, must get in sync again."""
    changes = Changes(state, recorded)
    for where, partition in list(changes.partitions()):
        epochs = (recorded or {}).get(where, {})
        if partition.partition_epoch >= 0:
            _follow_min_isr(changes, where)
            drop_unproven(changes, where)
        gone = {r for r in {*partition.isr, partition.leader} - {NO_LEADER} if not _is_still(changes, r, epochs)}
        if partition.leader == NO_LEADER:
            gone |= set(partition.isr)  # of a release that kept the last members of a dead ISR listed
        if gone:
            leave_isr(changes, where, gone)
    elect_offline_partitions(changes)
    for where, _ in list(changes.partitions()):
        finish_if_complete(changes, where)
    for name, record in sorted((doomed or {}).items()):
        holders = frozenset(r for a in record.assignments.values() for r in a.replicas)
        _bury(changes, record.topic_id, TopicDeletion(name, state.image.version, holders))
    return changes.finish()


def _is_still(changes: Changes, broker_id: int, epochs: Mapping[int, int]) -> bool:
    broker = changes.brokers.get(broker_id)
    return broker is not None and epochs.get(broker_id, broker.epoch) == broker.epoch


def _follow_min_isr(changes: Changes, where: TopicPartition) -> None:
    """Its min ISR is recorded with a partition, so that controller and leader never go by two."""
    partition = changes.partition(*where)
    assert partition is not None
    if partition.partition_epoch >= 0 and partition.min_isr != changes.min_isr(where[0], partition.replicas):
        changes.put(where, partition)


def _brokers_changed(changes: Changes, event: BrokersChanged) -> Decision:
    before = changes.image.brokers
    gone = {i for i, b in before.items() if i not in event.brokers or event.brokers[i].epoch != b.epoch}
    arrived = {i for i, b in event.brokers.items() if i not in before or before[i].epoch != b.epoch}
    # First the dead leave, also those that are back already: what they held in memory is lost.
    for broker_id in gone:
        del changes.brokers[broker_id]
    if gone:
        for where, partition in list(changes.partitions()):
            if gone & ({partition.leader} | set(partition.isr)):
                leave_isr(changes, where, gone)
    for broker_id, broker in event.brokers.items():
        known = before.get(broker_id)
        if known is not None and known.epoch == broker.epoch:
            broker = replace(broker, shutting_down=known.shutting_down, fenced=known.fenced)
        changes.brokers[broker_id] = broker
    if arrived:
        for where, partition in list(changes.partitions()):
            if arrived & set(partition.eligible):
                drop_unproven(changes, where)
        elect_offline_partitions(changes)
    return changes.finish()


def _topics_changed(changes: Changes, event: TopicsChanged) -> Decision:
    for name, record in sorted(event.topics.items()):
        known = changes.topic(name)
        if known is None:
            changes.add_topic(name, record.topic_id, record.version)
            if event.configs.get(name):
                changes.configs[("topic", name)] = event.configs[name]
        else:
            changes.topic_versions[name] = record.version
        for index, assignment in sorted(record.assignments.items()):
            if known is None or index not in known.partitions:
                changes.put((name, index), first_registration(changes, unled(assignment)))
    return changes.finish()


def _deletions_requested(changes: Changes, event: DeletionsRequested) -> Decision:
    for name in sorted(event.topics):
        topic = changes.image.topics.get(name)
        if topic is None or not changes.policy.delete_topic_enable:
            changes.removed_trees.append(znodes.deletion_path(name))
            continue
        holders = frozenset(r for p in topic.partitions.values() for r in p.replicas)
        changes.remove_topic(name)
        for broker_id in sorted(holders):
            check_replica_move(
                (name, broker_id), ReplicaStatus.OFFLINE, deletion_status(True, changes.is_live(broker_id))
            )
        _bury(changes, topic.topic_id, TopicDeletion(name, changes.next_version, holders))
    return changes.finish()


def _bury(changes: Changes, topic_id: uuid.UUID, deletion: TopicDeletion) -> None:
    """A tombstone tells the holders that the topic was deleted, however late they come; then its nodes go, the mark
    that asked for it last."""
    if topic_id.int == 0:
        pass  # made before topic ids existed: its folders cannot be told from others and stay
    elif topic_id not in changes.deletions:
        create = Create(
            znodes.tombstone_path(topic_id), own_znodes.encode_tombstone(deletion.topic, deletion.waiting_for)
        )
        changes.notes.append(StoreWrite((create,), Stage.NOTES))
    changes.deletions[topic_id] = deletion
    changes.removed_trees += [
        znodes.topic_path(deletion.topic),
        znodes.replica_notes_path(deletion.topic),
        znodes.config_path(("topic", deletion.topic)),
        znodes.deletion_path(deletion.topic),
    ]


def _configs_changed(changes: Changes, event: ConfigsChanged) -> Decision:
    changes.configs.update(sorted(event.configs.items()))
    # unclean.leader.election.enable may have been switched on for partitions that wait for a leader.
    everywhere = any(kind == "broker" for kind, _ in event.configs)
    topics = [name for kind, name in event.configs if kind == "topic" and changes.topic(name) is not None]
    for where, _ in list(changes.partitions(None if everywhere else topics)):
        _follow_min_isr(changes, where)
    if everywhere or topics:
        elect_offline_partitions(changes, None if everywhere else topics)
    return changes.finish()


def _controlled_shutdown(changes: Changes, event: ControlledShutdown) -> Decision:
    broker = changes.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        return changes.finish(ControlledShutdownAnswer(ErrorCode.STALE_BROKER_EPOCH))
    leaving = event.broker_id
    changes.brokers[leaving] = replace(broker, shutting_down=True)
    remaining: list[TopicPartition] = []
    for where, partition in list(changes.partitions()):
        if len(partition.replicas) == 1 or leaving not in {*partition.isr, partition.leader}:
            continue
        successors = [r for r in partition.isr if r != leaving and changes.can_serve(partition, r)]
        if partition.leader == leaving and not successors:
            remaining.append(where)  # it keeps leading until it is gone: better than nobody
            continue
        leave_isr(changes, where, {leaving})
    return changes.finish(ControlledShutdownAnswer(ErrorCode.NONE, tuple(remaining)))
