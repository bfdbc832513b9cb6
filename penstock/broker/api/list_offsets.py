"""ListOffsets (key 2), versions 1–11: the offset at a time, or one of the special positions.

v2: isolation level · v4: leader epochs · v7: max timestamp (-3) · v8: earliest local (-4) · v9: latest tiered (-5)
· v10: time-out for remote look-ups · v11: earliest pending upload (-6).
Without tiering -4 equals -2; -5 and -6 find nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed_topics
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.log.damage import UNREADABLE
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.partition import Bound

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ListOffsets

API = ApiSpec(2, "ListOffsets", 1, 11, takes_long_lists=True)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_DEBUGGING_REPLICA = -2

Found = tuple[int, int, int, int]
"""(error, timestamp, offset, leader epoch)."""


async def handle(broker: Broker, ctx: RequestContext, request: ListOffsets.Request) -> ListOffsets.Response:
    from penstock.protocol import messages

    api = messages.api("list_offsets")
    visible: set[str] = set()
    judged: set[str] = set()
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    async for topic in in_slices(request.topics):
        if topic.name not in judged:
            judged.add(topic.name)
            visible |= allowed_topics(broker, ctx, "DESCRIBE", [topic.name])
        async for asked in in_slices(topic.partitions):
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
    topics = []
    async for topic in in_slices(request.topics):
        answers = []
        answered: set[int] = set()  # a repeated one is answered once
        async for asked in in_slices(topic.partitions):
            if asked.partition_index in answered:
                continue
            answered.add(asked.partition_index)
            if topic.name not in visible:
                found: Found = (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), -1, -1, -1)
            elif (topic.name, asked.partition_index) in repeated:
                found = (int(ErrorCode.INVALID_REQUEST), -1, -1, -1)
            else:
                found = await _look_up(broker, ctx, request, topic.name, asked)
            error, timestamp, offset, leader_epoch = found
            answers.append(
                api.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=leader_epoch,
                )
            )
        topics.append(api.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return api.Response(topics=topics)


async def _look_up(broker: Broker, ctx: RequestContext, request: ListOffsets.Request, topic: str, asked: Any) -> Found:
    timestamp = asked.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or ctx.api_version < _FIRST_VERSION.get(timestamp, 1):
        return int(ErrorCode.UNSUPPORTED_VERSION), -1, -1, -1
    partition = broker.replicas.find(topic, asked.partition_index)
    if partition is None:
        return broker.replicas.hosting_error(topic, asked.partition_index), -1, -1, -1
    error = reads.epoch_error(partition, asked.current_leader_epoch)
    if not error and not partition.is_leader and request.replica_id != _DEBUGGING_REPLICA:
        error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error:
        return error, -1, -1, -1
    if partition.dirty:
        partition.write_now()
        partition.written()
    from_client = request.replica_id == -1
    bound = Bound.LOG_END
    if from_client:
        bound = Bound.LAST_STABLE if request.isolation_level == 1 else Bound.HIGH_WATERMARK
    return await _at(broker, ctx, partition, timestamp, partition.read_bound(bound), from_client)


async def _at(broker: Broker, ctx: RequestContext, partition: Any, timestamp: int, upper: int, client: bool) -> Found:
    log = partition.log
    unsettled = reads.latest_offset_error(partition) if client else 0
    if unsettled and ctx.api_version < 5:
        unsettled = int(ErrorCode.LEADER_NOT_AVAILABLE)
    if timestamp == LATEST:
        return (unsettled, -1, -1, -1) if unsettled else (0, -1, upper, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_at(log.log_start_offset)
        return 0, -1, log.log_start_offset, -1 if epoch is None else epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return 0, -1, -1, -1
    # Both may scan files that nobody has read for long.
    look_up = log.max_timestamp_offset if timestamp == MAX_TIMESTAMP else partial(log.offset_for_timestamp, timestamp)
    try:
        found = await broker.loop.run_in_executor(None, look_up)
    except UNREADABLE as unreadable:
        return int(log.damage.tell(log.log_start_offset, unreadable)), -1, -1, -1
    if found is None:
        return (unsettled, -1, -1, -1) if unsettled else (0, -1, -1, -1)
    if found.offset >= upper and timestamp != MAX_TIMESTAMP:
        return unsettled, -1, -1, -1
    return 0, found.timestamp, found.offset, found.leader_epoch
