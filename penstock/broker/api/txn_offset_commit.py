"""28 TxnOffsetCommit, v0–5: offsets that count when the transaction commits.

The group's partition of `__consumer_offsets` must be part of the transaction: verified up to v4, added from v5 on.
v2: leader epochs · v3: flexible, member and generation are checked · v4: TRANSACTION_ABORTABLE · v5: implicit add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import may_use_transactional_id
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import TxnOffsetCommit

API = ApiSpec(28, "TxnOffsetCommit", 0, 5)

OFFSETS_TOPIC = "__consumer_offsets"
TopicPartition = tuple[str, int]


async def handle(broker: Broker, ctx: RequestContext, request: TxnOffsetCommit.Request) -> TxnOffsetCommit.Response:
    from penstock.coordinator.group.offsets import OffsetToCommit

    if not may_use_transactional_id(broker, ctx, request.transactional_id):
        return error_response(request, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), None)
    if not allowed(broker, ctx, "READ", "GROUP", request.group_id):
        return error_response(request, int(ErrorCode.GROUP_AUTHORIZATION_FAILED), None)
    codes: dict[TopicPartition, int] = {}
    entries: list[OffsetToCommit] = []
    async for topic in in_slices(request.topics):
        readable = allowed(broker, ctx, "READ", "TOPIC", topic.name)
        known = broker.image.topics.get(topic.name)
        async for partition in in_slices(topic.partitions):
            key = (topic.name, partition.partition_index)
            if not readable:
                codes[key] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif known is None or partition.partition_index not in known.partitions:
                codes[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                entries.append(
                    OffsetToCommit(
                        *key,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata or "",
                        known.topic_id.bytes,
                    )
                )
    if entries:
        codes.update(await _commit(broker, ctx, request, entries))
    return _response(request, codes)


async def _commit(
    broker: Broker, ctx: RequestContext, request: TxnOffsetCommit.Request, entries: list[Any]
) -> dict[TopicPartition, int]:
    from penstock.coordinator.group.offsets import Committer
    from penstock.coordinator.shard_log import Producer

    producer = Producer(request.producer_id, request.producer_epoch)
    error, guard = await _verify(broker, ctx, request, producer)
    if not error:
        who = Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
        error, answer = await broker.groups.commit_in_transaction(who, producer, entries, guard)
        if not error and isinstance(answer, ErrorCode):
            error = answer
        elif not error:
            return {(entry.topic, entry.partition): int(code) for entry, code in zip(entries, answer, strict=True)}
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and ctx.api_version < 2:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # old clients do not retry the other one
    return {(entry.topic, entry.partition): int(error) for entry in entries}


async def _verify(
    broker: Broker, ctx: RequestContext, request: TxnOffsetCommit.Request, producer: Any
) -> tuple[ErrorCode, Any]:
    """As for a transactional batch, because the offsets become one: (error, guard for the append)."""
    from penstock.coordinator.transaction.verification import ClientAbility, verify

    key = (OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
    replica = broker.replicas.find(*key)
    if replica is None or not replica.is_leader:
        return ErrorCode.NOT_COORDINATOR, None
    log: Any = replica.log
    asked_as = log, replica.leader_epoch
    ability = ClientAbility.of_txn_offset_commit(ctx.api_version)

    def start() -> dict[TopicPartition, Any]:
        guard = log.start_verification(producer.producer_id, producer.producer_epoch, -1, ability.adds)
        return {} if guard is None else {key: guard}

    enabled = bool(broker.settings["transaction.partition.verification.enable"]) or log.is_unproven(
        producer.producer_id, producer.producer_epoch
    )
    answers = await verify(
        broker.transaction_links,
        request.transactional_id,
        producer.producer_id,
        producer.producer_epoch,
        start,
        ability,
        enabled,
    )
    if broker.replicas.find(*key) is not replica or (replica.log, replica.leader_epoch) != asked_as:
        return ErrorCode.NOT_COORDINATOR, None  # a later leadership trusts no answer to the one before it
    error, guard = answers.get(key, (ErrorCode.NONE, None))
    return _AS_GROUP_ERROR.get(error, error), guard


# The group coordinator has words of its own for "come again".
_AS_GROUP_ERROR = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def _response(request: TxnOffsetCommit.Request, codes: dict[TopicPartition, int]) -> TxnOffsetCommit.Response:
    from penstock.protocol import messages

    api = messages.api("txn_offset_commit")
    return api.Response(
        topics=[
            api.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    api.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(request: TxnOffsetCommit.Request, code: int, message: str | None) -> TxnOffsetCommit.Response:
    return _response(
        request,
        {(topic.name, partition.partition_index): code for topic in request.topics for partition in topic.partitions},
    )
