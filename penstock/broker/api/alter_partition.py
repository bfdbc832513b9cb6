"""AlterPartition (key 56, version 3): a leader asks the controller to record a new ISR. Between brokers only.

Members are named with their broker epochs, so that a replica which died and came back since its leader last looked
is refused. Answered by the active controller; any other broker says NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.events import AlterPartitions, AlterPartitionsAnswer
    from penstock.protocol.shapes import AlterPartition

API = ApiSpec(56, "AlterPartition", 3, 3, inter_broker_only=True)


async def handle(broker: Broker, ctx: RequestContext, request: AlterPartition.Request) -> AlterPartition.Response:
    from penstock.cluster.controller_driver import NotController

    if not broker.dispatcher.speaks_for(ctx.connection, request.broker_id):
        return messages.api("alter_partition").Response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    try:
        answer = await broker.controller.alter_partition(event_of(request))
    except NotController:
        return messages.api("alter_partition").Response(error_code=int(ErrorCode.NOT_CONTROLLER))
    return response_of(answer)


def event_of(request: AlterPartition.Request) -> AlterPartitions:
    """The request as the controller's core takes it."""
    from penstock.cluster.events import AlterPartitions, IsrChange, IsrMember

    changes = []
    for topic in request.topics:
        for partition in topic.partitions:
            members = tuple(IsrMember(m.broker_id, m.broker_epoch) for m in partition.new_isr_with_epochs)
            changes.append(
                IsrChange(
                    partition=partition.partition_index,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr=members,
                    topic_id=topic.topic_id,
                    recovering=partition.leader_recovery_state == 1,
                )
            )
    return AlterPartitions(request.broker_id, request.broker_epoch, tuple(changes))


def response_of(answer: AlterPartitionsAnswer) -> AlterPartition.Response:
    api = messages.api("alter_partition")
    topic_struct, partition_struct = api.response_struct("TopicData"), api.response_struct("PartitionData")
    topics: dict[Any, Any] = {}
    for change in answer.changes:
        topic = topics.setdefault(change.topic_id, topic_struct(topic_id=change.topic_id))
        now = change.partition
        body = partition_struct(partition_index=change.index, error_code=int(change.error_code))
        if now is not None and not change.error_code:
            body.leader_id, body.leader_epoch = now.leader, now.leader_epoch
            body.isr, body.partition_epoch = list(now.isr), now.partition_epoch
            body.leader_recovery_state = int(now.recovering)
        topic.partitions.append(body)
    return api.Response(error_code=int(answer.error_code), topics=list(topics.values()))
