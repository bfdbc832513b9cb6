"""The controller's side of the image: one channel per broker that brings it to the newest image and keeps it there.

A channel begins with the full image, goes on with deltas, and falls back to the full image after a lost connection,
when the broker says that a delta does not fit, or when too many deltas wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from penstock.client.errors import ClientError
from penstock.cluster.image import BrokerRegistration, ImageDelta, MetadataImage
from penstock.cluster.image_codec import (
    IMAGE_PUSH_KEY,
    ImageFormatError,
    ImagePush,
    ImagePushAnswer,
    decode_answer,
    encode_push,
    format_for,
)
from penstock.cluster.liveness import LivenessTimes
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.client.connection import Connection

logger = logging.getLogger(__name__)

MAX_WAITING_DELTAS = 256
RETRY_SECONDS = 0.2
PUSH_TIMEOUT_SECONDS = 30.0


class PushTransport(Protocol):
    """Carries pushes to one broker."""

    async def push(self, push: ImagePush) -> ImagePushAnswer: ...

    def close(self) -> None: ...


class LocalTransport:
    """The controller's own broker: the push is a call."""

    def __init__(self, receive: Callable[[ImagePush], Awaitable[ImagePushAnswer]]) -> None:
        self._receive = receive

    async def push(self, push: ImagePush) -> ImagePushAnswer:
        return await self._receive(push)

    def close(self) -> None:
        pass


class RemoteTransport:
    """Another broker, over its inter-broker listener."""

    def __init__(
        self, broker: BrokerRegistration, dial: Callable[[BrokerRegistration, str], Awaitable[Connection]]
    ) -> None:
        self._broker = broker
        self._dial = dial
        self._connection: Connection | None = None

    async def push(self, push: ImagePush) -> ImagePushAnswer:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = await self._dial(self._broker, "penstock-controller")
        version = format_for(self._broker)
        data = await connection.request_bytes(
            IMAGE_PUSH_KEY, version, encode_push(push, version), timeout_s=PUSH_TIMEOUT_SECONDS
        )
        return decode_answer(data)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class BrokerChannel:
    """Pushes to one registration of one broker. `acknowledged` is called with each answer: what it has applied, and
    which of its replicas are off line."""

    def __init__(
        self,
        broker: BrokerRegistration,
        transport: PushTransport,
        current_image: Callable[[], MetadataImage],
        acknowledged: Callable[[BrokerRegistration, ImagePushAnswer], None],
        refused: Callable[[BrokerRegistration, int], None],
        heartbeats: PushTransport,
        times: LivenessTimes,
        unheard: Callable[[BrokerRegistration, bool], None],
    ) -> None:
        self.broker = broker
        self._heartbeats = heartbeats
        self._times = times
        self._unheard = unheard
        self._transport = transport
        self._current_image = current_image
        self._acknowledged = acknowledged
        self._refused = refused
        self._waiting: deque[ImageDelta] = deque()
        self._needs_full = True
        self._wake = asyncio.Event()
        self._wake.set()
        self._task = asyncio.ensure_future(self._run())
        self._beating = asyncio.ensure_future(self._beat())

    def offer(self, delta: ImageDelta) -> None:
        if not self._needs_full:
            self._waiting.append(delta)
            if len(self._waiting) > MAX_WAITING_DELTAS:
                self._start_over()
        self._wake.set()

    async def close(self) -> None:
        self._task.cancel()
        self._beating.cancel()
        await asyncio.gather(self._task, self._beating, return_exceptions=True)
        self._transport.close()
        self._heartbeats.close()

    async def _beat(self) -> None:
        """A sign of life at each interval, besides the image: taking that in may last long."""
        while True:
            await asyncio.sleep(self._times.heartbeat_s)
            image = self._current_image()
            nothing = ImageDelta(image.controller_id, image.controller_epoch, image.version, image.version)
            try:
                async with asyncio.timeout(self._times.timeout_s / 2):
                    answer = await self._heartbeats.push(self._envelope(delta=nothing))
            except (OSError, ClientError, ImageFormatError, TimeoutError) as error:
                logger.debug("broker %d gives no sign of life: %s", self.broker.broker_id, error)
                self._heartbeats.close()
                causes = (error, error.__cause__)
                self._unheard(self.broker, any(isinstance(cause, ConnectionRefusedError) for cause in causes))
                continue
            if answer.error_code == ErrorCode.NONE:
                self._acknowledged(self.broker, answer)
            elif answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._refused(self.broker, answer.error_code)

    def _start_over(self) -> None:
        self._needs_full = True
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._needs_full or self._waiting:
                try:
                    if not await self._push_next():
                        return
                except (OSError, ClientError, ImageFormatError, TimeoutError) as error:
                    logger.info("broker %d does not take the image yet: %s", self.broker.broker_id, error)
                    self._start_over()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _push_next(self) -> bool:
        """Send the full image or the oldest delta. False: this channel is of no use any more."""
        if self._needs_full:
            # From here on deltas queue up behind the full image that is being sent.
            self._needs_full = False
            self._waiting.clear()
            push = self._envelope(full=self._current_image())
        else:
            push = self._envelope(delta=self._waiting.popleft())
        answer = await self._transport.push(push)
        if answer.error_code != ErrorCode.NONE:
            self._refused(self.broker, answer.error_code)
            if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                # A broker that has registered but does not know it yet, or a life that is over: the watch tells.
                self._start_over()
                await asyncio.sleep(RETRY_SECONDS)
                return True
            return False
        if answer.needs_full:
            self._start_over()
        else:
            self._acknowledged(self.broker, answer)
        return True

    def _envelope(self, full: MetadataImage | None = None, delta: ImageDelta | None = None) -> ImagePush:
        image = full or self._current_image()
        return ImagePush(
            image.cluster_id, image.controller_id, image.controller_epoch, self.broker.epoch, full=full, delta=delta
        )
