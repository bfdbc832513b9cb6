"""AlterPartition: a leader asks for a new ISR, and it counts only if all of these checks pass and it is on record.

This is what keeps a zombie from committing: a leader that was deposed, a controller that was deposed, a replica that
died and came back since its leader last looked, all fail here.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.cluster.changes import Changes, Decision
from penstock.cluster.events import AlterPartitions, AlterPartitionsAnswer, IsrChange, IsrChangeAnswer
from penstock.cluster.image import PartitionRegistration
from penstock.cluster.reassignment import finish_if_complete
from penstock.protocol.errors import ErrorCode


def alter_partitions(changes: Changes, event: AlterPartitions) -> Decision:
    sender = changes.brokers.get(event.broker_id)
    if sender is None or sender.epoch != event.broker_epoch:
        return changes.finish(AlterPartitionsAnswer(ErrorCode.STALE_BROKER_EPOCH))
    verdicts = [(change, *_judge(changes, event.broker_id, change)) for change in event.changes]
    decision = changes.finish()
    answers = []
    for change, name, code in verdicts:
        topic = decision.state.image.topics.get(name)
        partition = topic.partitions.get(change.partition) if topic is not None else None
        topic_id = topic.topic_id if topic is not None else change.topic_id
        answers.append(IsrChangeAnswer(name, topic_id, change.partition, code, partition))
    output = replace(decision.output, answer=AlterPartitionsAnswer(ErrorCode.NONE, tuple(answers)))
    return replace(decision, output=output)


def _judge(changes: Changes, sender: int, change: IsrChange) -> tuple[str, ErrorCode]:
    """The topic's name and the verdict; an accepted change is made."""
    if change.topic_id is not None and change.topic_id.int != 0:
        name = changes.image.topic_names.get(change.topic_id, "")
        if not name:
            return change.topic or "", ErrorCode.UNKNOWN_TOPIC_ID
    else:
        name = change.topic or ""
    partition = changes.partition(name, change.partition)
    if partition is None:
        return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = _check(changes, sender, change, partition)
    if code is not None:
        return name, code
    isr = tuple(member.broker_id for member in change.new_isr)
    where = (name, change.partition)
    changes.put(where, replace(partition, isr=isr, recovering=change.recovering))
    finish_if_complete(changes, where)
    now = changes.partition(*where)
    assert now is not None
    if sender not in now.replicas:
        return name, ErrorCode.NEW_LEADER_ELECTED
    return name, ErrorCode.NONE


def _check(changes: Changes, sender: int, change: IsrChange, partition: PartitionRegistration) -> ErrorCode | None:
    """None: make the change. NONE: it is on record already (the answer to an earlier request got lost)."""
    members = [member.broker_id for member in change.new_isr]
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender knows more than this controller: it must be a deposed one
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != sender:
        return ErrorCode.INVALID_REQUEST
    if set(members) == set(partition.isr) and change.recovering == partition.recovering:
        return ErrorCode.NONE
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if sender not in members or len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if change.recovering and (len(members) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for member in change.new_isr:
        if member.broker_id in partition.isr and member.broker_id == sender:
            continue
        broker = changes.brokers.get(member.broker_id)
        if broker is None or not changes.can_serve(partition, member.broker_id):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.broker_epoch not in (-1, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return None
