"""20 DeleteTopics, v1–6. By name, from v6 on also by id; answered when the topics are gone from this broker's image.

Replicas on brokers that are down are deleted when these come back; until then the name stays taken.
v5 explains errors. TOPIC_DELETION_DISABLED exists from v3 on; older clients get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.admin_support import explained, split_duplicates, topic_admin
from penstock.broker.api.mutation_quota import EXCEEDED, MESSAGE, MutationBudget
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.protocol.kio_schema import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DeleteTopics

API = ApiSpec(20, "DeleteTopics", 1, 6)

FIRST_STRICT = 5  # with mutation quotas


async def handle(broker: Broker, ctx: RequestContext, request: DeleteTopics.Request) -> DeleteTopics.Response:
    api = messages.api("delete_topics")
    asked: list[tuple[str | None, UUID]]
    if ctx.api_version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    results: list[Any] = []

    def refuse(name: str | None, topic_id: UUID, code: ErrorCode, message: str | None = None) -> None:
        text = explained(code, message)
        results.append(api.DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(code), error_message=text))

    by_name: dict[str, Any] = {}
    single, repeated = split_duplicates(asked, lambda entry: entry)
    async for name, topic_id in in_slices(repeated):
        refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "The topic is named more than once.")
    async for name, topic_id in in_slices(single):
        has_id = topic_id != ZERO_UUID
        if name is not None and has_id:
            refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "Name a topic by its name or by its id, not by both.")
            continue
        if name is None and not has_id:
            refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "Neither a name nor an id is given.")
            continue
        if name is None:
            name = broker.image.topic_names.get(topic_id)
            if name is None:
                refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
                continue
        if not allowed(broker, ctx, "DELETE", "TOPIC", name):
            # An id may be known to everybody, the name behind it not.
            hidden = has_id and not allowed(broker, ctx, "DESCRIBE", "TOPIC", name)
            refuse(None if hidden else name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        if name in by_name:
            del by_name[name]
            refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "The topic is named by its name and by its id.")
            continue
        by_name[name] = topic_id
    budget = MutationBudget(broker, ctx, FIRST_STRICT)
    for name in list(by_name):
        topic = broker.image.topics.get(name)
        if topic is not None and not budget.spend(len(topic.partitions)):
            refuse(name, by_name.pop(name), EXCEEDED, MESSAGE)
    async for answer in in_slices(await topic_admin(broker).delete(list(by_name), request.timeout_ms)):
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.TOPIC_DELETION_DISABLED and ctx.api_version < 3:
            code = ErrorCode.INVALID_REQUEST
        refuse(answer.name, answer.topic_id, code, answer.message)
    return api.Response(responses=results)


def error_response(request: DeleteTopics.Request, code: int, message: str | None) -> DeleteTopics.Response:
    api = messages.api("delete_topics")
    named: list[Any] = [(name, None) for name in getattr(request, "topic_names", None) or ()]
    named += [(topic.name, topic.topic_id) for topic in getattr(request, "topics", None) or ()]
    results = [api.DeletableTopicResult(name=name, error_code=code, error_message=message) for name, _ in named]
    for result, (_, topic_id) in zip(results, named, strict=True):
        if topic_id is not None:
            result.topic_id = topic_id
    return api.Response(responses=results)
