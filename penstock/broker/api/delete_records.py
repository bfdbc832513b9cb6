"""DeleteRecords (key 21), versions 0–2: raise the start of a log, then wait until all live replicas have followed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DeleteRecords

API = ApiSpec(21, "DeleteRecords", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: DeleteRecords.Request) -> DeleteRecords.Response:
    from penstock.protocol import messages

    api = messages.api("delete_records")
    targets: list[tuple[Any, int]] = []
    waiting: list[Any] = []
    topics = []
    async for topic in in_slices(request.topics):
        answers = []
        may_delete = allowed(broker, ctx, "DELETE", "TOPIC", topic.name)
        async for asked in in_slices(topic.partitions):
            error, partition, offset = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None, -1
            if may_delete:
                error, partition, offset = _delete(broker, topic.name, asked.partition_index, asked.offset)
            answer = api.DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=-1, error_code=error
            )
            answers.append(answer)
            if partition is not None:
                targets.append((partition, offset))
                waiting.append(answer)
        topics.append(api.DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    if targets:
        errors = await _all_followed(broker, targets, request.timeout_ms)
        for answer, (partition, _), error in zip(waiting, targets, errors, strict=True):
            answer.error_code = error
            answer.low_watermark = -1 if error else partition.low_watermark()
    return api.Response(topics=topics)


def _delete(broker: Broker, topic: str, index: int, offset: int) -> tuple[int, Any, int]:
    """(error, partition to wait for, the offset that its low watermark must reach)."""
    if topic in INTERNAL_TOPICS:
        return int(ErrorCode.INVALID_TOPIC_EXCEPTION), None, -1
    partition = broker.replicas.find(topic, index)
    if partition is None:
        return broker.replicas.hosting_error(topic, index), None, -1
    error, reached = partition.delete_records(offset)
    return (error, None, -1) if error else (0, partition, reached)


async def _all_followed(broker: Broker, targets: list[tuple[Any, int]], timeout_ms: int) -> list[int]:
    future: asyncio.Future[list[int]] = broker.loop.create_future()

    def done(errors: list[int]) -> None:
        if not future.done():
            future.set_result(errors)

    parking = broker.replicas.parking
    wait = parking.until_low_watermark(targets, timeout_ms, done)
    try:
        return await future
    finally:
        parking.cancel(wait)
