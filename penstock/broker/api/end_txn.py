"""26 EndTxn, v0–5: commit or abort. Answered when the decision is committed; the markers follow.

Whoever presents transactional id, producer id and epoch may end a transaction, from any connection: that is what the
second phase of two-phase commit is (KIP-939).
v2: PRODUCER_FENCED · v3: flexible · v4: TRANSACTION_ABORTABLE · v5: every end gives the producer a new epoch (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import fenced_for_version, may_use_transactional_id
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import EndTxn

API = ApiSpec(26, "EndTxn", 0, 5)

FIRST_WITH_BUMP = 5


async def handle(broker: Broker, ctx: RequestContext, request: EndTxn.Request) -> EndTxn.Response:
    from penstock.protocol import messages

    api = messages.api("end_txn")
    if not may_use_transactional_id(broker, ctx, request.transactional_id):
        return api.Response(error_code=int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    decision = await broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        2 if ctx.api_version >= FIRST_WITH_BUMP else 0,
    )
    return api.Response(
        error_code=fenced_for_version(decision.error, ctx.api_version >= 2),
        producer_id=decision.producer_id,
        producer_epoch=decision.producer_epoch,
    )
