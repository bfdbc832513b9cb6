"""66 ListTransactions, v0–2: the transactional ids that this broker coordinates, filtered.

v0: by state and producer id · v1: running longer than a duration · v2: by a pattern of the id (RE2, the whole id).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import may_see_transactional_id
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ListTransactions

API = ApiSpec(66, "ListTransactions", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: ListTransactions.Request) -> ListTransactions.Response:
    from penstock.coordinator.transaction.queries import InvalidPattern, ListFilter, known_states
    from penstock.protocol import messages

    api = messages.api("list_transactions")
    states, unknown = known_states(request.state_filters)
    if unknown and not states:
        return api.Response(unknown_state_filters=unknown)  # nothing can match, and everything would be wrong
    listed = ListFilter(
        states, frozenset(request.producer_id_filters), request.duration_filter, request.transactional_id_pattern
    )
    try:
        error, transactions = broker.transactions.list_transactions(listed)
    except InvalidPattern:
        return api.Response(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
    return api.Response(
        error_code=int(error),
        unknown_state_filters=unknown,
        transaction_states=[
            api.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.shown,
            )
            for transaction in transactions
            if may_see_transactional_id(broker, ctx, transaction.transactional_id)
        ],
    )
