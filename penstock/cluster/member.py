"""One broker's membership in its cluster: identity, registration, image, controller, administration, in one place.

    member = ClusterMember(settings, store, clock)
    await member.join()                     # store session, cluster id, node id; before the listeners are opened
    member.images.subscribe(replicas.apply) # who reacts to (delta, image)
    await member.register(endpoints)        # now the others know where we are; returns with a first image
    …
    await member.leave()                    # controlled shutdown, then the registration goes

A store session that expires is begun anew and the broker registers again, under a new epoch; meanwhile it goes on
serving.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.base.clock import Clock, SystemClock
from penstock.base.settings import Settings
from penstock.cluster import znodes
from penstock.cluster.channels import LocalTransport, PushTransport, RemoteTransport
from penstock.cluster.configs import ConfigAdmin
from penstock.cluster.controller import ControllerPolicy
from penstock.cluster.controller_driver import ControllerDriver, NotController
from penstock.cluster.events import ControlledShutdownAnswer, TopicPartition
from penstock.cluster.image import BrokerRegistration, Endpoint, ImageDelta, MetadataImage
from penstock.cluster.image_codec import (
    FORMAT,
    IMAGE_FEATURE,
    OLDEST_FORMAT,
    ImagePushAnswer,
    decode_push,
    encode_answer,
)
from penstock.cluster.image_holder import ImageHolder
from penstock.cluster.liveness import LivenessTimes
from penstock.cluster.peer_calls import Dial, ask_for_controlled_shutdown
from penstock.cluster.producer_ids import ProducerIds
from penstock.cluster.topics import TopicAdmin
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import (
    ConnectionLost,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    StoreError,
    TreeStore,
)
from penstock.store.subscriptions import wait_until_deleted

if TYPE_CHECKING:
    from penstock.client.connection import Connection

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_IMAGE_SECONDS = 60.0
RETRY_SECONDS = 0.5
SHUTDOWN_ATTEMPTS = 3


class BrokerIdInUse(Exception):
    """Another broker holds this id; its registration did not go away within the session time-out."""


async def _nobody(broker: BrokerRegistration, client_id: str) -> Connection:
    raise ConnectionError(f"broker {broker.broker_id} cannot be reached: nobody has said how")


class ClusterMember:
    topics: TopicAdmin
    configs: ConfigAdmin
    producer_ids: ProducerIds
    controller: ControllerDriver

    def __init__(
        self,
        settings: Settings,
        store: TreeStore,
        clock: Clock | None = None,
        *,
        dial: Dial | None = None,
        dial_control: Dial | None = None,
        features: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.node_id = settings.node_id
        self.cluster_id = ""
        self.images = ImageHolder()
        self.broker_epoch = -1
        self.incarnation = -1
        """Epoch of the first registration of this process."""
        self.clean_stop: tuple[int, int] | None = None
        """First and last epoch of the process before, if all log directories say that it stopped in peace. Set it
        before `register`."""
        self._dial = dial or _nobody
        """Connects to other brokers' inter-broker listeners."""
        self._dial_control = dial_control or self._dial
        """The same where the controller has a listener of its own."""
        self._features = {IMAGE_FEATURE: (OLDEST_FORMAT, FORMAT), **(features or {})}
        self._endpoints: Mapping[str, Endpoint] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._failed_replicas: set[TopicPartition] = set()
        self._told_controller_epoch = -1

    @property
    def image(self) -> MetadataImage:
        return self.images.image

    # --- joining ---

    async def join(self, node_id: int | None = None) -> None:
        """Open the store session and learn the cluster's id and our own (`node_id`, the settings', or a new one)."""
        await self.store.start()
        await self._persistently(lambda: self.store.ensure_paths(znodes.PERSISTENT_PATHS))
        self.cluster_id = await self._persistently(lambda: _cluster_id(self.store))
        if node_id is not None:
            self.node_id = node_id
        if self.node_id < 0:
            self.node_id = await self._persistently(self._new_node_id)
        self.images = ImageHolder(self.cluster_id)
        self.images.offline_replicas = lambda: self._failed_replicas
        self.images.subscribe(self._apply_dynamic_settings)
        self.images.subscribe(self._remind_of_failures)
        self.topics = TopicAdmin(self.store, self.images, self.settings)
        self.configs = ConfigAdmin(self.store, self.images)
        self.producer_ids = ProducerIds(self.store, self.node_id)
        rebalance = self.settings["auto.leader.rebalance.enable"]
        self.controller = ControllerDriver(
            self.store,
            self.node_id,
            self.cluster_id,
            self._transport_to,
            policy=self._policy,
            clock=self.clock,
            imbalance_check_s=self.settings["leader.imbalance.check.interval.seconds"] if rebalance else None,
            liveness_times=LivenessTimes(
                self.settings["broker.heartbeat.interval.ms"] / 1000, self.settings["broker.session.timeout.ms"] / 1000
            ),
        )
        self.store.listen(self._session_changed)

    async def register(self, endpoints: Mapping[str, Endpoint], serve: Callable[[], None] = lambda: None) -> None:
        """Tell the cluster where this broker listens and wait for the first image that knows it. `serve` is called
        in between: the image comes through the listeners."""
        self._endpoints = dict(endpoints)
        await self._persistently(self._register_once)
        await self.controller.start()
        serve()
        if not await self.images.wait_until(self._knows_us, FIRST_IMAGE_SECONDS):
            raise TimeoutError(f"no controller has told broker {self.node_id} about the cluster yet")

    async def _persistently(self, step: Callable[[], Awaitable[T]]) -> T:
        """The store's server may go away in the middle of our start: the next one, or the same again, goes on."""
        deadline = self.clock.monotonic() + FIRST_IMAGE_SECONDS
        while True:
            try:
                return await step()
            except (ConnectionLost, SessionExpired) as error:
                if self.clock.monotonic() > deadline:
                    raise
                logger.warning("broker %d cannot start yet, trying again: %s", self.node_id, error)
                await asyncio.sleep(RETRY_SECONDS)

    def _knows_us(self, image: MetadataImage) -> bool:
        us = image.brokers.get(self.node_id)
        return us is not None and us.epoch == self.broker_epoch

    async def _new_node_id(self) -> int:
        stat = await self.store.set(znodes.BROKER_SEQUENCE, b"")
        return stat.version + int(self.settings["reserved.broker.max.id"])

    async def _register_once(self) -> None:
        path = znodes.broker_path(self.node_id)
        rack = self.settings["broker.rack"]
        clean_since, clean_stop = self.clean_stop or (-1, -1)
        broker = BrokerRegistration(
            self.node_id,
            -1,
            self._endpoints,
            rack,
            features=self._features,
            incarnation=self.incarnation,
            clean_since=clean_since,
            clean_stop=clean_stop,
            machine=self.settings["penstock.machine"],
        )
        data = znodes.encode_broker(broker, self.clock.now_ms())
        patience_s = self.settings["zookeeper.session.timeout.ms"] / 1000 * 1.5 + 2
        deadline = self.clock.monotonic() + patience_s
        while True:
            try:
                await self.store.create(path, data, ephemeral=True)
            except NodeExists:
                stat = await self.store.exists(path)
                if stat is None:
                    continue
                if stat.ephemeral_owner != self.store.session_id:
                    # Most likely our own last life, whose session has not ended yet.
                    logger.warning("broker id %d is still registered; waiting for that session to end", self.node_id)
                    left_s = deadline - self.clock.monotonic()
                    if left_s <= 0 or not await wait_until_deleted(self.store, path, left_s):
                        raise BrokerIdInUse(
                            f"broker id {self.node_id} is registered by another broker that is alive; give each"
                            " broker its own broker.id"
                        ) from None
                    continue
            stat = await self.store.exists(path)
            if stat is not None and stat.ephemeral_owner == self.store.session_id:
                self.broker_epoch = self.images.broker_epoch = stat.czxid
                if self.incarnation < 0:
                    self.incarnation = stat.czxid
                return

    def _policy(self) -> ControllerPolicy:
        return ControllerPolicy(
            unclean_leader_election=self.settings["unclean.leader.election.enable"],
            leader_imbalance_percent=self.settings["leader.imbalance.per.broker.percentage"],
            delete_topic_enable=self.settings["delete.topic.enable"],
            min_insync_replicas=self.settings["min.insync.replicas"],
        )

    def _transport_to(self, broker: BrokerRegistration) -> PushTransport:
        if broker.broker_id == self.node_id:
            return LocalTransport(self.images.receive)
        return RemoteTransport(broker, self._dial_control)

    def _apply_dynamic_settings(self, delta: ImageDelta, image: MetadataImage) -> None:
        own = ("broker", str(self.node_id))
        if ("broker", "") in delta.configs_changed or own in delta.configs_changed:
            self.settings.apply_dynamic(image.config("broker", ""), image.config(*own))

    # --- serving ---

    async def receive_push(self, body: bytes | memoryview) -> bytes:
        """The internal image message (API key 10000): body in, body of the answer out."""
        answer: ImagePushAnswer = await self.images.receive(decode_push(body))
        return encode_answer(answer)

    async def report_failed_replicas(self, partitions: list[TopicPartition]) -> None:
        """A log directory failed: tell the controller which replicas went off line with it, as soon as the store can
        be written."""
        self._failed_replicas.update(partitions)
        data = znodes.encode_log_dir_event(self.node_id, partitions)
        said = False
        while True:
            try:
                await self.store.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)
                return
            except StoreError as error:
                if not said:
                    logger.warning("%d failed replicas are not reported yet: %s", len(partitions), error)
                said = True
                await asyncio.sleep(RETRY_SECONDS)

    def _remind_of_failures(self, delta: ImageDelta, image: MetadataImage) -> None:
        """A new controller learns from the tree who leads, but not whose disks are broken: tell it again."""
        if image.controller_epoch != self._told_controller_epoch:
            self._told_controller_epoch = image.controller_epoch
            failed = sorted(self.images.offline_replicas())
            if failed:
                self._spawn(self.report_failed_replicas(failed))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and not self._leaving:
            self._spawn(self._begin_new_session())

    async def _begin_new_session(self) -> None:
        while not self._leaving:
            try:
                await self.store.restart_session()
                await self._register_once()
                logger.info("broker %d registered again, epoch %d", self.node_id, self.broker_epoch)
                return
            except (StoreError, BrokerIdInUse) as error:
                logger.warning("broker %d cannot register again yet: %s", self.node_id, error)
                await asyncio.sleep(RETRY_SECONDS)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- leaving ---

    async def controlled_shutdown(self) -> None:
        """Hand leaderships to others; what nobody can take stays with us until the end."""
        for _ in range(SHUTDOWN_ATTEMPTS):
            if len(self.image.brokers) < 2:
                return  # nobody is left who could take over
            answer = await self._ask_to_leave()
            if answer is not None and answer.error_code == ErrorCode.NONE:
                remaining = frozenset(answer.remaining)
                moved = await self.images.wait_until(partial(self._leads_only, remaining), 5.0)
                if moved and not remaining:
                    return
            await asyncio.sleep(RETRY_SECONDS)
        logger.warning("broker %d leaves although it still leads partitions", self.node_id)

    async def _ask_to_leave(self) -> ControlledShutdownAnswer | None:
        try:
            if self.controller.is_active:
                return await self.controller.controlled_shutdown(self.node_id, self.broker_epoch)
            return await ask_for_controlled_shutdown(self.image, self._dial, self.node_id, self.broker_epoch)
        except (NotController, OSError, TimeoutError) as error:
            logger.info("the controller cannot be asked to let broker %d go: %r", self.node_id, error)
            return None

    def _leads_only(self, remaining: frozenset[TopicPartition], image: MetadataImage) -> bool:
        return all(
            p.leader != self.node_id or len(p.replicas) == 1 or (topic.name, index) in remaining
            for topic in image.topics.values()
            for index, p in topic.partitions.items()
        )

    async def leave(self) -> None:
        """Stop being controller, drop the registration, end the session."""
        self._leaving = True
        if hasattr(self, "controller"):
            await self.controller.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()


async def _cluster_id(store: TreeStore) -> str:
    """The id that the first broker made up; whoever comes second reads it."""
    try:
        return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
    except NoNode:
        pass
    made_up = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    try:
        await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(made_up))
    except NodeExists:
        return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
    return made_up
