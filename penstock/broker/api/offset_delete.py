"""47 OffsetDelete, v0: forget committed offsets of a group, for topics that it is not subscribed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_delete_group, may_read_topic
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import OffsetDelete

API = ApiSpec(47, "OffsetDelete", 0, 0)


async def handle(broker: Broker, ctx: RequestContext, request: OffsetDelete.Request) -> OffsetDelete.Response:
    from penstock.protocol import messages

    api = messages.api("offset_delete")
    if not may_delete_group(broker, ctx, request.group_id):
        return api.Response(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED), topics=[])
    wanted: list[tuple[str, int]] = []
    refused: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        known = broker.image.topics.get(topic.name)
        allowed = may_read_topic(broker, ctx, topic.name)
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            if not allowed:
                refused[key] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif known is None or partition.partition_index not in known.partitions:
                refused[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                wanted.append(key)
    error, codes = await broker.groups.delete_offsets(request.group_id, wanted)
    if error is not ErrorCode.NONE:
        return api.Response(error_code=int(error), topics=[])
    answers = refused | {key: int(code) for key, code in zip(wanted, codes, strict=True)}
    topic_struct = api.response_struct("OffsetDeleteResponseTopic")
    partition_struct = api.response_struct("OffsetDeleteResponsePartition")
    topics = [
        topic_struct(
            name=topic.name,
            partitions=[
                partition_struct(
                    partition_index=partition.partition_index,
                    error_code=answers[topic.name, partition.partition_index],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return api.Response(error_code=0, topics=topics)
