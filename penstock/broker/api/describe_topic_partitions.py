"""DescribeTopicPartitions (key 75), version 0: topics in pages, by name and partition (KIP-966).

The answer stops after `response_partition_limit` partitions (at most `max.request.partition.size.limit`) and says
where to go on. Nothing is created. Eligible leader replicas are not kept here: both lists are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed, operations_on
from penstock.broker.api.metadata import is_valid_topic_name
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeTopicPartitions

API = ApiSpec(75, "DescribeTopicPartitions", 0, 0)

NOT_ASKED = -(1 << 31)


async def handle(
    broker: Broker, ctx: RequestContext, request: DescribeTopicPartitions.Request
) -> DescribeTopicPartitions.Response:
    from penstock.protocol import messages

    api = messages.api("describe_topic_partitions")
    image = broker.image
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics}) or sorted(image.topics)
    first_name, first_index = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    if cursor is not None and cursor.partition_index < 0:
        return api.Response(topics=[], next_cursor=None)
    asked = bool(request.topics)
    hidden = {name for name in names if name >= first_name and not allowed(broker, ctx, "DESCRIBE", "TOPIC", name)}
    if not asked:
        names = [name for name in names if name not in hidden]
    left = min(request.response_partition_limit, broker.settings["max.request.partition.size.limit"])
    topics: list[Any] = []
    for name in names:
        if name < first_name:
            continue
        if left <= 0:
            return api.Response(topics=topics, next_cursor=_cursor(api, name, 0))
        if name in hidden:
            topics.append(_topic(api, name, None, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), []))
            continue
        topic = image.topics.get(name)
        if topic is None:
            valid = is_valid_topic_name(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            topics.append(_topic(api, name, None, int(error), []))
            continue
        start = first_index if name == first_name else 0
        rows = [_partition(api, image, i, p) for i, p in sorted(topic.partitions.items()) if i >= start]
        topics.append(_topic(api, name, topic, 0, rows[:left], operations_on(broker, ctx, "TOPIC", name)))
        if len(rows) > left:
            return api.Response(topics=topics, next_cursor=_cursor(api, name, rows[left].partition_index))
        left -= len(rows)
    return api.Response(topics=topics, next_cursor=None)


def _cursor(api: DescribeTopicPartitions, name: str, index: int) -> Any:
    return api.response_struct("Cursor")(topic_name=name, partition_index=index)


def _topic(
    api: DescribeTopicPartitions, name: str, topic: Any, error: int, rows: list[Any], operations: int = NOT_ASKED
) -> Any:
    fields: dict[str, Any] = {} if topic is None else {"topic_id": topic.topic_id}
    return api.DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=rows,
        topic_authorized_operations=operations,
        **fields,
    )


def _partition(api: DescribeTopicPartitions, image: Any, index: int, partition: Any) -> Any:
    alive = partition.leader in image.brokers
    return api.DescribeTopicPartitionsResponsePartition(
        error_code=0 if alive else int(ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=index,
        leader_id=partition.leader if alive else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible),
        last_known_elr=list(partition.last_known),
        offline_replicas=[r for r in partition.replicas if not image.hears(r) or r in partition.offline],
    )
