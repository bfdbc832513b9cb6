"""ControlledShutdown (key 10001, our own): a broker that stops asks the controller to move its leaderships first.

Between brokers only. The codec is that of `cluster.peer_calls`; a broker that is not the active controller says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.peer_calls import CONTROLLED_SHUTDOWN_FORMAT, CONTROLLED_SHUTDOWN_KEY
from penstock.protocol.messages import MalformedMessage

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

API = ApiSpec(
    CONTROLLED_SHUTDOWN_KEY,
    "ControlledShutdown",
    CONTROLLED_SHUTDOWN_FORMAT,
    CONTROLLED_SHUTDOWN_FORMAT,
    inter_broker_only=True,
    first_flexible_version=0,
)


async def handle(broker: Broker, ctx: RequestContext, request: bytes) -> bytes:
    from penstock.cluster.peer_calls import answer_controlled_shutdown

    return await answer_controlled_shutdown(broker.controller, request)


def decode_request(version: int, data: bytes) -> bytes:
    import json

    try:
        body = json.loads(data)
        int(body["broker_id"]), int(body["broker_epoch"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedMessage(f"not a request for a controlled shutdown: {error!r}") from error
    return data


def encode_response(version: int, response: bytes) -> bytes:
    return response
