"""FenceWriter (key 10003, our own): a transaction was taken over as it is; its former writer may add nothing more.

Between brokers only: the transaction's coordinator tells the leaders of its partitions (`broker.writer_fences`). JSON,
as the other messages of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.writer_fences import FENCE_WRITER_FORMAT, FENCE_WRITER_KEY, answer_fence
from penstock.protocol.message_compiler import MalformedMessage

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

API = ApiSpec(
    FENCE_WRITER_KEY,
    "FenceWriter",
    0,
    FENCE_WRITER_FORMAT,
    inter_broker_only=True,
    first_flexible_version=0,
)


def decode_request(version: int, data: bytes) -> bytes:
    if not data.startswith(b"{"):
        raise MalformedMessage("not a fence")
    return data


def encode_response(version: int, body: bytes) -> bytes:
    return body


async def handle(broker: Broker, ctx: RequestContext, request: bytes) -> bytes:
    return answer_fence(
        broker, bytes(request), lambda broker_id: broker.dispatcher.speaks_for(ctx.connection, broker_id)
    )
