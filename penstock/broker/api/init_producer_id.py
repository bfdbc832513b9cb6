"""22 InitProducerId, v0–6: a producer id, and for a transactional id its next epoch.

v6 only while `transaction.two.phase.commit.enable` is on.
Without a transactional id: a fresh producer id for an idempotent producer. With one: the next epoch, which fences the
producer that held the id before; an open transaction is aborted first, or kept (v6 keep_prepared_txn, KIP-939).
v2: flexible · v3: the producer may name the pair that it holds · v4: PRODUCER_FENCED · v6: two-phase commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import fenced_for_version, may_use_transactional_id, two_phase_allowed
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import InitProducerId

API = ApiSpec(22, "InitProducerId", 0, 6, limited_by=("transaction.two.phase.commit.enable", 5))


async def handle(broker: Broker, ctx: RequestContext, request: InitProducerId.Request) -> InitProducerId.Response:
    from penstock.broker.api.transaction_support import may_write_idempotently
    from penstock.coordinator.transaction.initialize import InitializeRequest
    from penstock.coordinator.transaction.producer_ids import ProducerIdsExhausted
    from penstock.protocol import messages

    response = messages.api("init_producer_id").Response(producer_id=-1, producer_epoch=-1)
    if request.transactional_id is None:
        if not may_write_idempotently(broker, ctx):
            response.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        elif (request.producer_id == -1) != (request.producer_epoch == -1):
            response.error_code = int(ErrorCode.INVALID_REQUEST)
        else:
            try:
                response.producer_id = await broker.transactions.new_producer_id()
                response.producer_epoch = 0
            except ProducerIdsExhausted:
                response.error_code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return response
    if not may_use_transactional_id(broker, ctx, request.transactional_id) or (
        request.enable2_pc and not two_phase_allowed(broker, ctx, request.transactional_id)
    ):
        response.error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return response
    decision = await broker.transactions.initialize(
        InitializeRequest(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            request.enable2_pc,
            request.keep_prepared_txn,
        )
    )
    response.error_code = fenced_for_version(decision.error, ctx.api_version >= 4)
    if not decision.error:
        response.producer_id = decision.producer_id
        response.producer_epoch = decision.producer_epoch
        response.ongoing_txn_producer_id = decision.ongoing_producer_id
        response.ongoing_txn_producer_epoch = decision.ongoing_producer_epoch
    return response
