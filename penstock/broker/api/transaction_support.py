"""What the transaction APIs share: who may use a transactional id, and errors that old clients do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed, allowed_on_cluster
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker


def fenced_for_version(error: ErrorCode, knows_fenced: bool) -> int:
    """Clients from before PRODUCER_FENCED are told INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(error)


def may_use_transactional_id(broker: Broker, ctx: RequestContext, transactional_id: str) -> bool:
    return allowed(broker, ctx, "WRITE", "TRANSACTIONAL_ID", transactional_id)


def may_see_transactional_id(broker: Broker, ctx: RequestContext, transactional_id: str) -> bool:
    return allowed(broker, ctx, "DESCRIBE", "TRANSACTIONAL_ID", transactional_id)


def two_phase_allowed(broker: Broker, ctx: RequestContext, transactional_id: str) -> bool:
    return allowed(broker, ctx, "TWO_PHASE_COMMIT", "TRANSACTIONAL_ID", transactional_id)


def may_write_idempotently(broker: Broker, ctx: RequestContext) -> bool:
    """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
    return (
        broker.authorizer is None
        or allowed_on_cluster(broker, ctx, "IDEMPOTENT_WRITE", audit=False)
        or broker.authorizer.authorize_by_resource_type(ctx, "WRITE", "TOPIC")
    )
