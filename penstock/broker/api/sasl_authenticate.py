"""SaslAuthenticate (key 36), versions 0–2: one message of the chosen mechanism and its answer.

A refusal waits for connection.failed.authentication.delay.ms, tells the client why and ends the connection.
v1: how long the session lasts · v2: flexible.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.sasl import admit, close_after_answer, session_of
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.network.connection import Connection
    from penstock.protocol.shapes import SaslAuthenticate

logger = logging.getLogger(__name__)

API = ApiSpec(36, "SaslAuthenticate", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: SaslAuthenticate.Request) -> SaslAuthenticate.Response:
    from penstock.security.exchange import AuthenticationFailed
    from penstock.security.sasl_session import IllegalState

    api = messages.api("sasl_authenticate")
    connection = ctx.connection
    assert connection is not None
    if not connection.listener.needs_sasl:
        return api.Response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message="this listener has no SASL")
    session = session_of(connection)
    try:
        step = await session.step(request.auth_bytes)
    except AuthenticationFailed as refused:
        await _delay(broker, ctx, connection, refused)
        return api.Response(error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message=str(refused))
    except IllegalState as error:
        close_after_answer(connection)
        return api.Response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=str(error))
    if step.outcome is None:
        return api.Response(auth_bytes=step.reply)
    lifetime_ms = broker.authentication.lifetime_ms(
        ctx.listener_name, session.mechanism, step.outcome, broker.clock.now_ms()
    )
    session.lasts(lifetime_ms)
    admit(broker, connection)
    logger.debug("client=%s is %s by %s", ctx.client_host, connection.principal, session.mechanism)
    return api.Response(auth_bytes=step.reply, session_lifetime_ms=lifetime_ms)


async def _delay(broker: Broker, ctx: RequestContext, connection: Connection, refused: Any) -> None:
    """Guessing passwords takes time; the connection is over either way."""
    logger.warning(
        "authentication failed: client=%s listener=%s user=%.100r: %s%s",
        ctx.client_host,
        ctx.listener_name,
        refused.username,
        refused,
        f" ({refused.detail})" if refused.detail else "",
    )
    connection.authenticated = connection.admitted = False
    delay_ms = broker.settings["connection.failed.authentication.delay.ms"]
    if delay_ms > 0:
        await asyncio.sleep(delay_ms / 1000)
    close_after_answer(connection)
