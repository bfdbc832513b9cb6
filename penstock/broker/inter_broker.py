"""Connections from this broker to others, over the inter-broker listener; one each, opened on first use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from penstock.broker.network.connection_limits import plain_host
from penstock.security.authentication import inter_broker_security
from penstock.security.broker_proof import PROOF_FEATURE, PROOF_KEY, Dialler, ProofFailed, read_message
from penstock.security.principal import ANONYMOUS, USER, Principal

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker
    from penstock.client.connection import Connection
    from penstock.client.security import Security
    from penstock.cluster.image import BrokerRegistration


class InterBroker:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[int, Connection] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def dial(self, registration: BrokerRegistration, client_id: str, listener: str | None = None) -> Connection:
        """A connection of the caller's own to a broker that has proven who it is, as we have."""
        from penstock.client.connection import Connection

        name = listener or self._broker.settings.inter_broker_listener
        endpoint = registration.endpoints.get(name)
        if endpoint is None:
            raise ConnectionError(f"broker {registration.broker_id} has no listener {name}")
        connection = await Connection.open(endpoint.host, endpoint.port, client_id, self.security(name))
        try:
            await self._prove(connection, registration)
        except BaseException:
            connection.close()
            raise
        return connection

    async def dial_control(self, registration: BrokerRegistration, client_id: str) -> Connection:
        """The same over the controller's own listener, where there is one."""
        return await self.dial(registration, client_id, self._broker.settings.control_plane_listener)

    async def _prove(self, connection: Connection, registration: BrokerRegistration) -> None:
        broker = self._broker
        if PROOF_FEATURE not in registration.features:
            if broker.settings["penstock.inter.broker.secret"] == "accept":
                return
            raise ConnectionError(
                f"broker {registration.broker_id} is of a release that cannot prove who it is: set"
                " penstock.inter.broker.secret=accept until all brokers are upgraded"
            )
        assert broker.secret_keeper is not None
        dialler = Dialler(broker.secret_keeper.secrets, broker.cluster_id, broker.node_id, registration.broker_id)
        try:
            proof = dialler.finish(await connection.request_bytes(PROOF_KEY, 0, dialler.hello()))
            refused = read_message(await connection.request_bytes(PROOF_KEY, 0, proof)).get("refused")
        except ProofFailed as error:
            raise ConnectionError(str(error)) from error
        if refused:
            raise ConnectionError(f"broker {registration.broker_id} refused the proof: {str(refused)[:200]}")

    async def introduce(self, connection: Connection) -> None:
        """Makes a connection that a client of ours opened known as this broker's."""
        broker = self._broker
        for registration in broker.image.brokers.values():
            endpoint = registration.endpoints.get(broker.settings.inter_broker_listener)
            reached = endpoint is not None and (endpoint.host, endpoint.port) == (connection.host, connection.port)
            if reached and registration.broker_id != broker.node_id:
                await self._prove(connection, registration)
                return
        # To ourselves no proof is needed: we see both ends. Both have to fit, for another program may call another of
        # our listeners from a port of the same number.
        for listener in broker.listeners:
            for other in listener.connections:
                with contextlib.suppress(OSError):  # it is closed already
                    host, port = other.sock.getpeername()[:2]
                    here = other.sock.getsockname()[1]
                    if (plain_host(host), port) == connection.local_address and here == connection.port:
                        other.broker_id, other.access = broker.node_id, None

    def is_broker_principal(self, ctx: RequestContext) -> bool:
        """Where connections are authenticated, a broker must also have a broker's name."""
        broker, connection = self._broker, ctx.connection
        assert connection is not None
        listener = connection.listener
        if not listener.needs_sasl and ctx.principal == ANONYMOUS:
            return True  # nobody has a name here: the proof is all there is
        if listener.needs_sasl:
            own = self.security(listener.name)
            if own is not None and ctx.principal == Principal(USER, own.username or ""):
                return True
        elif broker.authorizer is None:
            return True  # certificates name each broker otherwise, and nobody said which names are brokers'
        if broker.authorizer is None or (
            broker.settings["allow.everyone.if.no.acl.found"]
            and str(ctx.principal) not in broker.authorizer.rules.super_users
        ):
            return False  # what everybody may do makes nobody a broker
        return bool(broker.authorizer.authorize(ctx, "CLUSTER_ACTION", "CLUSTER", "kafka-cluster"))

    def address(self, node_id: int) -> tuple[str, int]:
        """Where brokers reach `node_id`; ConnectionError if it is not registered."""
        registration = self._broker.image.brokers.get(node_id)
        name = self._broker.settings.inter_broker_listener
        endpoint = None if registration is None else registration.endpoints.get(name)
        if endpoint is None:
            raise ConnectionError(f"broker {node_id} has no listener {name}")
        return endpoint.host, endpoint.port

    async def open(self, node_id: int) -> Connection:
        """A connection of the caller's own."""
        registration = self._broker.image.brokers.get(node_id)
        if registration is None:
            raise ConnectionError(f"broker {node_id} is not registered")
        return await self.dial(registration, f"broker-{self._broker.node_id}")

    async def connect(self, node_id: int) -> Connection:
        """The shared connection to a broker, opened anew when it was lost or the broker moved."""
        async with self._locks.setdefault(node_id, asyncio.Lock()):
            known = self._connections.get(node_id)
            host, port = self.address(node_id)
            same = known is not None and (known.host, known.port) == (host, port)
            if known is not None and same and not known.closed and not known.expired:
                return known
            connection = self._connections[node_id] = await self.open(node_id)
            return connection

    async def alter_partition(self, request: Any) -> Any:
        """Send an AlterPartition to whoever is controller now; a call where that is this broker."""
        from penstock.broker.api.alter_partition import event_of, response_of
        from penstock.client.errors import ClientError
        from penstock.cluster.controller_driver import NotController

        broker = self._broker
        if broker.controller.is_active:
            try:
                return response_of(await broker.controller.alter_partition(event_of(request)))
            except NotController as error:
                raise ConnectionError("this broker is no longer the controller") from error
        try:
            return await broker.image_holder.while_controller_stays(self._ask_controller(request))
        except ClientError as error:
            raise ConnectionError(str(error)) from error

    async def _ask_controller(self, request: Any) -> Any:
        connection = await self.connect(self._broker.image.controller_id)
        # Not advertised (ApiVersions lists what clients may use): brokers know that they speak it.
        return await connection.request("alter_partition", request, version=3)

    def security(self, listener: str | None = None) -> Security | None:
        """How to speak on the inter-broker (or another) listener as the settings say now; None: plain text."""
        settings = self._broker.settings
        name = listener or settings.inter_broker_listener
        protocol = next((found.protocol for found in settings.listeners if found.name == name), "PLAINTEXT")
        return inter_broker_security(settings, name, protocol)

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
