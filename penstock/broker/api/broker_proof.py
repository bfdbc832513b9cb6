"""BrokerProof (key 10002, our own): a broker proves which one it is before it may speak as one. Between brokers only.

Two rounds: a hello with id and nonce is answered with our nonce and MAC, then comes the other's MAC. What is proven
belongs to the connection. On a listener with authentication the connection's principal must be a broker's as well.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.messages import MalformedMessage
from penstock.security.broker_proof import MAX_MESSAGE_BYTES, PROOF_KEY, ProofFailed, Receiver, read_message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.network.connection import Connection

logger = logging.getLogger(__name__)

API = ApiSpec(PROOF_KEY, "BrokerProof", 0, 0, inter_broker_only=True, first_flexible_version=0)


def decode_request(version: int, data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedMessage("a proof message is too long")
    return data


def encode_response(version: int, body: bytes) -> bytes:
    return body


async def handle(broker: Broker, ctx: RequestContext, request: bytes) -> bytes:
    connection = ctx.connection
    assert connection is not None
    try:
        return await _answer(broker, ctx, connection, request)
    except ProofFailed as error:
        logger.warning("client=%s principal=%s is no proven broker: %s", ctx.client_host, ctx.principal, error)
        connection.proof = None
        return json.dumps({"refused": str(error)}).encode()


async def _answer(broker: Broker, ctx: RequestContext, connection: Connection, request: bytes) -> bytes:
    body = read_message(request)
    keeper = broker.secret_keeper
    if keeper is None:
        raise ProofFailed("a node alone has no other brokers")
    if not broker.inter_broker.is_broker_principal(ctx):
        raise ProofFailed(f"{ctx.principal} is not the principal of a broker")
    if connection.proof is None:
        await keeper.find(str(body.get("secret"))[:64])
        receiver = Receiver(keeper.secrets.find, broker.cluster_id, broker.node_id)
        answer = receiver.greet(body)
        connection.proof = receiver
        return answer
    receiver, connection.proof = connection.proof, None
    connection.broker_id = receiver.check(body)
    connection.access = None  # a broker may more than whoever it seemed to be before
    return b"{}"
