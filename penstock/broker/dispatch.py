"""From a frame to its handler, and from the end of a wake-up to the disk and the sockets.

One wake-up of the loop: every readable connection hands in its frames; hot handlers act at once (appends are only
staged); then `flush` writes each touched log once, completes the produces, and sends once per connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from penstock.broker.cold_requests import ColdRequests
from penstock.broker.network.connection import Connection, Slot
from penstock.broker.network.large_messages import LargeMessages
from penstock.broker.network.memory import RequestMemory
from penstock.broker.network.outbox import FileRegion, Outbox
from penstock.broker.network.wire import (
    UNREADABLE,
    MalformedFrame,
    NotYet,
    skip_tagged_fields,
)
from penstock.broker.routes import API_VERSIONS, CARRY_BYTES, Route, frame
from penstock.security.broker_proof import PROOF_KEY

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger(__name__)

_BEFORE_AUTHENTICATION = frozenset({17, API_VERSIONS, 36})

_MAY_BE_LARGE = CARRY_BYTES | {0, 8}  # and those that look for themselves

_HEADER = Struct(">hhih").unpack_from
_KEY = Struct(">h").unpack_from


def _skip_header_tags(buffer: Any, position: int, end: int) -> int:
    try:
        return skip_tagged_fields(buffer, position, end)
    except UNREADABLE as error:
        raise MalformedFrame(f"request header: {error}") from error


class Dispatcher:
    """All connections of a broker meet here."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.stats = broker.stats
        self.max_request_bytes: int = broker.settings["socket.request.max.bytes"]
        self.large = LargeMessages(self)
        self.cold = ColdRequests(self)
        self.memory = RequestMemory(broker.settings["queued.max.request.bytes"])
        self.dirty_connections: list[Connection] = []
        self.before_send: list[Callable[[], None]] = []  # run by every flush: write the logs, complete the produces
        self.now = self.coarse_time = time.monotonic()
        self.tasks: set[asyncio.Task[None]] = set()
        # Only while a cluster is upgraded from a release whose brokers cannot prove themselves; a node alone has none.
        accepts = broker.settings["penstock.inter.broker.secret"] == "accept"
        self.accepts_unproven: bool = accepts and not broker.settings.embedded
        self.long_polls: set[Any] = set()  # parked fetches
        self.draining = False
        self.held: set[Connection] | None = None  # clients that wait for the first image; None: it is here
        self.flush_scheduled = False
        self.routes: dict[int, Route] = {}
        for registered in broker.registry.apis.values():
            spec = registered.spec
            route = Route(spec, registered.module, self.stats.api(spec.key, spec.name))
            route.max_version = spec.highest_version(broker.settings)
            make_hot = getattr(registered.module, "hot_handler", None)
            self.routes[spec.key] = route
            if make_hot is not None:
                route.hot = route.plain = make_hot(self, route)

    def meter_requests(self, wanted: bool) -> None:
        """Quotas were set, or the last one was taken away."""
        from penstock.broker.quota_metering import metered_by_time

        for route in self.routes.values():
            if route.plain is not None:
                if wanted and route.metered is None:
                    route.metered = metered_by_time(self, route, route.plain)
                route.hot = route.metered if wanted else route.plain

    def wake_up(self) -> float:
        self.now = self.coarse_time = now = time.monotonic()
        return now

    # Frames in -------------------------------------------------------------------------------------------------

    def dispatch(self, connection: Connection, position: int, end: int) -> None:
        buffer = connection.buffer
        if end - position < 10:
            raise MalformedFrame("shorter than a request header")
        api_key, version, correlation_id, client_id_bytes = _HEADER(buffer, position)
        self.header_position = position
        position += 10
        if client_id_bytes > 0:
            position += client_id_bytes
        route = self.routes.get(api_key)
        if route is None:
            logger.info("closing client=%s: unknown API key %d", connection.client_host, api_key)
            connection.close()
            return
        if version < route.min_version or version > route.max_version:
            self._refuse_version(connection, api_key, version, correlation_id)
            return
        if version >= route.first_flexible:
            if position < end and buffer[position] == 0:
                position += 1
            else:
                position = _skip_header_tags(buffer, position, end)
        if position > end:
            raise MalformedFrame("header runs over the frame")
        if not connection.admitted:
            if not self._may_call(connection, route, api_key):
                connection.close()
                return
            if self.held is not None and not (route.spec.inter_broker_only or api_key in _BEFORE_AUTHENTICATION):
                self.held.add(connection)
                raise NotYet
        route.stats.request_bytes.value += end - self.header_position + 4
        if route.hot is not None:
            route.hot(connection, version, correlation_id, position, end)
        else:
            self.cold.start(connection, route, version, correlation_id, position, end)

    def admit_large(self, buffer: Any, position: int, size: int) -> None:
        """Half of a large frame is here: what will be refused for its size need not come to its end."""
        (api_key,) = _KEY(buffer, position)
        if api_key not in _MAY_BE_LARGE:
            raise MalformedFrame(f"request of {size} bytes with API key {api_key}")

    def contents_matter(self, connection: Connection, held: int, end: int) -> bool:
        """Whether the rest of a large frame, of which `held` bytes are here, can change anything."""
        api_key, version, _, client_id_bytes = _HEADER(connection.buffer, 4)
        route = self.routes.get(api_key)
        position = 14 + max(client_id_bytes, 0)
        if route is None or route.contents_matter is None or not route.min_version <= version <= route.max_version:
            return True
        if version >= route.first_flexible:
            if position >= held or connection.buffer[position] != 0:
                return True
            position += 1
        return route.contents_matter(connection, version, position, held, end)

    def hold_clients(self) -> None:
        """Let only other brokers in until `release_clients`. In a cluster the listeners open before the first image is
        here, and a client that is told of no brokers gives up for a minute."""
        self.held = set()
        for listener in self.broker.listeners:
            listener.open_access = False

    def release_clients(self) -> None:
        held, self.held = self.held or set(), None
        for listener in self.broker.listeners:
            listener.open_access = not listener.needs_sasl and not listener.is_control
            for connection in listener.connections:
                session = connection.sasl
                lasting = session is not None and connection.authenticated and session.expires_at is None
                connection.admitted = listener.open_access or (lasting and not listener.is_control)
        for connection in held:
            connection.unmute()

    def _may_call(self, connection: Connection, route: Route, api_key: int) -> bool:
        if api_key in _BEFORE_AUTHENTICATION:
            return True
        listener = connection.listener
        if listener.needs_sasl:
            session = connection.sasl
            if not connection.authenticated or session is None or session.expired:
                logger.info("closing client=%s: %s without a valid session", connection.client_host, route.spec.name)
                return False
        return route.spec.inter_broker_only or not listener.is_control

    def may_speak_as_broker(self, connection: Connection, route: Route) -> bool:
        """Internal messages are not even decoded before the other side has proven to be a broker."""
        known = route.spec.key == PROOF_KEY or connection.broker_id >= 0 or self.accepts_unproven
        if known and (connection.listener.is_inter_broker or connection.listener.is_control):
            return True
        logger.warning(
            "closing client=%s listener=%s: %s is for brokers that have proven who they are",
            connection.client_host,
            connection.listener.name,
            route.spec.name,
        )
        connection.close()
        return False

    def speaks_for(self, connection: Connection | None, broker_id: int) -> bool:
        """Whether requests of this connection may be those of that broker."""
        if connection is None:
            return False
        if connection.broker_id >= 0:
            return connection.broker_id == broker_id
        return self.accepts_unproven and (connection.listener.is_inter_broker or connection.listener.is_control)

    def _refuse_version(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        """ApiVersions tells the client what it may ask; for everything else Kafka closes the connection."""
        if api_key != API_VERSIONS:
            logger.info("closing client=%s: API key %d version %d", connection.client_host, api_key, version)
            connection.close()
            return
        slot = self.new_slot(connection, self.routes[API_VERSIONS])
        body = self.routes[API_VERSIONS].module.unsupported_version_body(self.broker)
        slot.parts = frame(correlation_id, False, body)
        connection.mark_dirty()

    def client_id(self, connection: Connection) -> str:
        """Client id of the request in dispatch; only valid until the handler returns."""
        position = self.header_position + 8
        size = int.from_bytes(connection.view[position : position + 2], "big", signed=True)
        return str(connection.view[position + 2 : position + 2 + size], "utf-8", "replace") if size > 0 else ""

    def new_slot(self, connection: Connection, route: Route) -> Slot:
        slot = Slot(self.now, route.stats)
        connection.slots.append(slot)
        return slot

    def refuse_malformed(self, connection: Connection, error: Exception) -> None:
        logger.info("closing client=%s: %s", connection.client_host, error)
        self.stats.malformed.value += 1
        connection.close()

    # The end of a wake-up ----------------------------------------------------------------------------------------

    def schedule_flush(self) -> None:
        if not self.flush_scheduled:
            self.flush_scheduled = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flush_scheduled = False
        for step in self.before_send:
            step()
        connections, self.dirty_connections = self.dirty_connections, []
        now = time.monotonic()
        for connection in connections:
            connection.flush(now)

    def count_unread(self, connection: Connection, outbox: Outbox) -> None:
        """A client does not take its answers as fast as they come."""
        self.memory.hold_unread(connection, outbox.memory_bytes)
        if self.memory.crowded:
            self.shed_unread()

    def shed_unread(self) -> None:
        """Close those whose unread answers are too much, or are waited for."""
        stalled = [one for listener in self.broker.listeners for one in listener.connections if one.stalled]
        closed = self.memory.shed(stalled, time.monotonic())
        self.stats.metrics.cell("connections_refused", "unread").value += closed

    def end_long_polls(self) -> None:
        """The broker stops: answer what only waits for more data."""
        for parked in list(self.long_polls):
            parked.finish()

    def access_changed(self) -> None:
        """Other ACLs hold from now on: nobody goes on by what he was allowed before."""
        for listener in self.broker.listeners:
            for connection in listener.connections:
                connection.produce_shape = None
        for parked in list(self.long_polls):
            if parked.lost_access():
                parked.finish()

    def accept_again(self) -> None:
        """A connection closed while the broker was full."""
        if not self.draining:
            for listener in self.broker.listeners:
                listener.start_accepting()

    def warm(self, connection: Connection, region: FileRegion | None) -> None:
        """Read a cold region in a thread, then send on."""
        assert region is not None
        warming = self.loop.run_in_executor(None, region.warm)

        def warmed(done: asyncio.Future[None]) -> None:
            if done.exception() is not None:
                logger.error("reading a segment failed: %s", done.exception())
                connection.close()
            elif not connection.closed:
                connection.warmed()

        warming.add_done_callback(warmed)
