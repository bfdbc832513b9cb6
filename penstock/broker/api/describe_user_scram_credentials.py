"""50 DescribeUserScramCredentials, v0: which users have which SCRAM mechanisms; never their keys."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.znodes import desanitize, sanitize
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.security.scram_users import described

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeUserScramCredentials

API = ApiSpec(50, "DescribeUserScramCredentials", 0, 0)


async def handle(
    broker: Broker, ctx: RequestContext, request: DescribeUserScramCredentials.Request
) -> DescribeUserScramCredentials.Response:
    api = messages.api("describe_user_scram_credentials")
    result = api.response_struct("DescribeUserScramCredentialsResult")
    info = api.response_struct("CredentialInfo")
    if not allowed(broker, ctx, "DESCRIBE", "CLUSTER", "kafka-cluster"):
        return api.Response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    configs = broker.image_holder.image.configs
    if request.users:
        names = [user.name for user in request.users]
    else:
        users = [desanitize(name) for kind, name in configs if kind == "user" and "/" not in name]
        names = sorted(name for name in users if described(configs["user", sanitize(name)]))
    results = []
    message: str | None
    for name, count in Counter(names).items():
        found = described(configs.get(("user", sanitize(name)), {}))
        if count > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not found:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            code, message = ErrorCode.NONE, None
        infos = [info(mechanism=m, iterations=i) for m, i in found] if not code else []
        results.append(result(user=name, error_code=int(code), error_message=message, credential_infos=infos))
    return api.Response(results=results)
