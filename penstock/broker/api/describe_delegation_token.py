"""41 DescribeDelegationToken, v1–3: the tokens that one owns or renews, and others where an ACL says so.

v2: flexible · v3: who asked for the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.token_support import may, principals, token_keeper
from penstock.protocol import messages
from penstock.security.tokens import DelegationToken, TokenProblem

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeDelegationToken

API = ApiSpec(41, "DescribeDelegationToken", 1, 3)


async def handle(
    broker: Broker, ctx: RequestContext, request: DescribeDelegationToken.Request
) -> DescribeDelegationToken.Response:
    api = messages.api("describe_delegation_token")
    row = api.response_struct("DescribedDelegationToken")
    renewer = api.response_struct("DescribedDelegationTokenRenewer")
    try:
        keeper = token_keeper(broker, ctx)
        owners = None if request.owners is None else set(principals(request.owners))
    except TokenProblem as problem:
        return api.Response(error_code=int(problem.code))
    now_ms = broker.clock.now_ms()
    return api.Response(
        tokens=[
            row(
                principal_type=token.owner.type,
                principal_name=token.owner.name,
                token_requester_principal_type=token.requester.type,
                token_requester_principal_name=token.requester.name,
                issue_timestamp=token.issued_ms,
                expiry_timestamp=token.expires_ms,
                max_timestamp=token.max_ms,
                token_id=token.token_id,
                hmac=keeper.secret(token.token_id),
                renewers=[renewer(principal_type=r.type, principal_name=r.name) for r in token.renewers],
            )
            for token in keeper.tokens.values()
            if (owners is None or token.owner in owners) and not token.is_over(now_ms) and _may_see(broker, ctx, token)
        ]
    )


def _may_see(broker: Broker, ctx: RequestContext, token: DelegationToken) -> bool:
    if token.may_be_managed_by(ctx.principal):
        return True
    return may(broker, ctx, "DESCRIBE", "DELEGATION_TOKEN", token.token_id) or may(
        broker, ctx, "DESCRIBE_TOKENS", "USER", str(token.owner)
    )
