"""37 CreatePartitions, v0–3. Grows topics to a total count; new partitions are placed, or go where the request says.

Each topic succeeds or fails by itself; answered when this broker's image shows the new partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed_topics
from penstock.broker.api.admin_support import split_duplicates, topic_admin
from penstock.broker.api.mutation_quota import EXCEEDED, MESSAGE, MutationBudget
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.topics import MorePartitions
    from penstock.protocol.shapes import CreatePartitions

API = ApiSpec(37, "CreatePartitions", 0, 3)

FIRST_STRICT = 3  # with mutation quotas


async def handle(broker: Broker, ctx: RequestContext, request: CreatePartitions.Request) -> CreatePartitions.Response:
    from penstock.cluster.topics import MorePartitions, TopicAnswer

    single, repeated = split_duplicates(request.topics, lambda topic: topic.name)
    answers = [TopicAnswer(t.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for t in repeated]
    alterable = allowed_topics(broker, ctx, "ALTER", (t.name for t in single))
    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answers += [TopicAnswer(t.name, forbidden, forbidden.message) for t in single if t.name not in alterable]
    wishes = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(a.broker_ids) for a in topic.assignments],
        )
        for topic in single
        if topic.name in alterable
    ]
    if not request.validate_only:
        budget = MutationBudget(broker, ctx, FIRST_STRICT)
        exceeded = [wish.name for wish in wishes if not budget.spend(_added(broker, wish))]
        answers += [TopicAnswer(name, EXCEEDED, MESSAGE) for name in exceeded]
        wishes = [wish for wish in wishes if wish.name not in exceeded]
    answers += await topic_admin(broker).add_partitions(wishes, request.timeout_ms, validate_only=request.validate_only)
    api = messages.api("create_partitions")
    return api.Response(
        results=[
            api.CreatePartitionsTopicResult(name=a.name, error_code=int(a.error_code), error_message=a.message)
            for a in answers
        ]
    )


def _added(broker: Broker, wish: MorePartitions) -> int:
    topic = broker.image.topics.get(wish.name)
    return max(wish.total_count - len(topic.partitions), 0) if topic is not None else 0


def error_response(request: CreatePartitions.Request, code: int, message: str | None) -> CreatePartitions.Response:
    api = messages.api("create_partitions")
    return api.Response(
        results=[
            api.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
