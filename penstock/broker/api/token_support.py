"""What the four delegation token APIs share: who may ask at all, and how principals stand in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import RequestContext
from penstock.protocol.errors import ErrorCode
from penstock.security.principal import ANONYMOUS, USER, Principal
from penstock.security.tokens import TokenProblem

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.security.token_keeper import TokenKeeper


def token_keeper(broker: Broker, ctx: RequestContext) -> TokenKeeper:
    """Tokens are for connections with a name of their own, and not for who came by a token. Raises TokenProblem."""
    connection = ctx.connection
    session = connection.sasl if connection is not None else None
    by_token = session is not None and session.outcome is not None and session.outcome.token_id
    if ctx.principal == ANONYMOUS or by_token:
        raise TokenProblem(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if broker.tokens is None:
        raise TokenProblem(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return broker.tokens


def principals(rows: list[Any] | None) -> tuple[Principal, ...]:
    found = tuple(Principal(row.principal_type, row.principal_name) for row in rows or ())
    if any(principal.type != USER or not principal.name for principal in found):
        raise TokenProblem(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return found


def may(broker: Broker, ctx: RequestContext, operation: str, resource_type: str, name: str) -> bool:
    """Rights over other people's tokens only ever come from an authorizer."""
    return broker.authorizer is not None and bool(broker.authorizer.authorize(ctx, operation, resource_type, name))
