"""SaslHandshake (key 17), version 1: a client says by which mechanism it will prove who it is.

Version 0, after which tokens come without any Kafka header, is not served. A mechanism that is not offered is answered
with those that are, and the connection ends. On an authenticated connection it begins a re-authentication (KIP-368).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.sasl import close_after_answer, session_of
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import SaslHandshake

API = ApiSpec(17, "SaslHandshake", 1, 1)


async def handle(broker: Broker, ctx: RequestContext, request: SaslHandshake.Request) -> SaslHandshake.Response:
    from penstock.security.exchange import AuthenticationFailed
    from penstock.security.sasl_session import IllegalState

    api = messages.api("sasl_handshake")
    connection = ctx.connection
    assert connection is not None
    if not connection.listener.needs_sasl:
        return api.Response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
    offered = list(broker.authentication.offered(ctx.listener_name))
    if request.mechanism not in offered:
        close_after_answer(connection)
        return api.Response(error_code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms=offered)
    session = session_of(connection)
    try:
        session.begin(request.mechanism, broker.authentication.exchange(ctx.listener_name, request.mechanism))
    except AuthenticationFailed:
        close_after_answer(connection)
        return api.Response(error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), mechanisms=offered)
    except IllegalState:
        return api.Response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=offered)
    return api.Response(mechanisms=offered)
