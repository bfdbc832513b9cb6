"""A broker of the simulation: the real controller driver, image holder, membership, replica manager and fetchers of one
process, wired to the simulated store, network and disk."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

from penstock.broker.api import alter_partition
from penstock.client.errors import ClientError, ConnectionLost
from penstock.cluster import znodes
from penstock.cluster.channels import LocalTransport, PushTransport
from penstock.cluster.controller_driver import ControllerDriver, NotController
from penstock.cluster.events import ControlledShutdownAnswer, TopicRecord
from penstock.cluster.image import BrokerRegistration, Endpoint
from penstock.cluster.image_codec import ImagePush, ImagePushAnswer
from penstock.cluster.member import BrokerIdInUse, ClusterMember
from penstock.log.results import LogDirectoryFailed
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.remote import RemoteReplication
from penstock.replication.replica_manager import ReplicaManager
from penstock.replication.roles import PartitionObserver
from penstock.store.interface import SessionExpired, StoreError
from penstock.testing.simulation.coordinating import SimBroker
from penstock.testing.simulation.disk import Entry, TopicPartition
from penstock.testing.simulation.fetches import SimFetches
from penstock.testing.simulation.invariants import Checker
from penstock.testing.simulation.life import Life, LifeTimers, SimSettings
from penstock.testing.simulation.links import CALL_TIMEOUT_SECONDS, SimConnection, SimTransport
from penstock.testing.simulation.storage import Storage
from penstock.testing.simulation.store import SimEnsemble, SimSession
from penstock.testing.simulation.world import World, WorldClock


class SimCluster:
    """All nodes, and what they share."""

    def __init__(self, world: World, checker: Checker, storage: Storage, min_insync_replicas: int) -> None:
        self.world = world
        self.checker = checker
        self.storage = storage
        self.ensemble = SimEnsemble(world)
        self.settings = SimSettings(min_insync_replicas, storage.log_config)
        self.nodes: dict[int, SimNode] = {}
        self.observed: tuple[str, ...] = ("t",)
        self.coordinated = False
        """Whether brokers carry coordinators; set before they start."""
        self.unanswered: dict[int, tuple[Life, str, float]] = {}
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    def recorded(self, where: TopicPartition) -> znodes.PartitionState | None:
        path = znodes.state_path(*where)
        node = self.ensemble.tree.nodes.get(path)
        return None if node is None else znodes.decode_state(path, node.data, node.version)

    def topic(self, name: str) -> TopicRecord:
        node = self.ensemble.tree.nodes[znodes.topic_path(name)]
        return znodes.decode_topic(name, node.data, node.version)

    def topic_id(self, name: str) -> uuid.UUID:
        return self.topic(name).topic_id

    def partition_count(self, name: str) -> int:
        return len(self.topic(name).assignments)

    def is_leader_of_record(self, node: SimNode, where: TopicPartition) -> bool:
        state = self.recorded(where)
        partition = node.manager.find(*where)
        return (
            state is not None
            and partition is not None
            and partition.is_leader
            and (state.leader, state.leader_epoch) == (node.id, partition.leader_epoch)
        )


class SimReplicas(ReplicaManager):
    """The real manager; the checker hears of every leadership, whoever else observes the topic."""

    told: _LeaderObserver

    def observe(self, topic: str, observer: PartitionObserver) -> None:
        self.told.others[topic] = observer
        super().observe(topic, self.told)


class SimMember(ClusterMember):
    """The real member, with pushes over the simulated network."""

    def __init__(self, node: SimNode, life: Life) -> None:
        super().__init__(node.cluster.settings, node.store, node.clock)  # type: ignore[arg-type]
        self._node = node
        self._life = life
        self.clean_stop, node.disk.clean_stop = node.disk.clean_stop, None  # from here on a crash is a crash

    def _transport_to(self, broker: BrokerRegistration) -> PushTransport:
        if broker.broker_id == self._node.id:
            return LocalTransport(self.images.receive)
        return SimTransport(self._node.cluster, self._life, self._node.cluster.nodes[broker.broker_id])

    async def _ask_to_leave(self) -> ControlledShutdownAnswer | None:
        target = self._node.cluster.nodes.get(self.image.controller_id)
        if target is None:
            return None
        try:
            return await self._node.world.call(
                self._life,
                target.life,
                lambda: target.member.controller.controlled_shutdown(self.node_id, self.broker_epoch),
                CALL_TIMEOUT_SECONDS,
            )
        except (NotController, ClientError):
            return None


class SimNode:
    """Disk and name survive; everything else belongs to a life."""

    life: Life
    store: SimSession
    member: SimMember
    manager: SimReplicas
    broker: SimBroker | None = None

    def __init__(self, node_id: int, cluster: SimCluster) -> None:
        self.id = node_id
        self.cluster = cluster
        self.world = cluster.world
        self.disk = cluster.storage.new_disk(node_id)
        self.clock = WorldClock(self.world, skew_ms=self.world.random.randrange(-500, 500))
        self.life = Life(node_id)
        self.life.alive = False
        self.fetches = SimFetches(self)

    @property
    def up(self) -> bool:
        return self.life.alive

    def can_prove(self, broker_epoch: int) -> bool:
        """Whether it has, or will have when it is back, a proof that it lost nothing since that registration: the
        process lives on, in whatever session, or it stopped in peace."""
        if not self.up:
            return _covers(self.disk.clean_stop, broker_epoch)
        first = self.member.incarnation
        return 0 <= first <= broker_epoch or _covers(self.member.clean_stop, broker_epoch)

    @property
    def active_controller(self) -> ControllerDriver | None:
        controller: ControllerDriver | None = getattr(self.member, "controller", None)
        return controller if self.up and controller is not None and controller.is_active else None

    # -- life and death ------------------------------------------------------------------------------------------

    def boot(self) -> None:
        life = self.life = Life(self.id)
        self.world.log(f"node {self.id}: starts")
        try:
            logs = self.disk.open(self.cluster.checker, self.clock)
        except LogDirectoryFailed as error:
            self.world.log(f"node {self.id}: cannot start: {error}")
            life.alive = False
            return
        self.store = SimSession(self.cluster.ensemble, life)
        self.member = member = SimMember(self, life)
        self.manager = SimReplicas(
            self.id,
            self.cluster.settings,
            self.clock,
            logs,
            LifeTimers(life),
        )
        manager = self.manager
        manager.told = _LeaderObserver(self, manager)
        manager.replication = RemoteReplication(
            self.id,
            self.cluster.settings,
            self.clock,
            broker_epoch=lambda: member.broker_epoch,
            connect=lambda leader: self.connect(life, leader),  # type: ignore[arg-type,return-value]
            alter_partition=lambda request: self._alter_partition(life, request),
            hosted=lambda: list(manager.partitions.values()),
            on_failed=lambda partition, error: self.world.log(f"node {self.id}: {partition!r}: {error}"),
        )
        for topic in self.cluster.observed:
            ReplicaManager.observe(manager, topic, manager.told)
        self.fetches.begin_life()
        self.world.spawn(self._start(life))
        self.world.spawn(self._look_after_disk(life))

    async def _start(self, life: Life) -> None:
        await life.gate()
        member, manager, store = self.member, self.manager, self.store
        store.listen(lambda state: self.world.log(f"node {self.id}: session {state.value}"))
        while True:
            try:
                await member.join(self.id)
                break
            except SessionExpired:
                await self._new_session(store)
            except StoreError:
                await asyncio.sleep(0.3)
        member.images.subscribe(manager.apply)
        manager.start()
        if self.cluster.coordinated:
            self.broker = SimBroker(self, life)
        while True:
            try:
                await member.register({"PLAINTEXT": Endpoint("sim", self.id)})
                return
            except (StoreError, BrokerIdInUse, TimeoutError):
                await asyncio.sleep(0.3)

    async def _new_session(self, store: SimSession) -> None:
        """Before the member listens, nobody else looks after the session."""
        try:
            await store.restart_session()
        except StoreError:
            await asyncio.sleep(0.3)

    async def _look_after_disk(self, life: Life) -> None:
        while life.alive:
            await asyncio.sleep(self.world.random.uniform(0.5, 3.0))
            await life.gate()
            self.disk.look_after(list(self.manager.partitions), self.world.random)

    def crash(self, power_loss: bool = False) -> None:
        """The process is gone; with a power loss also what was written but never synced."""
        self.world.log(f"node {self.id}: {'loses power' if power_loss else 'is killed'}")
        self._end_life(self.life)
        if power_loss:
            for where, lost_from in self.disk.lose_power(self.world.random):
                self.cluster.checker.lost_unsynced(where, lost_from)
        else:
            self.disk.kill()
        self.cluster.checker.look_for_excuses()

    async def stop_in_peace(self) -> None:
        """Hand over, write everything down, leave the marker, end the session."""
        life = self.life
        self.world.log(f"node {self.id}: stops in peace")
        await self.member.controlled_shutdown()
        await life.gate()
        for partition in self.manager.partitions.values():
            partition.write_now()
        epochs = (self.member.incarnation, self.member.broker_epoch) if self.member.incarnation >= 0 else None
        self.disk.stop(list(self.manager.partitions), epochs)
        self.world.log(f"node {self.id}: has stopped")
        self._end_life(life)
        self.cluster.ensemble.end_session(self.store.session_id)
        self.cluster.checker.look_for_excuses()

    def _end_life(self, life: Life) -> None:
        life.alive = False
        life.resume()
        if self.broker is not None:
            broker, self.broker = self.broker, None
            broker.end()

    def pause(self) -> None:
        self.world.log(f"node {self.id}: stands still")
        self.life.pause()
        self.store.paused = True

    def resume(self) -> None:
        self.world.log(f"node {self.id}: goes on")
        self.store.paused = False
        self.life.resume()

    # -- towards others ------------------------------------------------------------------------------------------

    async def connect(self, life: Life, leader: int) -> SimConnection:
        target = self.cluster.nodes[leader]
        await self.world.call(life, target.life, _nothing, CALL_TIMEOUT_SECONDS)
        return SimConnection(self.cluster, life, target)

    async def _alter_partition(self, life: Life, request: Any) -> Any:
        images = self.member.images
        target = self.cluster.nodes.get(images.image.controller_id)
        if target is None:
            raise ConnectionLost("no controller is known")
        event = alter_partition.event_of(request)
        target_life = target.life

        async def ask() -> Any:
            try:
                return alter_partition.response_of(await target.member.controller.alter_partition(event))
            except NotController:
                return messages.api("alter_partition").Response(error_code=int(ErrorCode.NOT_CONTROLLER))

        return await images.while_controller_stays(self.world.call(life, target_life, ask, CALL_TIMEOUT_SECONDS))

    # -- requests ------------------------------------------------------------------------------------------------

    async def handle_push(self, life: Life, push: ImagePush) -> ImagePushAnswer:
        return await self.member.images.receive(push)

    async def handle_produce(self, where: TopicPartition, batch: bytes, timeout_ms: int) -> tuple[int, int]:
        manager = self.manager
        result = manager.append(*where, batch, -1)
        failed = manager.write_staged()
        if result.error:
            return int(result.error), -1
        partition = manager.find(*where)
        if partition is None or partition in failed:
            return int(ErrorCode.KAFKA_STORAGE_ERROR), -1
        error = await manager.committed(partition, result.last_offset + 1, timeout_ms)
        return error, result.base_offset

    async def handle_consume(self, where: TopicPartition, offset: int) -> tuple[int, int, int, list[Entry]]:
        """(error, high watermark, log start, entries)."""
        partition = self.manager.find(*where)
        if partition is None:
            return self.manager.hosting_error(*where), -1, -1, []
        fetched = reads.fetch(partition, offset, 400)
        storage = self.cluster.storage
        entries = list(storage.entries_in(storage.bytes_of(fetched.region)))
        return fetched.error, fetched.high_watermark, fetched.log_start_offset, entries

    async def handle_list_offsets(self, life: Life, request: Any) -> Any:
        api = messages.api("list_offsets")
        topic = request.topics[0]
        wanted = topic.partitions[0]
        answer = api.ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
        partition = self.manager.find(topic.name, wanted.partition_index)
        if partition is None:
            answer.error_code = self.manager.hosting_error(topic.name, wanted.partition_index)
        else:
            answer.error_code = reads.epoch_error(partition, wanted.current_leader_epoch)
            if not answer.error_code and not partition.is_leader:
                answer.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            log = partition.log
            answer.offset = log.log_end_offset if wanted.timestamp == -1 else log.log_start_offset
        return api.Response(topics=[api.ListOffsetsTopicResponse(name=topic.name, partitions=[answer])])


class _LeaderObserver:
    """Tells the checker who leads."""

    def __init__(self, node: SimNode, manager: ReplicaManager) -> None:
        self._node = node
        self._manager = manager
        self.others: dict[str, PartitionObserver] = {}

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        found = self._manager.find(topic, partition)
        assert found is not None
        self._node.world.log(f"node {self._node.id}: leads {found!r}")
        self._node.cluster.checker.leads(found)
        if topic in self.others:
            self.others[topic].on_leader(topic, partition, leader_epoch)

    def on_resign(self, topic: str, partition: int, leader_epoch: int) -> None:
        self._node.world.log(f"node {self._node.id}: resigns {topic}-{partition}, epoch {leader_epoch}")
        if topic in self.others:
            self.others[topic].on_resign(topic, partition, leader_epoch)

    def on_committed(self, topic: str, partition: int, high_watermark: int) -> None:
        if topic in self.others:
            self.others[topic].on_committed(topic, partition, high_watermark)

    def on_lost(self, topic: str, partition: int) -> None:
        self._node.world.log(f"node {self._node.id}: {topic}-{partition} could not be written")
        if topic in self.others:
            self.others[topic].on_lost(topic, partition)


def _covers(epochs: tuple[int, int] | None, epoch: int) -> bool:
    return epochs is not None and epochs[0] <= epoch <= epochs[1]


async def _nothing() -> None:
    return None
