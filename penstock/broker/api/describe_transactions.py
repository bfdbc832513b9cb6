"""65 DescribeTransactions, v0: state, pair, start time and partitions of transactional ids coordinated here.

What an operator (or the Spark sink) needs to end a forgotten transaction: the pair to present, how old it is, and the
partitions whose last stable offset it holds back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import may_see_transactional_id
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeTransactions

API = ApiSpec(65, "DescribeTransactions", 0, 0)


async def handle(
    broker: Broker, ctx: RequestContext, request: DescribeTransactions.Request
) -> DescribeTransactions.Response:
    from penstock.protocol import messages

    api = messages.api("describe_transactions")
    return api.Response(
        transaction_states=[
            _describe(api, broker, ctx, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _describe(api: DescribeTransactions, broker: Broker, ctx: RequestContext, transactional_id: str) -> Any:
    state = api.TransactionState(transactional_id=transactional_id, transaction_start_time_ms=0)
    if not may_see_transactional_id(broker, ctx, transactional_id):
        state.error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return state
    error, transaction = broker.transactions.describe(transactional_id)
    state.error_code = int(error)
    if transaction is None:
        return state
    state.transaction_state = transaction.state.shown
    state.transaction_timeout_ms = transaction.timeout_ms
    state.transaction_start_time_ms = transaction.start_ms
    state.producer_id = transaction.producer_id
    state.producer_epoch = transaction.producer_epoch
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        if allowed(broker, ctx, "DESCRIBE", "TOPIC", topic):
            topics.setdefault(topic, []).append(index)
    state.topics = [api.TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return state


def error_response(
    request: DescribeTransactions.Request, code: int, message: str | None
) -> DescribeTransactions.Response:
    from penstock.protocol import messages

    api = messages.api("describe_transactions")
    return api.Response(
        transaction_states=[
            api.TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in request.transactional_ids
        ]
    )
