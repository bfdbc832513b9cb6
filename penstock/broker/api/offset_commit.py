"""8 OffsetCommit, v2–10: store positions of a group (or of a simple committer: generation -1, no member id).

v5: no retention time · v6: leader epochs · v7: instance ids · v8: flexible · v9: KIP-848 epochs · v10: topic ids.
Answered when the records are committed; commits of one wake-up share an append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.group_support import may_read_group, may_read_topic
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

API = ApiSpec(8, "OffsetCommit", 2, 10)

BY_TOPIC_ID = 10


async def handle(broker: Broker, ctx: RequestContext, request: Any) -> Any:
    from penstock.coordinator.group.offsets import OffsetToCommit
    from penstock.coordinator.group.service import offset_codes

    if not may_read_group(broker, ctx, request.group_id):
        return error_response(request, int(ErrorCode.GROUP_AUTHORIZATION_FAILED), None)
    entries: list[OffsetToCommit] = []
    codes: list[list[int | None]] = []
    for topic in request.topics:
        name, refused = _check_topic(broker, ctx, topic)
        known = broker.image.topics.get(name)
        partitions: list[int | None] = []
        for partition in topic.partitions:
            index = partition.partition_index
            if refused:
                partitions.append(refused)
            elif known is None or index not in known.partitions:
                partitions.append(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                partitions.append(None)
                metadata = partition.committed_metadata or ""
                entries.append(
                    OffsetToCommit(name, index, partition.committed_offset, partition.committed_leader_epoch, metadata)
                )
        codes.append(partitions)
    answered: list[int] = []
    if entries:
        error, response = await broker.groups.commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            ctx.api_version,
            entries,
        )
        answered = offset_codes(error, response, len(entries))
    return _response(request, codes, answered)


def _check_topic(broker: Broker, ctx: RequestContext, topic: Any) -> tuple[str, int]:
    """(name, error for the whole topic or 0)"""
    name: str = topic.name
    if ctx.api_version >= BY_TOPIC_ID:
        found = broker.image.topic_name(topic.topic_id)
        if found is None:
            return "", int(ErrorCode.UNKNOWN_TOPIC_ID)
        name = found
    if not may_read_topic(broker, ctx, name):
        return name, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return name, 0


def _response(request: Any, codes: list[list[int | None]], answered: list[int]) -> Any:
    from penstock.protocol import messages

    api = messages.api("offset_commit")
    topic_struct = api.response_struct("OffsetCommitResponseTopic")
    partition_struct = api.response_struct("OffsetCommitResponsePartition")
    remaining = iter(answered)
    topics = []
    for topic, topic_codes in zip(request.topics, codes, strict=True):
        partitions = [
            partition_struct(
                partition_index=partition.partition_index, error_code=next(remaining) if code is None else code
            )
            for partition, code in zip(topic.partitions, topic_codes, strict=True)
        ]
        answer = topic_struct(partitions=partitions)
        answer.name, answer.topic_id = topic.name, topic.topic_id
        topics.append(answer)
    return api.Response(topics=topics)


def error_response(request: Any, code: int, _message: str | None) -> Any:
    return _response(request, [[code] * len(topic.partitions) for topic in request.topics], [])
