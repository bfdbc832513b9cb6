"""A listening socket: accepts connections within the limits and knows them until they close."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import TYPE_CHECKING, Any

from penstock.broker.network.connection import Connection
from penstock.broker.network.connection_limits import ConnectionLimits, CreationRate, plain_host

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.tls_reload import ListenerTls

logger = logging.getLogger(__name__)

ACCEPTS_PER_WAKEUP = 64
PAUSE_WHEN_OUT_OF_FILES_SECONDS = 1.0


LONGEST_HOLD_SECONDS = 10.0  # a connection over its address's rate is closed after so long at most


class Listener:
    """`open_access`: whoever connects may call what clients may call, so the dispatcher need not look."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        protocol: str,
        *,
        advertised: bool,
        is_inter_broker: bool,
        is_control: bool = False,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        settings: Any,
        tls: ListenerTls | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.protocol = protocol
        self.advertised = advertised
        self.is_inter_broker = is_inter_broker
        self.needs_sasl = protocol.startswith("SASL_")
        self.is_control = is_control  # only the controller speaks here
        self.open_access = not self.needs_sasl and not is_control
        self.dispatcher = dispatcher
        self.loop: asyncio.AbstractEventLoop = dispatcher.loop
        self.limits = limits
        self.tls = tls
        self.connections: set[Connection] = set()
        self.first_frame_bytes = dispatcher.max_request_bytes
        if self.needs_sasl:
            self.first_frame_bytes = min(self.first_frame_bytes, settings["sasl.server.max.receive.size"])
        self.creation = CreationRate(self._own(settings, "max.connection.creation.rate"), time.monotonic())
        self.take(settings)
        self._backlog: int = settings["socket.listen.backlog.size"]
        self._receive_buffer: int = settings["socket.receive.buffer.bytes"]
        # Kafka's default is also the fastest for sendfile: what waits in the socket stays in the processor's cache.
        self._send_buffer: int = settings["socket.send.buffer.bytes"]
        if not settings.explicit("socket.receive.buffer.bytes"):
            self._receive_buffer = -1  # the kernel tunes it better than a fixed value
        self._sock: socket.socket | None = None
        self._accepting = False
        self._out_of_files = False  # told once, until it is over
        self._opened = dispatcher.stats.metrics.cell("connections_opened", name)

    def _own(self, settings: Any, name: str) -> int:
        """A limit of this listener alone; the plain name is the broker's."""
        own = settings.explicit_for_listener(self.name, name)
        return int(settings.listener_value(self.name, name) if own else settings.default(name))

    def take(self, settings: Any) -> None:
        """What may be changed while the broker runs."""
        self.max_connections = self._own(settings, "max.connections")
        self.creation.change(self._own(settings, "max.connection.creation.rate"))
        if self.tls is not None:
            self.tls.refresh()

    @property
    def _full(self) -> bool:
        # Brokers must reach each other also when clients have taken every place.
        own_place = self.is_inter_broker and len(self.dispatcher.broker.listeners) > 1
        return len(self.connections) >= self.max_connections or (self.limits.full and not own_place)

    def _pause_seconds(self, now: float) -> float:
        pause = self.creation.wait_seconds(now)
        if self.is_inter_broker and len(self.dispatcher.broker.listeners) > 1:
            return pause
        return max(pause, self.limits.creation.wait_seconds(now))

    def bind(self) -> None:
        """Take the port. OSError if somebody has it."""
        sock = _bound_socket(self.host, self.port)
        if self._receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        sock.listen(self._backlog)
        sock.setblocking(False)
        self._sock = sock
        self.port = sock.getsockname()[1]

    def start_accepting(self) -> None:
        if self._sock is not None and not self._accepting:
            self._accepting = True
            self.loop.add_reader(self._sock.fileno(), self._accept)

    def stop_accepting(self) -> None:
        if self._sock is not None and self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._sock.fileno())

    def close(self) -> None:
        self.stop_accepting()
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _accept(self) -> None:
        assert self._sock is not None
        now = time.monotonic()
        for _ in range(ACCEPTS_PER_WAKEUP):
            if self._full:
                self.stop_accepting()  # clients wait in the backlog until a connection closes, as with Kafka
                return
            pause = self._pause_seconds(now)
            if pause > 0:  # and so do those that come too fast
                self.stop_accepting()
                self.loop.call_later(pause, self.start_accepting)
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of descriptors: pause, or this loop would spin on a socket that stays readable.
                if not self._out_of_files:
                    self._out_of_files = True
                    logger.error(
                        "listener=%s cannot accept: %s; clients wait, tried again every second", self.name, error
                    )
                self.stop_accepting()
                self.loop.call_later(PAUSE_WHEN_OUT_OF_FILES_SECONDS, self.start_accepting)
                return
            if self._out_of_files:
                self._out_of_files = False
                logger.info("listener=%s accepts again", self.name)
            self._admit(sock, plain_host(address[0]))

    def _admit(self, sock: socket.socket, host: str) -> None:
        if not self.limits.enter(host):
            self._refused("per_ip")
            sock.close()
            return
        quotas = self.dispatcher.broker.quotas
        pause = quotas.connected(host) if quotas is not None else 0.0
        if pause > 0:
            # As Kafka: it is not served, and it learns that late, so that trying again at once brings nothing.
            self._refused("ip_rate")
            self.loop.call_later(min(pause, LONGEST_HOLD_SECONDS), self._let_go, sock, host)
            return
        self._opened.value += 1
        self.creation.take()
        self.limits.creation.take()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        try:
            connection = self._new_connection(sock, host)
        except OSError:  # the client is gone already
            self.limits.leave(host)
            sock.close()
            return
        self.connections.add(connection)
        connection.start_reading()

    def _let_go(self, sock: socket.socket, host: str) -> None:
        sock.close()
        self.limits.leave(host)

    def _new_connection(self, sock: socket.socket, host: str) -> Connection:
        if self.tls is None:
            return Connection(sock, host, self, self.dispatcher)
        from penstock.broker.network.tls import TlsConnection

        return TlsConnection(sock, host, self, self.dispatcher)

    def connection_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        was_full = self.limits.full or len(self.connections) + 1 >= self.max_connections
        self.limits.leave(connection.client_host)
        if was_full:
            self.dispatcher.accept_again()

    def _refused(self, reason: str) -> None:
        self.dispatcher.stats.metrics.cell("connections_refused", reason).value += 1

    def expire_idle(self, now: float, max_idle_seconds: float) -> None:
        """Close connections on which nothing happened for too long, also those whose clients do not read their answers;
        give large buffers of quiet ones back."""
        for connection in list(self.connections):
            quiet = now - connection.last_active
            if quiet > max_idle_seconds > 0 and (connection.idle or connection.stalled):
                connection.close()
                self._refused("idle")
            elif quiet > 5.0:
                connection.shrink()


def _bound_socket(host: str, port: int) -> socket.socket:
    if not host and socket.has_ipv6:
        # One socket for both families: clients of "localhost" come by either.
        try:
            return _bind(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (97, 99):  # no IPv6 on this machine
                raise
    if not host:
        return _bind(socket.AF_INET, "0.0.0.0", port)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _bind(family, str(address[0]), port)


def _bind(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
