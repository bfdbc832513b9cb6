"""What authentication does to a connection: its session, its principal, its limits, and its end when a user goes."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock.security.sasl_session import SaslSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker import Broker
    from penstock.broker.network.connection import Connection

logger = logging.getLogger(__name__)


def session_of(connection: Connection) -> SaslSession:
    if connection.sasl is None:
        connection.sasl = SaslSession(time.monotonic)
    return connection.sasl


def admit(broker: Broker, connection: Connection) -> None:
    """An exchange ended well: the connection has a name, and the limits of its whole life."""
    session = session_of(connection)
    assert session.outcome is not None
    connection.principal = session.outcome.principal
    connection.authenticated = True
    connection.max_frame_bytes = broker.dispatcher.max_request_bytes
    # A session with an end is looked at with every request, and so is everyone while clients are held.
    connection.admitted = (
        session.expires_at is None and broker.dispatcher.held is None and not connection.listener.is_control
    )


def close_after_answer(connection: Connection) -> None:
    connection.stop_reading()
    connection.close_when_drained = True


def close_sessions(broker: Broker, of: Callable[[SaslSession, str], bool]) -> int:
    """End the connections whose credentials are gone; how many there were."""
    closed = 0
    for listener in broker.listeners:
        if listener.needs_sasl:
            for connection in list(listener.connections):
                session = connection.sasl
                if session is not None and session.outcome is not None and of(session, listener.name):
                    connection.close()
                    closed += 1
    return closed
