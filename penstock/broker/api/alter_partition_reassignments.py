"""45 AlterPartitionReassignments, v0–1: start, change or (replicas null) cancel moves of replicas. Only the
controller answers.

v1 may forbid a change of the replication factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.admin_support import explained, show_controller_state
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AlterPartitionReassignments

API = ApiSpec(45, "AlterPartitionReassignments", 0, 1)


async def handle(
    broker: Broker, ctx: RequestContext, request: AlterPartitionReassignments.Request
) -> AlterPartitionReassignments.Response:
    from penstock.cluster.controller_driver import NotController
    from penstock.cluster.events import AlterReassignments

    require_on_cluster(broker, ctx, "ALTER")
    api = messages.api("alter_partition_reassignments")
    targets = {
        (topic.name, partition.partition_index): None if partition.replicas is None else tuple(partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    }
    event = AlterReassignments(targets, request.allow_replication_factor_change)
    try:
        answers = await broker.controller.alter_reassignments(event)
    except NotController:
        code = ErrorCode.NOT_CONTROLLER
        return api.Response(error_code=int(code), error_message=code.message)
    await show_controller_state(broker)
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            answer = answers[(topic.name, partition.partition_index)]
            partitions.append(
                api.ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=int(answer.error_code),
                    error_message=explained(answer.error_code, answer.message),
                )
            )
        responses.append(api.ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return api.Response(allow_replication_factor_change=request.allow_replication_factor_change, responses=responses)


def error_response(
    request: AlterPartitionReassignments.Request, code: int, message: str | None
) -> AlterPartitionReassignments.Response:
    api = messages.api("alter_partition_reassignments")
    return api.Response(
        error_code=code,
        error_message=message,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            api.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    api.ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
