"""Internal messages of a broker to the controller, over the inter-broker listener: ControlledShutdown (API key
10001)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock.base.outside_json import load_json
from penstock.client.errors import ClientError
from penstock.cluster.controller_driver import ControllerDriver, NotController
from penstock.cluster.events import ControlledShutdownAnswer
from penstock.cluster.image import BrokerRegistration, MetadataImage
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.client.connection import Connection

CONTROLLED_SHUTDOWN_KEY = 10001
CONTROLLED_SHUTDOWN_FORMAT = 0


Dial = Callable[[BrokerRegistration, str], Awaitable["Connection"]]
"""A connection to a broker's inter-broker listener, proven on both sides, under a client id."""


async def ask_for_controlled_shutdown(
    image: MetadataImage, dial: Dial, broker_id: int, broker_epoch: int
) -> ControlledShutdownAnswer:
    """Ask whoever is controller; raises OSError when it cannot be asked."""
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        raise ConnectionError("no controller is known")
    try:
        connection = await dial(controller, "penstock-shutdown")
        try:
            body = json.dumps({"broker_id": broker_id, "broker_epoch": broker_epoch}).encode()
            data = await connection.request_bytes(CONTROLLED_SHUTDOWN_KEY, CONTROLLED_SHUTDOWN_FORMAT, body)
        finally:
            connection.close()
    except ClientError as error:
        raise ConnectionError(str(error)) from error
    answer: dict[str, Any] = json.loads(bytes(data))
    remaining = tuple((str(topic), int(index)) for topic, index in answer["remaining"])
    return ControlledShutdownAnswer(int(answer["error_code"]), remaining)


async def answer_controlled_shutdown(
    controller: ControllerDriver, body: bytes | memoryview, may_speak_for: Callable[[int], bool]
) -> bytes:
    """The controller's side: body in, body of the answer out."""
    try:
        request = load_json(bytes(body))
        broker_id, broker_epoch = int(request["broker_id"]), int(request["broker_epoch"])
    except (ValueError, KeyError, TypeError):
        return json.dumps({"error_code": int(ErrorCode.INVALID_REQUEST), "remaining": []}).encode()
    if not may_speak_for(broker_id):
        return json.dumps({"error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "remaining": []}).encode()
    try:
        answer = await controller.controlled_shutdown(broker_id, broker_epoch)
    except NotController:
        answer = ControlledShutdownAnswer(ErrorCode.NOT_CONTROLLER)
    return json.dumps({"error_code": int(answer.error_code), "remaining": answer.remaining}).encode()
