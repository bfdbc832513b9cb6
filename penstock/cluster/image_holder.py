"""The broker's side of the image: takes what the controller pushes, refuses what is stale, tells whoever reacts.

Publishers run one after the other in the order in which they subscribed, and the controller gets its acknowledgement
only when all of them are done: an acknowledged image is an applied one, and `image` is the newest that everybody here
has taken in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from penstock.cluster.image import ImageDelta, MetadataImage, delta_between, in_parts
from penstock.cluster.image_codec import ImagePush, ImagePushAnswer
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

PARTITIONS_PER_PART = 16

T = TypeVar("T")
Publisher = Callable[[ImageDelta, MetadataImage], Awaitable[None] | None]


class ControllerOvertaken(ConnectionError):
    """A newer controller is known than the one that was asked: its answer is not worth waiting for."""


def _nothing_more_to_do() -> None:
    """Publishers have done it all."""


class ImageHolder:
    def __init__(self, cluster_id: str = "") -> None:
        self.image = MetadataImage(cluster_id=cluster_id)
        self.broker_epoch = -1
        """Epoch of this broker's current registration; pushes that mean another one are refused."""
        self.offline_replicas: Callable[[], Iterable[tuple[str, int]]] = tuple
        self.given_up_replicas: Callable[[], Iterable[tuple[str, int]]] = tuple
        self.unmade_replicas: Callable[[], Iterable[tuple[str, int]]] = tuple
        self.reaches_controller: Callable[[], bool] = lambda: True
        """What the controller is told with each acknowledgement; see ImagePushAnswer."""
        self.when_taken_in: Callable[[], None] = _nothing_more_to_do
        """Called after every image, when all of its parts have been published."""
        self._publishers: list[Publisher] = []
        self._told_late: list[asyncio.Future[None]] = []
        self._applying = asyncio.Lock()
        self._changed: asyncio.Future[None] | None = None
        self._heard_s: float | None = None

    def subscribe(self, publisher: Publisher) -> None:
        """Who comes late is told everything that is there at once, and from then on what changes."""
        self._publishers.append(publisher)
        if self.image.version >= 0:
            waiting = publisher(delta_between(MetadataImage(), self.image), self.image)
            if waiting is not None:
                self._told_late.append(asyncio.ensure_future(waiting))

    async def receive(self, push: ImagePush) -> ImagePushAnswer:
        """Apply a full image or a delta, or say why not and where this broker stands."""
        if push.full is None and push.delta is not None and push.delta.is_empty:
            code, needs_full = self._stale(push), False  # a sign of life is asked for: also while an image is taken in
        else:
            async with self._applying:
                code, needs_full = await self._take(push)
        if code == ErrorCode.NONE:
            self._heard_s = asyncio.get_running_loop().time()
        return ImagePushAnswer(
            code,
            self.image.controller_epoch,
            self.image.version,
            needs_full,
            tuple(sorted(self.offline_replicas())),
            tuple(sorted(self.given_up_replicas())),
            self.reaches_controller(),
            tuple(sorted(self.unmade_replicas())),
        )

    async def close(self) -> None:
        """Take nothing more: the logs are about to be closed, and a replica that is not found then is not lost."""
        async with self._applying:
            self.broker_epoch = -1

    @property
    def controller_silence_s(self) -> float:
        """How long ago a controller was heard last. A broker that hears none goes on with what it knows: nothing
        counts as committed that the recorded ISR does not have."""
        return asyncio.get_running_loop().time() - self._heard_s if self._heard_s is not None else 0.0

    def _stale(self, push: ImagePush) -> int:
        image = self.image
        if image.cluster_id and push.cluster_id != image.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if push.controller_epoch < image.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if push.broker_epoch != self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    async def _take(self, push: ImagePush) -> tuple[int, bool]:
        image = self.image
        stale = self._stale(push)
        if stale:
            return stale, False
        if push.full is not None:
            if image.is_behind(push.full.controller_epoch, push.full.version):
                full = push.full.keeping_unreadable(image)
                await self._publish(delta_between(image, full), full)
            return ErrorCode.NONE, False
        delta = push.delta
        if delta is None or delta.controller_epoch != image.controller_epoch or delta.base_version > image.version:
            return ErrorCode.NONE, True
        if delta.version > image.version:
            if delta.base_version != image.version:
                return ErrorCode.NONE, True
            await self._publish(delta, image.apply(delta))
        return ErrorCode.NONE, False

    async def _publish(self, delta: ImageDelta, image: MetadataImage) -> None:
        """Large deltas go out in parts: thousands of new replicas must not keep the loop from everything else."""
        publishers = list(self._publishers)
        for part in in_parts(delta, PARTITIONS_PER_PART):
            for publisher in publishers:
                await self._tell(publisher, part, image)
            if part is not delta:
                await asyncio.sleep(0)
        self.image = image
        for late in self._publishers[len(publishers) :]:  # subscribed meanwhile, and told the image before this one
            await self._tell(late, delta, image)
        self.when_taken_in()
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def _tell(self, publisher: Publisher, delta: ImageDelta, image: MetadataImage) -> None:
        try:
            waiting = publisher(delta, image)
            if waiting is not None:
                await waiting
        except Exception:
            # One room's bug must not keep the others from learning who leads.
            logger.exception("a part of this broker failed to take in image version %d", image.version)

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """True as soon as the image satisfies the condition, False when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition(self.image):
            if self._changed is None or self._changed.done():
                self._changed = loop.create_future()
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(self._changed)
            except TimeoutError:
                return condition(self.image)
        return True

    async def while_controller_stays(self, call: Awaitable[T]) -> T:
        """The outcome of a call to the controller of the present image. A frozen one would keep its caller waiting long
        after its successor could have answered: ControllerOvertaken as soon as that one has told us of itself."""
        asked = asyncio.ensure_future(call)
        epoch = self.image.controller_epoch
        try:
            while not asked.done():
                if self._changed is None or self._changed.done():
                    self._changed = asyncio.get_running_loop().create_future()
                first: tuple[asyncio.Future[Any], ...] = (asked, self._changed)
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
                newest = self.image.controller_epoch
                if not asked.done() and newest != epoch:
                    raise ControllerOvertaken(f"controller epoch {epoch} is over, {newest} is known")
            return await asked
        finally:
            asked.cancel()
