"""40 ExpireDelegationToken, v1–2: a token ends after a while, or (a negative time) at once, as do its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.token_support import token_keeper
from penstock.protocol import messages
from penstock.security.tokens import TokenProblem

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ExpireDelegationToken

API = ApiSpec(40, "ExpireDelegationToken", 1, 2)


async def handle(
    broker: Broker, ctx: RequestContext, request: ExpireDelegationToken.Request
) -> ExpireDelegationToken.Response:
    api = messages.api("expire_delegation_token")
    try:
        keeper = token_keeper(broker, ctx)
        expires_ms = await keeper.expire(request.hmac, ctx.principal, request.expiry_time_period_ms)
    except TokenProblem as problem:
        return api.Response(error_code=int(problem.code))
    return api.Response(expiry_timestamp=expires_ms)
