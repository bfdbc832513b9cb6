"""19 CreateTopics, v2–7. Each topic succeeds or fails by itself; answered when the new partitions have leaders here.

v5 tells the configs that the topic got, v7 its id. A name that appears twice fails as a whole. Any broker takes it:
topics are made in the store, and the controller reacts to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed, allowed_on_cluster, allowed_topics
from penstock.broker.api.admin_support import explained, split_duplicates, topic_admin
from penstock.broker.api.mutation_quota import EXCEEDED, MESSAGE, MutationBudget
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.topics import NewTopic, TopicAnswer
    from penstock.protocol.shapes import CreateTopics

API = ApiSpec(19, "CreateTopics", 2, 7)

FIRST_STRICT = 6  # with mutation quotas


async def handle(broker: Broker, ctx: RequestContext, request: CreateTopics.Request) -> CreateTopics.Response:
    from penstock.cluster.topics import TopicAnswer

    single, repeated = split_duplicates(request.topics, lambda topic: topic.name)
    answers = [TopicAnswer(t.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for t in repeated]
    # CREATE on the cluster is enough; else each topic needs it (KIP-277).
    if not allowed_on_cluster(broker, ctx, "CREATE", audit=False):
        permitted = allowed_topics(broker, ctx, "CREATE", (t.name for t in single))
        answers += [
            TopicAnswer(t.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for t in single if t.name not in permitted
        ]
        single = [t for t in single if t.name in permitted]
    malformed = {t.name for t in single if _names_a_partition_twice(t)}
    answers += [
        TopicAnswer(name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once.")
        for name in sorted(malformed)
    ]
    wanted = [new_topic(t) for t in single if t.name not in malformed]
    if not request.validate_only:
        budget = MutationBudget(broker, ctx, FIRST_STRICT)
        exceeded = [new.name for new in wanted if not budget.spend(_partition_count(broker, new))]
        answers += [TopicAnswer(name, EXCEEDED, MESSAGE) for name in exceeded]
        wanted = [new for new in wanted if new.name not in exceeded]
    answers += await topic_admin(broker).create(wanted, request.timeout_ms, validate_only=request.validate_only)
    results = [_result(broker, ctx, answer) async for answer in in_slices(answers)]
    return messages.api("create_topics").Response(topics=results)


def error_response(request: CreateTopics.Request, code: int, message: str | None) -> CreateTopics.Response:
    api = messages.api("create_topics")
    results = [api.CreatableTopicResult(name=t.name, error_code=code, error_message=message) for t in request.topics]
    return api.Response(topics=results)


def _partition_count(broker: Broker, new: NewTopic) -> int:
    if new.assignments:
        return len(new.assignments)
    return new.partition_count if new.partition_count > 0 else int(broker.settings["num.partitions"])


def _names_a_partition_twice(topic: Any) -> bool:
    indexes = [assignment.partition_index for assignment in topic.assignments]
    return len(set(indexes)) != len(indexes)


def new_topic(topic: Any) -> NewTopic:
    from penstock.cluster.topics import NewTopic

    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {a.partition_index: tuple(a.broker_ids) for a in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _result(broker: Broker, ctx: RequestContext, answer: TopicAnswer) -> Any:
    from penstock.base.settings.describe import describe_topic

    api = messages.api("create_topics")
    result = api.CreatableTopicResult(
        name=answer.name,
        topic_id=answer.topic_id,
        error_code=int(answer.error_code),
        error_message=explained(answer.error_code, answer.message),
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )
    if answer.error_code != ErrorCode.NONE:
        return result
    if not allowed(broker, ctx, "DESCRIBE_CONFIGS", "TOPIC", answer.name, audit=False):
        result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        result.num_partitions = answer.partition_count
        result.replication_factor = answer.replication_factor
        result.configs = [
            api.CreatableTopicConfigs(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=int(row.source),
                is_sensitive=row.is_sensitive,
            )
            for row in describe_topic(broker.settings, answer.configs)
        ]
    return result
