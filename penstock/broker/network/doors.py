"""The doors of a broker: its listeners, bound as the settings say, and the addresses that others are told."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.network.listener import Listener
from penstock.cluster.image import Endpoint

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.broker.broker import Broker
    from penstock.broker.network.tls_reload import ListenerTls


class StartFailed(Exception):
    """The broker cannot serve; the message says what to change."""


def cannot_listen(setting: str, host: str, port: int, error: OSError) -> StartFailed:
    why = "another process listens there" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return StartFailed(f"cannot listen on {host}:{port}: {why} ({setting} says where)")


def bind_listeners(broker: Broker) -> None:
    """All of them, into `broker.listeners`; wrong security settings and taken ports are told now, before any work."""
    settings = broker.settings
    inter_broker, control = settings.inter_broker_listener, settings.control_plane_listener
    for configured in settings.listeners:
        if configured.sasl:
            broker.authentication.check(configured.name)
        if configured.name in (inter_broker, control) and not settings.embedded:
            broker.inter_broker.security(configured.name)  # complains now rather than at the first connection
        listener = Listener(
            configured.name,
            configured.host,
            configured.port,
            configured.protocol,
            advertised=settings.advertised_listeners is not None,
            is_inter_broker=configured.name == inter_broker,
            is_control=configured.name == control,
            dispatcher=broker.dispatcher,
            limits=broker.limits,
            settings=settings,
            tls=_tls(settings, configured.name, configured.protocol) if configured.tls else None,
        )
        try:
            listener.bind()
        except OSError as error:
            raise cannot_listen("listeners", configured.host, configured.port, error) from error
        broker.listeners.append(listener)


def _tls(settings: Settings, listener: str, protocol: str) -> ListenerTls:
    from penstock.broker.network.tls_reload import ListenerTls

    return ListenerTls(settings, listener, protocol)


def endpoints_told(settings: Settings, listeners: Iterable[Listener]) -> dict[str, Endpoint]:
    """The advertised addresses, or this host's name and the port that was bound."""
    advertised = {listener.name: listener for listener in settings.advertised_listeners or []}
    endpoints: dict[str, Endpoint] = {}
    for listener in listeners:
        told = advertised.get(listener.name)
        if told is not None:
            endpoints[listener.name] = Endpoint(told.host, told.port or listener.port, listener.protocol)
        elif not advertised:
            host = listener.host if listener.host not in ("", "0.0.0.0", "::") else socket.gethostname()
            endpoints[listener.name] = Endpoint(host, listener.port, listener.protocol)
    return endpoints
