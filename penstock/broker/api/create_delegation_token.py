"""38 CreateDelegationToken, v1–3: a secret that lets its holder log in (by SCRAM) as whoever asked for it.

v2: flexible · v3: a token for another owner, which needs CREATE_TOKENS on that user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.token_support import may, principals, token_keeper
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.security.principal import USER, Principal
from penstock.security.tokens import TokenProblem

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import CreateDelegationToken

API = ApiSpec(38, "CreateDelegationToken", 1, 3)


async def handle(
    broker: Broker, ctx: RequestContext, request: CreateDelegationToken.Request
) -> CreateDelegationToken.Response:
    api = messages.api("create_delegation_token")
    owner = ctx.principal
    try:
        keeper = token_keeper(broker, ctx)
        if request.owner_principal_name:
            owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
        if owner.type != USER:
            raise TokenProblem(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if owner != ctx.principal and not may(broker, ctx, "CREATE_TOKENS", "USER", str(owner)):
            raise TokenProblem(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        token = await keeper.create(owner, ctx.principal, principals(request.renewers), request.max_lifetime_ms)
    except TokenProblem as problem:
        return api.Response(
            error_code=int(problem.code),
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=ctx.principal.type,
            token_requester_principal_name=ctx.principal.name,
        )
    return api.Response(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=keeper.secret(token.token_id),
    )
