"""Whether the sender of a request may do what it asks, as all handlers ask it; without an authorizer everybody may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import RequestRefused
from penstock.protocol.errors import ErrorCode
from penstock.security.acl_model import CLUSTER_NAME, ResourceType, all_operations_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker


def allowed(broker: Broker, ctx: RequestContext, operation: str, kind: str, name: str, *, audit: bool = True) -> bool:
    authorizer = broker.authorizer
    return authorizer is None or authorizer.authorize(ctx, operation, kind, name, audit=audit)


def allowed_on_cluster(broker: Broker, ctx: RequestContext, operation: str, *, audit: bool = True) -> bool:
    return allowed(broker, ctx, operation, "CLUSTER", CLUSTER_NAME, audit=audit)


def require_on_cluster(broker: Broker, ctx: RequestContext, operation: str) -> None:
    """Refuses the whole request of somebody who may not."""
    if not allowed_on_cluster(broker, ctx, operation):
        raise RequestRefused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)


def allowed_topics(broker: Broker, ctx: RequestContext, operation: str, names: Iterable[str]) -> set[str]:
    return {name for name in set(names) if allowed(broker, ctx, operation, "TOPIC", name)}


def operations_on(broker: Broker, ctx: RequestContext, kind: str, name: str) -> int:
    """What the sender may do with a resource, as the bits of a describe answer."""
    if broker.authorizer is None:
        return all_operations_bits(ResourceType[kind])
    return broker.authorizer.operations(ctx.connection, kind, name)
