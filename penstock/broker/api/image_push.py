"""ImagePush (key 10000, our own): the controller brings a broker to the newest metadata image. Between brokers only.

The version of the message is the format of `cluster.image_codec`. What is stale (controller epoch, broker epoch,
another cluster) is refused there; an accepted image is applied before it is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.image_codec import FORMAT, IMAGE_PUSH_KEY, OLDEST_FORMAT
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import MalformedMessage

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.image_codec import ImagePush, ImagePushAnswer

API = ApiSpec(IMAGE_PUSH_KEY, "ImagePush", OLDEST_FORMAT, FORMAT, inter_broker_only=True, first_flexible_version=0)


async def handle(broker: Broker, ctx: RequestContext, request: ImagePush) -> ImagePushAnswer:
    from penstock.cluster.image_codec import ImagePushAnswer

    if not broker.dispatcher.speaks_for(ctx.connection, request.controller_id):
        image = broker.image_holder.image
        return ImagePushAnswer(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), image.controller_epoch, image.version)
    return await broker.image_holder.receive(request)


def decode_request(version: int, data: bytes) -> ImagePush:
    from penstock.cluster.image_codec import ImageFormatError, decode_push

    try:
        return decode_push(data)
    except ImageFormatError as error:
        raise MalformedMessage(f"not an image of format {version}: {error}") from error


def encode_response(version: int, response: ImagePushAnswer) -> bytes:
    from penstock.cluster.image_codec import encode_answer

    return encode_answer(response)
