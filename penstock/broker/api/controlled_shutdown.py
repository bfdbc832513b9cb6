"""ControlledShutdown (key 10001, our own): a broker that is about to stop asks the controller to move its leaderships.

Between brokers only. Kafka's message of that name (key 7) is gone since 4.0; ours says the same in JSON: the broker's
id and epoch in, the partitions that nobody else can lead out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.peer_calls import CONTROLLED_SHUTDOWN_FORMAT, CONTROLLED_SHUTDOWN_KEY, answer_controlled_shutdown
from penstock.protocol.message_compiler import MalformedMessage

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

API = ApiSpec(
    CONTROLLED_SHUTDOWN_KEY,
    "ControlledShutdown",
    0,
    CONTROLLED_SHUTDOWN_FORMAT,
    inter_broker_only=True,
    first_flexible_version=0,
)


def decode_request(version: int, data: bytes) -> bytes:
    if not data.startswith(b"{"):
        raise MalformedMessage("not a controlled shutdown")
    return data


def encode_response(version: int, body: bytes) -> bytes:
    return body


async def handle(broker: Broker, ctx: RequestContext, request: bytes) -> bytes:
    return await answer_controlled_shutdown(
        broker.controller, request, lambda broker_id: broker.dispatcher.speaks_for(ctx.connection, broker_id)
    )
