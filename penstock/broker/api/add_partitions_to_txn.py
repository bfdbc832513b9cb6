"""24 AddPartitionsToTxn, v0–5: a transaction shall span these partitions too.

v0–3 come from producers, one transaction each; one bad partition and none is added. v4+ is for brokers: several
transactions, also only to verify that partitions are part of them (KIP-890).
v2: PRODUCER_FENCED · v3: flexible · v4: batched, verify_only · v5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import fenced_for_version, may_use_transactional_id
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AddPartitionsToTxn

API = ApiSpec(24, "AddPartitionsToTxn", 0, 5)

FIRST_BROKER_VERSION = 4


async def handle(
    broker: Broker, ctx: RequestContext, request: AddPartitionsToTxn.Request
) -> AddPartitionsToTxn.Response:
    from penstock.protocol import messages

    api = messages.api("add_partitions_to_txn").load_all_versions()
    if ctx.api_version < FIRST_BROKER_VERSION:
        codes = await _add_for_client(broker, ctx, request)
        return api.Response(results_by_topic_v3_and_below=_results(api, codes))
    if ctx.broker_id < 0 and not broker.dispatcher.speaks_for(ctx.connection, ctx.broker_id):
        return api.Response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    answers = await asyncio.gather(*(_for_broker(broker, transaction) for transaction in request.transactions))
    return api.Response(
        results_by_transaction=[
            api.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_results(api, codes)
            )
            for transaction, codes in zip(request.transactions, answers, strict=True)
        ]
    )


async def _add_for_client(
    broker: Broker, ctx: RequestContext, request: AddPartitionsToTxn.Request
) -> dict[tuple[str, int], int]:
    asked = _partitions(request.v3_and_below_topics)
    transactional_id = request.v3_and_below_transactional_id
    if not may_use_transactional_id(broker, ctx, transactional_id):
        return dict.fromkeys(asked, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    writable = {
        topic
        for topic in {topic for topic, _ in asked} - INTERNAL_TOPICS
        if allowed(broker, ctx, "WRITE", "TOPIC", topic)
    }
    refused = {tp: _partition_error(broker, tp, writable) for tp in asked}
    if any(refused.values()):
        return {tp: int(code or ErrorCode.OPERATION_NOT_ATTEMPTED) for tp, code in refused.items()}
    codes = await broker.transactions.add_partitions(
        transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, asked, 0
    )
    return {tp: fenced_for_version(code, ctx.api_version >= 2) for tp, code in codes.items()}


def _partition_error(broker: Broker, partition: tuple[str, int], writable: set[str]) -> ErrorCode:
    if partition[0] not in writable:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.image.partition(*partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def _for_broker(broker: Broker, transaction: Any) -> dict[tuple[str, int], int]:
    """The asking broker leads these partitions, and may have heard of them before this one has."""
    asked = _partitions(transaction.topics)
    pair = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        codes = await broker.transactions.verify_partitions(*pair, asked)
    else:
        codes = await broker.transactions.add_partitions(*pair, asked, 2)
    return {tp: int(code) for tp, code in codes.items()}


def _partitions(topics: list[Any]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(api: AddPartitionsToTxn, codes: dict[tuple[str, int], int]) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            api.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return [
        api.AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()
    ]


def error_response(request: AddPartitionsToTxn.Request, code: int, message: str | None) -> AddPartitionsToTxn.Response:
    from penstock.protocol import messages

    api = messages.api("add_partitions_to_txn").load_all_versions()
    codes = dict.fromkeys(_partitions(request.v3_and_below_topics), code)
    return api.Response(error_code=code, results_by_topic_v3_and_below=_results(api, codes))
