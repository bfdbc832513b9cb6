"""Connections from this broker to others, over the inter-broker listener; one each, opened on first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.client.connection import Connection


class InterBroker:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[int, Connection] = {}
        self._locks: dict[int, asyncio.Lock] = {}

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
        from penstock.client.connection import Connection

        host, port = self.address(node_id)
        return await Connection.open(host, port, f"broker-{self._broker.node_id}", self.security())

    async def connect(self, node_id: int) -> Connection:
        """The shared connection to a broker, opened anew when it was lost or the broker moved."""
        async with self._locks.setdefault(node_id, asyncio.Lock()):
            known = self._connections.get(node_id)
            host, port = self.address(node_id)
            if known is not None and not known.closed and (known.host, known.port) == (host, port):
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

    def security(self) -> Any:
        """How to speak on the inter-broker listener; None: plain text."""
        return self._broker.inter_broker_security

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
