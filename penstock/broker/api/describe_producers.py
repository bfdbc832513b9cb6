"""61 DescribeProducers, v0: the producers that a partition knows, and since which offset their transactions are open.

With ListTransactions it finds hanging transactions: open in a partition, unknown to any coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeProducers

API = ApiSpec(61, "DescribeProducers", 0, 0)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeProducers.Request) -> DescribeProducers.Response:
    from penstock.protocol import messages

    api = messages.api("describe_producers")
    topics = []
    for topic in request.topics:
        readable = allowed(broker, ctx, "READ", "TOPIC", topic.name)
        topics.append(
            api.TopicResponse(
                name=topic.name,
                partitions=[_partition(api, broker, topic.name, index, readable) for index in topic.partition_indexes],
            )
        )
    return api.Response(topics=topics)


def _partition(api: DescribeProducers, broker: Broker, topic: str, index: int, readable: bool) -> Any:
    response = api.PartitionResponse(partition_index=index)
    partition = broker.replicas.find(topic, index)
    if not readable:
        response.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif partition is None:
        response.error_code = broker.replicas.hosting_error(topic, index)
    elif not partition.is_leader:
        response.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        log: Any = partition.log
        response.active_producers = [
            api.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1][1] if entry.batches else -1,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.txn_first_offset,
            )
            for entry in log.producers()
        ]
    return response


def error_response(request: DescribeProducers.Request, code: int, message: str | None) -> DescribeProducers.Response:
    from penstock.protocol import messages

    api = messages.api("describe_producers")
    return api.Response(
        topics=[
            api.TopicResponse(
                name=topic.name,
                partitions=[
                    api.PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
