"""46 ListPartitionReassignments, v0: which replicas are being added and removed. Answered from this broker's image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ListPartitionReassignments

API = ApiSpec(46, "ListPartitionReassignments", 0, 0)


async def handle(
    broker: Broker, ctx: RequestContext, request: ListPartitionReassignments.Request
) -> ListPartitionReassignments.Response:
    require_on_cluster(broker, ctx, "DESCRIBE")
    api = messages.api("list_partition_reassignments")
    image = broker.controller.state.image if broker.controller.is_active else broker.image
    if request.topics is None:
        asked = {name: sorted(topic.partitions) for name, topic in image.topics.items()}
    else:
        asked = {topic.name: list(topic.partition_indexes) for topic in request.topics}
    topics = []
    for name, indexes in asked.items():
        moving = []
        for index in indexes:
            partition = image.partition(name, index)
            if partition is not None and partition.is_reassigning:
                moving.append(
                    api.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        if moving:
            topics.append(api.OngoingTopicReassignment(name=name, partitions=moving))
    return api.Response(topics=topics)


def error_response(
    request: ListPartitionReassignments.Request, code: int, message: str | None
) -> ListPartitionReassignments.Response:
    api = messages.api("list_partition_reassignments")
    return api.Response(
        error_code=code,
        error_message=message,
        topics=[
            api.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    api.OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
