"""Which address to tell a client for a broker: of the listener it came by, and for ourselves the one it reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.network.connection import Connection
    from penstock.broker.produce.codec import Leader


def broker_address(broker: Broker, connection: Connection, broker_id: int) -> tuple[str, int, str | None] | None:
    """(host, port, rack) of a live broker for this client; None if it is gone or has no such listener."""
    registration = broker.image.brokers.get(broker_id)
    if registration is None:
        return None
    if broker_id == broker.node_id and not connection.listener.advertised:
        # Nobody told us our name: the address by which this client came works for it.
        host, port = connection.local_address
        return host, port, registration.rack
    endpoint = registration.endpoints.get(connection.listener.name)
    if endpoint is None:
        return None
    return endpoint.host, endpoint.port, registration.rack


def leader_hints(
    broker: Broker, connection: Connection, partitions: list[tuple[bytes, str | None, int]]
) -> dict[tuple[bytes, int], Leader]:
    """Current leaders of (wire name, topic, index), for answers that tell a client it asked the wrong broker."""
    hints: dict[tuple[bytes, int], Leader] = {}
    for name, topic, index in partitions:
        registration = broker.image.partition(topic, index) if topic is not None else None
        if registration is None or registration.leader < 0:
            continue
        address = broker_address(broker, connection, registration.leader)
        if address is not None:
            hints[(name, index)] = (registration.leader, registration.leader_epoch, *address)
    return hints
