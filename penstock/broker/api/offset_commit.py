"""8 OffsetCommit, v2–10: store positions of a group (or of a simple committer: generation -1, no member id).

v2–4: retention_time_ms, how long to keep this commit · v6: leader epochs · v7: instance ids · v8: flexible ·
v9: KIP-848 epochs · v10: topic ids.
Answered when the records are committed; commits of one wake-up share an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.api.group_support import may_read_group, may_read_topic
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.large_messages import LARGE_REQUEST_BYTES, LARGE_RESPONSE_ELEMENTS
from penstock.broker.network.slices import in_slices
from penstock.broker.network.wire import MalformedFrame
from penstock.coordinator.group.offsets import Committer, OffsetToCommit, offset_codes
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
    from penstock.broker.routes import HotHandler, Route
    from penstock.protocol.shapes import OffsetCommit

API = ApiSpec(8, "OffsetCommit", 2, 10, takes_long_lists=True)

BY_TOPIC_ID = 10
MOST_OFFSETS = 20_000  # in one request: they become one batch, and more of them do not fit into a megabyte

Codes = list[list[int | None]]
"""Per topic and partition: an error, or None where the coordinator decides."""


def hot_handler(dispatcher: Dispatcher, route: Route) -> HotHandler:
    """Commits that a client sends one after the other need not wait for each other: they share an append."""
    broker = dispatcher.broker

    def handle_frame(connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        if broker.authorizer is not None or broker.groups is None or end - position > LARGE_REQUEST_BYTES:
            dispatcher.cold.start(connection, route, version, correlation_id, position, end)
            return
        from penstock.broker.routes import frame
        from penstock.protocol import messages

        try:
            request = messages.decode_request(API.key, version, bytes(connection.view[position:end]))
        except messages.MalformedMessage as error:
            raise MalformedFrame(f"offset commit v{version}: {error}") from error
        entries: list[OffsetToCommit] = []
        codes = [list(_judged(broker, None, version, topic, entries)) for topic in request.topics]
        slot = dispatcher.new_slot(connection, route)

        def done(error: ErrorCode, response: Any) -> None:
            answered = offset_codes(error, response, len(entries))
            body = messages.encode_response(API.key, version, _response(request, codes, answered))
            slot.parts = frame(correlation_id, version >= API.first_flexible_version, body)
            connection.mark_dirty()

        if entries:
            broker.groups.commit(_who(request), version, entries, done, request.retention_time_ms)
        else:
            done(ErrorCode.NONE, [])

    return handle_frame


async def handle(broker: Broker, ctx: RequestContext, request: OffsetCommit.Request) -> OffsetCommit.Response:
    """Where access is controlled, or very many partitions are named: the slower way, which knows who asks."""
    if not may_read_group(broker, ctx, request.group_id):
        refused = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await broker.dispatcher.large.run(error_response, request, refused, None)
    entries: list[OffsetToCommit] = []
    codes: Codes = []
    async for topic in in_slices(request.topics):
        judged = _judged(broker, ctx, ctx.api_version, topic, entries)
        codes.append([code async for code in in_slices(judged)])
    answered: list[int] = []
    if len(entries) > MOST_OFFSETS:
        answered = [int(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)] * len(entries)
    elif entries:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode, response: Any) -> None:
            if not future.done():
                future.set_result(offset_codes(error, response, len(entries)))

        broker.groups.commit(_who(request), ctx.api_version, entries, done, request.retention_time_ms)
        answered = await future
    if len(codes) > LARGE_RESPONSE_ELEMENTS or any(len(some) > LARGE_RESPONSE_ELEMENTS for some in codes):
        return await broker.dispatcher.large.run(_response, request, codes, answered)
    return _response(request, codes, answered)


def _who(request: OffsetCommit.Request) -> Committer:
    return Committer(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )


def _judged(
    broker: Broker, ctx: RequestContext | None, version: int, topic: Any, entries: list[OffsetToCommit]
) -> Iterator[int | None]:
    """For each partition why it is refused before the coordinator is asked; what it is to store becomes an entry.
    Without `ctx` nobody is refused."""
    name, refused = _check_topic(broker, ctx, version, topic)
    known = broker.image.topics.get(name)
    for partition in topic.partitions:
        index = partition.partition_index
        if refused:
            yield refused
        elif known is None or index not in known.partitions:
            yield int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            metadata = partition.committed_metadata or ""
            entries.append(
                OffsetToCommit(
                    name,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    known.topic_id.bytes,
                )
            )
            yield None


def _check_topic(broker: Broker, ctx: RequestContext | None, version: int, topic: Any) -> tuple[str, int]:
    """(name, error for the whole topic or 0)"""
    name: str = topic.name
    if version >= BY_TOPIC_ID:
        found = broker.image.topic_name(topic.topic_id)
        if found is None:
            return "", int(ErrorCode.UNKNOWN_TOPIC_ID)
        name = found
    if ctx is not None and not may_read_topic(broker, ctx, name):
        return name, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return name, 0


def _response(request: OffsetCommit.Request, codes: Codes, answered: list[int]) -> OffsetCommit.Response:
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


def error_response(request: OffsetCommit.Request, code: int, _message: str | None) -> OffsetCommit.Response:
    return _response(request, [[code] * len(topic.partitions) for topic in request.topics], [])
