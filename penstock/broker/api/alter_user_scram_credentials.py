"""51 AlterUserScramCredentials, v0: users come, get other passwords, and go. Clients send salted passwords.

Only over an encrypted connection should this be asked; whoever reads along learns what a dictionary may break.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed
from penstock.broker.api.admin_support import config_admin
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.znodes import sanitize
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.security.scram_users import Deletion, Upsertion, planned

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AlterUserScramCredentials

logger = logging.getLogger(__name__)

API = ApiSpec(51, "AlterUserScramCredentials", 0, 0)


async def handle(
    broker: Broker, ctx: RequestContext, request: AlterUserScramCredentials.Request
) -> AlterUserScramCredentials.Response:
    if not allowed(broker, ctx, "ALTER", "CLUSTER", "kafka-cluster"):
        return error_response(request, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None)
    admin = config_admin(broker)
    deletions = [Deletion(d.name, d.mechanism) for d in request.deletions]
    upsertions = [Upsertion(u.name, u.mechanism, u.iterations, u.salt, u.salted_password) for u in request.upsertions]
    names = {d.name for d in deletions if d.name} | {u.name for u in upsertions if u.name}
    configs = {name: await admin.read(("user", sanitize(name))) for name in sorted(names)}
    changed, outcomes = planned(deletions, upsertions, configs)
    for name, config in changed.items():
        await admin.write(("user", sanitize(name)), config)
        logger.info("credentials of user=%.100r changed by %s from %s", name, ctx.principal, ctx.client_host)
    return _response({name: (int(code), message) for name, (code, message) in outcomes.items()})


def error_response(
    request: AlterUserScramCredentials.Request, code: int, message: str | None
) -> AlterUserScramCredentials.Response:
    return _response({one.name: (code, message) for one in (*request.deletions, *request.upsertions)})


def _response(outcomes: dict[str, tuple[int, str | None]]) -> AlterUserScramCredentials.Response:
    api = messages.api("alter_user_scram_credentials")
    row = api.response_struct("AlterUserScramCredentialsResult")
    return api.Response(
        results=[row(user=name, error_code=code, error_message=text) for name, (code, text) in outcomes.items()]
    )
