"""OffsetForLeaderEpoch (key 23), versions 2–4: where an epoch ended, so that a reader finds where it diverged.

v3: replica id; whoever names one must be that broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed, allowed_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import OffsetForLeaderEpoch

API = ApiSpec(23, "OffsetForLeaderEpoch", 2, 4, takes_long_lists=True)


async def handle(
    broker: Broker, ctx: RequestContext, request: OffsetForLeaderEpoch.Request
) -> OffsetForLeaderEpoch.Response:
    from penstock.protocol import messages

    api = messages.api("offset_for_leader_epoch")
    stranger = request.replica_id >= 0 and not broker.dispatcher.speaks_for(ctx.connection, request.replica_id)
    topics = []
    is_broker = request.replica_id >= 0 and not stranger
    sees_all = is_broker or allowed_on_cluster(broker, ctx, "CLUSTER_ACTION", audit=False)
    async for topic in in_slices(request.topics):
        answers = []
        visible = not stranger and (sees_all or allowed(broker, ctx, "DESCRIBE", "TOPIC", topic.topic))
        async for asked in in_slices(topic.partitions):
            partition = broker.replicas.find(topic.topic, asked.partition) if visible else None
            if not visible:
                error, epoch, end_offset = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), -1, -1
            elif partition is None:
                error, epoch, end_offset = broker.replicas.hosting_error(topic.topic, asked.partition), -1, -1
            else:
                error, epoch, end_offset = reads.offset_for_leader_epoch(
                    partition, asked.current_leader_epoch, asked.leader_epoch
                )
            answers.append(
                api.EpochEndOffset(
                    error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
        topics.append(api.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return api.Response(topics=topics)
