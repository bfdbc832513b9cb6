"""9 OffsetFetch, v1–10: committed positions of one group (to v7) or of several (v8+); null topics mean all.

v2: null topics, top-level error · v5: leader epochs · v6: flexible · v7: require-stable (KIP-447) · v8: several groups
· v9: member epochs of KIP-848 · v10: topic ids. What was never committed is offset -1 without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.api.group_support import may_describe_group, may_describe_topic
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.coordinator.group.offsets import CommittedOffset
    from penstock.protocol.shapes import OffsetFetch

API = ApiSpec(9, "OffsetFetch", 1, 10, takes_long_lists=True)

SEVERAL_GROUPS = 8
BY_TOPIC_ID = 10
AT_ONCE_PARTITIONS = 1000


async def handle(broker: Broker, ctx: RequestContext, request: OffsetFetch.Request) -> OffsetFetch.Response:
    from penstock.protocol import messages

    api = messages.api("offset_fetch").load_all_versions()
    if ctx.api_version >= SEVERAL_GROUPS:
        groups = [
            await _fetch_group(broker, ctx, api, group, request.require_stable)
            async for group in in_slices(request.groups)
        ]
        return api.Response(groups=groups)
    asked = None
    if request.topics is not None:
        asked = [(topic.name, list(topic.partition_indexes)) async for topic in in_slices(request.topics)]
    found = await _offsets(broker, ctx, request.group_id, None, -1, asked, request.require_stable)
    if isinstance(found, ErrorCode):
        # Before v2 there is no top-level error: each partition carries it.
        topics = await _failed_topics(api, asked or [], found) if ctx.api_version < 2 else []
        return api.Response(topics=topics, error_code=int(found))
    topics = await _topics(found, api.OffsetFetchResponseTopic, api.OffsetFetchResponsePartition)
    return api.Response(topics=topics, error_code=0)


async def _fetch_group(broker: Broker, ctx: RequestContext, api: OffsetFetch, group: Any, require_stable: bool) -> Any:
    asked: list[tuple[str, list[int]]] | None = None
    unknown_ids: list[Any] = []
    if group.topics is not None:
        asked = []
        async for topic in in_slices(group.topics):
            name: str | None = topic.name
            if ctx.api_version >= BY_TOPIC_ID:
                name = broker.image.topic_name(topic.topic_id)
            if name is None:
                unknown_ids.append(await _unknown_id(api, topic))
            else:
                asked.append((name, list(topic.partition_indexes)))
    found = await _offsets(broker, ctx, group.group_id, group.member_id, group.member_epoch, asked, require_stable)
    if isinstance(found, ErrorCode):
        return api.OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(found), topics=[])
    topics = await _topics(found, api.OffsetFetchResponseTopics, api.OffsetFetchResponsePartitions)
    if ctx.api_version >= BY_TOPIC_ID:
        topics = [topic for topic in topics if _with_id(broker, topic)]
    return api.OffsetFetchResponseGroup(group_id=group.group_id, error_code=0, topics=topics + unknown_ids)


def _with_id(broker: Broker, topic: Any) -> bool:
    """Answers of v10 name topics by id; one that is gone from the cluster cannot be named."""
    known = broker.image.topics.get(topic.name)
    if known is not None:
        topic.topic_id = known.topic_id
    return known is not None


async def _offsets(
    broker: Broker,
    ctx: RequestContext,
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    asked: list[tuple[str, list[int]]] | None,
    require_stable: bool,
) -> ErrorCode | list[CommittedOffset]:
    from penstock.coordinator.group.offsets import CommittedOffset

    if not may_describe_group(broker, ctx, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    hidden: list[CommittedOffset] = []
    if asked is not None and broker.authorizer is not None:
        async for topic, partitions in in_slices(asked):
            if not may_describe_topic(broker, ctx, topic):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                hidden.extend(CommittedOffset(topic, partition, error=error) for partition in partitions)
        names = {offset.topic for offset in hidden}
        asked = [(topic, partitions) for topic, partitions in asked if topic not in names]
    found: list[CommittedOffset] = []
    many = asked is not None and len(asked) > AT_ONCE_PARTITIONS
    async for some in in_slices(_portions(asked)):
        part = await broker.groups.fetch(group_id, member_id, member_epoch, some, require_stable)
        if isinstance(part, ErrorCode):
            return part
        found += part
    if many:
        things = [asked]
        asked = []
        broker.dispatcher.large.free(things)
    if asked is None and broker.authorizer is not None:
        found = [offset for offset in found if may_describe_topic(broker, ctx, offset.topic)]
    return found + hidden


def _portions(asked: list[tuple[str, list[int]]] | None) -> Iterator[list[tuple[str, list[int]]] | None]:
    """As many partitions at a time as the coordinator looks up in a moment; usually there is one portion."""
    if asked is None:
        yield None
        return
    portion: list[tuple[str, list[int]]] = []
    room = AT_ONCE_PARTITIONS
    for topic, partitions in asked:
        for start in range(0, len(partitions), AT_ONCE_PARTITIONS):
            some = partitions[start : start + AT_ONCE_PARTITIONS]
            if len(some) > room:
                yield portion
                portion, room = [], AT_ONCE_PARTITIONS
            portion.append((topic, some))
            room -= len(some)
    yield portion


async def _topics(found: list[CommittedOffset], topic_struct: Any, partition_struct: Any) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    async for offset in in_slices(found):
        by_topic.setdefault(offset.topic, []).append(
            partition_struct(
                partition_index=offset.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=int(offset.error),
            )
        )
    topics = []
    async for name, partitions in in_slices(by_topic.items()):
        topic = topic_struct(partitions=partitions)
        topic.name = name
        topics.append(topic)
    return topics


async def _failed_topics(api: OffsetFetch, asked: list[tuple[str, list[int]]], error: ErrorCode) -> list[Any]:
    from penstock.coordinator.group.offsets import CommittedOffset

    each = ((topic, index) for topic, indexes in asked for index in indexes)
    failed = [CommittedOffset(topic, index, error=error) async for topic, index in in_slices(each)]
    return await _topics(failed, api.OffsetFetchResponseTopic, api.OffsetFetchResponsePartition)


async def _unknown_id(api: OffsetFetch, topic: Any) -> Any:
    partitions = [
        api.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=int(ErrorCode.UNKNOWN_TOPIC_ID),
        )
        async for index in in_slices(topic.partition_indexes)
    ]
    answer = api.OffsetFetchResponseTopics(partitions=partitions)
    answer.topic_id = topic.topic_id
    return answer


def error_response(request: OffsetFetch.Request, code: int, _message: str | None) -> OffsetFetch.Response:
    from penstock.protocol import messages

    api = messages.api("offset_fetch").load_all_versions()
    groups = [
        api.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code, topics=[])
        for group in request.groups or []
    ]
    return api.Response(topics=[], groups=groups, error_code=code)
