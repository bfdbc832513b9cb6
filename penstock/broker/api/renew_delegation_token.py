"""39 RenewDelegationToken, v1–2: a token lives on, for its owner or one of its renewers, until its last day at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.token_support import token_keeper
from penstock.protocol import messages
from penstock.security.tokens import TokenProblem

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import RenewDelegationToken

API = ApiSpec(39, "RenewDelegationToken", 1, 2)


async def handle(
    broker: Broker, ctx: RequestContext, request: RenewDelegationToken.Request
) -> RenewDelegationToken.Response:
    api = messages.api("renew_delegation_token")
    try:
        keeper = token_keeper(broker, ctx)
        expires_ms = await keeper.renew(request.hmac, ctx.principal, request.renew_period_ms)
    except TokenProblem as problem:
        return api.Response(error_code=int(problem.code))
    return api.Response(expiry_timestamp=expires_ms)
