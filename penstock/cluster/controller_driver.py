"""The controller's hands: reads and writes the store, feeds the core, publishes what it decides.

Every broker has one; at most one in the cluster is active. Watches only mark what must be read again; requests queue;
one task handles them one at a time, so that each decision stands on the outcome of the one before. A write that is
refused because another controller has taken over makes this one step down; a write whose fate is unknown makes it
read everything again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.base.clock import Clock, SystemClock
from penstock.cluster import znodes
from penstock.cluster.acknowledgements import says_something_new
from penstock.cluster.broker_channels import BrokerChannels
from penstock.cluster.candidacy import Candidacy
from penstock.cluster.channels import BrokerChannel, PushTransport
from penstock.cluster.controller import (
    ControllerPolicy,
    ControllerState,
    Decision,
    decide,
    initial_state,
    settle,
)
from penstock.cluster.controller_store import ControllerMoved, FencedWriter, StateUnknown
from penstock.cluster.controller_watches import TreeWatcher
from penstock.cluster.events import (
    AlterPartitions,
    AlterPartitionsAnswer,
    AlterReassignments,
    Answer,
    BrokersSilent,
    ControlledShutdown,
    ControlledShutdownAnswer,
    ElectLeaders,
    Event,
    ImageAcknowledged,
    ImbalanceCheck,
    PartitionAnswer,
    TopicPartition,
)
from penstock.cluster.image import BrokerRegistration, MetadataImage
from penstock.cluster.image_codec import ImagePushAnswer
from penstock.cluster.liveness import Liveness, LivenessTimes, Verdict, judge
from penstock.cluster.loading import load_state, read_topic
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import (
    SessionState,
    SetData,
    StoreError,
    TreeStore,
)

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
MAX_QUEUED_REQUESTS = 4096


class NotController(Exception):
    """This broker is not the active controller (or just stopped being it): ask the one that is."""


@dataclass(slots=True)
class _Request:
    event: Event
    future: asyncio.Future[Answer] | None


class ControllerDriver:
    def __init__(
        self,
        store: TreeStore,
        node_id: int,
        cluster_id: str,
        transport_to: Callable[[BrokerRegistration], PushTransport],
        *,
        policy: Callable[[], ControllerPolicy] = ControllerPolicy,
        clock: Clock | None = None,
        imbalance_check_s: float | None = 300.0,
        liveness_times: LivenessTimes | None = None,
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._transport_to = transport_to
        self._policy = policy
        self._clock: Clock = clock or SystemClock()
        self._imbalance_check_s = imbalance_check_s
        self._times = liveness_times or LivenessTimes()
        self._liveness = Liveness(self._times.timeout_s, self._clock.monotonic())
        self._missed: dict[int, int] = {}
        """Whom this controller misses so much that another one should try."""
        self._missed_before: frozenset[int] = frozenset()
        """Whom its predecessor missed."""
        self._requests: deque[_Request] = deque()
        self._wake = asyncio.Event()
        self._watcher = TreeWatcher(store, self._wake.set, self._clock.now_ms)
        self._task: asyncio.Task[None] | None = None
        self._channels = BrokerChannels(self._open_channel)
        self._state: ControllerState | None = None
        self._writer: FencedWriter | None = None
        self._last_image = (-1, 0)
        """(epoch, version) published last: versions never repeat within an epoch, also across reloads."""
        self._unlisten: Callable[[], None] = lambda: None
        self._candidacy = Candidacy(store, node_id, self._clock, self._wake.set)

    # --- what others may ask ---

    @property
    def controller_id(self) -> int:
        """Who is controller as far as the store told last."""
        return self._candidacy.controller_id

    @property
    def is_active(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> ControllerState:
        """The state of the active controller; raises NotController elsewhere."""
        if self._state is None:
            raise NotController
        return self._state

    async def alter_partition(self, request: AlterPartitions) -> AlterPartitionsAnswer:
        """ISR changes of one leader broker (AlterPartition)."""
        answer = await self._ask(request)
        assert isinstance(answer, AlterPartitionsAnswer)
        return answer

    async def elect_leaders(self, request: ElectLeaders) -> dict[TopicPartition, PartitionAnswer]:
        answer = await self._ask(request)
        assert isinstance(answer, dict)
        return answer

    async def alter_reassignments(self, request: AlterReassignments) -> dict[TopicPartition, PartitionAnswer]:
        answer = await self._ask(request)
        assert isinstance(answer, dict)
        return answer

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> ControlledShutdownAnswer:
        answer = await self._ask(ControlledShutdown(broker_id, broker_epoch))
        assert isinstance(answer, ControlledShutdownAnswer)
        return answer

    async def _ask(self, event: Event) -> Answer:
        if self._state is None or len(self._requests) >= MAX_QUEUED_REQUESTS:
            raise NotController
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(event, future))
        self._wake.set()
        return await future

    # --- life ---

    async def start(self) -> None:
        self._unlisten = self._store.listen(self._session_changed)
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Step down and stop. The session ends elsewhere; until then the /controller node is given back here."""
        if self._task is None:
            return
        was_active = self.is_active
        self._unlisten()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await self._resign()
        if was_active:
            await self._candidacy.give_back()

    def _session_changed(self, state: SessionState) -> None:
        """A session that ended took the controller's node with it; a new one may win it again."""
        if state is SessionState.EXPIRED or (state is SessionState.CONNECTED and not self.is_active):
            self._candidacy.doubt()

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_one_term()
            except StoreError as error:
                logger.warning("controller election pauses: %s", error)
            except Exception:
                logger.exception("the controller failed; it starts over from the store")
            await self._resign()
            await asyncio.sleep(RETRY_SECONDS)
            while self._store.session_state is not SessionState.CONNECTED:
                await self._wake.wait()  # the session's listener wakes us
                self._wake.clear()

    async def _serve_one_term(self) -> None:
        """Wait to be elected, then decide until deposed or in doubt."""
        self._candidacy.is_in_doubt = False
        while (epoch := await self._candidacy.win()) is None:
            await self._wake.wait()
            self._wake.clear()
        self._writer = FencedWriter(self._store, *epoch)
        await self._take_over()
        timers = [asyncio.ensure_future(self._watch_brokers())]
        if self._imbalance_check_s:
            timers.append(asyncio.ensure_future(self._tick()))
        try:
            while not self._candidacy.is_in_doubt:
                await self._handle_everything()
                if self._missed:
                    await self._candidacy.step_aside(self._writer, self._missed, 2 * self._times.timeout_s)
                    return
                await self._wake.wait()
                self._wake.clear()
        except ControllerMoved:
            logger.warning("controller epoch %d is over: another broker has taken over", self._writer.epoch)
        except StateUnknown as doubt:
            logger.warning("the controller reads everything again: %s", doubt)
        finally:
            for timer in timers:
                timer.cancel()

    async def _take_over(self) -> None:
        """Read everything, do what was left undone, and begin to publish."""
        assert self._writer is not None
        epoch = self._writer.epoch
        empty = initial_state(self._cluster_id, self._node_id, epoch, self._policy())
        if self._last_image[0] == epoch:
            empty = replace(empty, image=replace(empty.image, version=self._last_image[1]))
        self._liveness = Liveness(self._times.timeout_s, self._clock.monotonic())
        self._missed = {}
        self._missed_before = await self._candidacy.missed_by_predecessor(epoch - 1)
        self._watcher.reset()
        await self._watcher.arm()
        loaded = await load_state(
            self._store,
            empty,
            on_brokers=self._watcher.on_brokers,
            on_topics=self._watcher.on_topics,
            on_topic=self._watcher.on_topic,
        )
        state = await self._give_ids(loaded.state, loaded.without_id)
        decision = settle(state, loaded.recorded, loaded.doomed)
        await self._writer.write(decision.output)
        self._state = decision.state
        self._note_published()
        self._channels.align(self.state.image.brokers)
        self._wake.set()

    async def _give_ids(self, state: ControllerState, names: list[str]) -> ControllerState:
        """Topics made before topic ids existed get one now."""
        assert self._writer is not None
        topics, versions, by_id = dict(state.image.topics), dict(state.topic_versions), dict(state.image.topic_names)
        by_id.pop(uuid.UUID(int=0), None)
        for name in names:
            record = await read_topic(self._store, name)
            if record is None:
                continue
            topic_id = uuid.uuid4()
            data = znodes.encode_topic(topic_id, record.assignments)
            await self._writer.write_operations([SetData(znodes.topic_path(name), data, record.version)])
            topics[name] = replace(topics[name], topic_id=topic_id)
            versions[name], by_id[topic_id] = record.version + 1, name
        return replace(state, image=replace(state.image, topics=topics, topic_names=by_id), topic_versions=versions)

    async def _resign(self) -> None:
        self._state = None
        self._writer = None
        self._watcher.reset()
        await self._channels.close()
        requests, self._requests = self._requests, deque()
        for request in requests:
            if request.future is not None and not request.future.done():
                request.future.set_exception(NotController())

    # --- who is heard ---

    async def _watch_brokers(self) -> None:
        while True:
            await asyncio.sleep(self._times.heartbeat_s)
            if self._state is None:
                continue
            others = {i: b for i, b in self._state.image.brokers.items() if i != self._node_id}
            silent = self._liveness.silent(others, self._clock.monotonic())
            gone = [broker_id for broker_id, epoch in silent.items() if self._liveness.is_gone(broker_id, epoch)]
            match judge(others, silent, self._missed_before, gone):
                case Verdict.FENCE:
                    logger.warning("brokers %s have given no sign of life: fenced", sorted(silent))
                    self._requests.append(_Request(BrokersSilent(silent), None))
                    self._wake.set()
                case Verdict.STEP_ASIDE:
                    self._missed = silent
                    self._wake.set()
                case Verdict.NOTHING:
                    pass

    async def _tick(self) -> None:
        assert self._imbalance_check_s is not None
        while True:
            await asyncio.sleep(self._imbalance_check_s)
            self._requests.append(_Request(ImbalanceCheck(), None))
            self._wake.set()

    # --- work ---

    async def _handle_everything(self) -> None:
        """Until nothing is marked and nothing is queued; the tree goes first, because requests are judged by it."""
        while not self._candidacy.is_in_doubt:
            event = await self._watcher.next_event(self.state)
            if event is not None:
                await self._decide(event)
                continue
            if not self._requests:
                return
            request = self._requests.popleft()
            try:
                answer = await self._decide(request.event)
            except BaseException:
                if request.future is not None and not request.future.done():
                    request.future.set_exception(NotController())
                raise
            if request.future is not None and not request.future.done():
                request.future.set_result(answer)

    async def _decide(self, event: Event) -> Answer:
        assert self._writer is not None
        state = self.state
        policy = self._policy()
        if policy != state.policy:
            state = replace(state, policy=policy)
        decision = decide(state, event)
        await self._writer.write(decision.output)
        self._publish(decision)
        return decision.output.answer

    def _publish(self, decision: Decision) -> None:
        self._state = decision.state
        delta = decision.output.delta
        if delta is None:
            return
        self._note_published()
        self._channels.offer(delta)
        if delta.brokers_changed or delta.brokers_removed:
            self._channels.align(self.state.image.brokers)

    def _note_published(self) -> None:
        image = self.state.image
        self._last_image = (image.controller_epoch, image.version)

    def _open_channel(self, broker: BrokerRegistration) -> BrokerChannel:
        return BrokerChannel(
            broker,
            self._transport_to(broker),
            self._current_image,
            self._acknowledged,
            self._refused,
            self._transport_to(broker),
            self._times,
            lambda broker, refused: self._liveness.unheard(broker, refused),
        )

    def _current_image(self) -> MetadataImage:
        """What a broker gets that may have missed anything, also which topics are gone for good."""
        return replace(self.state.image, deleted=frozenset(self.state.deletions))

    def _acknowledged(self, broker: BrokerRegistration, answer: ImagePushAnswer) -> None:
        if not answer.reaches_controller:
            return  # we hear it, it does not reach us: nothing that it leads could change its ISR
        self._liveness.heard(broker, self._clock.monotonic())
        if self._state is None or answer.controller_epoch != self._state.image.controller_epoch:
            return  # it lives, but has taken in nothing of ours yet: its version counts another controller's images
        event = ImageAcknowledged(
            broker.broker_id, broker.epoch, answer.version, answer.offline, answer.given_up, answer.unmade
        )
        if says_something_new(self._state, event):
            self._requests.append(_Request(event, None))
            self._wake.set()

    def _refused(self, broker: BrokerRegistration, error_code: int) -> None:
        if error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            # The broker has heard of a newer controller: the election node tells the truth.
            self._candidacy.doubt()
        else:
            logger.warning("broker %d refuses the image: error %d", broker.broker_id, error_code)
