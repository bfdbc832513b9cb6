"""68 ConsumerGroupHeartbeat, v0–1 (KIP-848): join, report, learn, leave, all in one request.

v1: the client makes its member id, and subscribes by RE2 pattern. Fields left out mean "as before"; the answer carries
an assignment only when there is something to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.broker.api.group_support import may_describe_topic, may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.coordinator.group.consumer_heartbeat import HeartbeatResult
    from penstock.protocol.shapes import ConsumerGroupHeartbeat

API = ApiSpec(68, "ConsumerGroupHeartbeat", 0, 1)

JOIN, LEAVE, STATIC_LEAVE = 0, -1, -2


async def handle(
    broker: Broker, ctx: RequestContext, request: ConsumerGroupHeartbeat.Request
) -> ConsumerGroupHeartbeat.Response:
    from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest, HeartbeatResult

    if not may_read_group(broker, ctx, request.group_id):
        return _response(HeartbeatResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    for topic in request.subscribed_topic_names or []:
        if not may_describe_topic(broker, ctx, topic):
            return _response(HeartbeatResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    problem = _problem(ctx, request)
    if problem is not None:
        return _response(HeartbeatResult(ErrorCode.INVALID_REQUEST, message=problem))
    owned = None
    if request.topic_partitions is not None:
        owned = {topic.topic_id: set(topic.partitions) for topic in request.topic_partitions if topic.partitions}
    heartbeat = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id or str(uuid4()),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=owned,
        client_id=ctx.client_id,
        client_host=f"/{ctx.client_host}",
        may_describe=lambda topic: may_describe_topic(broker, ctx, topic),
    )
    return _response(await broker.groups.consumer_heartbeat(heartbeat))


def _problem(ctx: RequestContext, request: ConsumerGroupHeartbeat.Request) -> str | None:
    """What makes the request invalid, in the order in which Kafka looks."""
    epoch = request.member_epoch
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id == "" or (request.instance_id is not None and not request.instance_id.strip()):
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if not request.member_id and (ctx.api_version >= 1 or epoch > 0 or epoch == LEAVE):
        return "MemberId can't be empty."
    if epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if not request.subscribed_topic_names and not request.subscribed_topic_regex:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVE and request.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < STATIC_LEAVE:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    return None


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeat.Response:
    from penstock.protocol import messages

    api = messages.api("consumer_group_heartbeat")
    assignment = None
    if result.assignment is not None:
        partitions = api.response_struct("TopicPartitions")
        assignment = api.Assignment(
            topic_partitions=[
                partitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(result.assignment.items())
            ]
        )
    return api.Response(
        error_code=int(result.error),
        error_message=result.message if result.error is not ErrorCode.NONE else None,
        member_id=result.member_id or None,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
