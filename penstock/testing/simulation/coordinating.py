"""The coordinators of a simulated broker: the real services over its replicas, reached through the real APIs.

`SimBroker` is what those APIs, and the roads between coordinators and leaders, ask of a broker. Timers stand still with
their process and end with it.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import RequestContext
from penstock.broker.group_links import ImageTopics
from penstock.broker.produce.transactional import Verification
from penstock.broker.transaction_links import TransactionLinks, cluster_producer_ids
from penstock.broker.writer_fences import answer_fence
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.service import TOPIC as GROUP_TOPIC
from penstock.coordinator.group.service import GroupCoordinator
from penstock.coordinator.replica_log import ReplicaShardLog
from penstock.coordinator.transaction.marker_sender import MarkerWrite
from penstock.coordinator.transaction.service import TOPIC as TRANSACTION_TOPIC
from penstock.coordinator.transaction.service import TransactionCoordinator, TransactionLimits
from penstock.protocol.errors import ErrorCode
from penstock.testing.simulation.disk import TopicPartition

if TYPE_CHECKING:
    from penstock.testing.simulation.life import Life
    from penstock.testing.simulation.node import SimNode

INTERNAL_PARTITIONS = 2
SESSION_TIMEOUT_MS = 4_000
REBALANCE_TIMEOUT_MS = 5_000
WRITE_TIMEOUT_MS = 3_000

GROUPS = GroupConfig(
    min_session_timeout_ms=100,
    initial_rebalance_delay_ms=300,
    consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    consumer_min_session_timeout_ms=100,
    consumer_heartbeat_interval_ms=500,
    consumer_min_heartbeat_interval_ms=100,
)
TRANSACTIONS = TransactionLimits(two_phase_enabled=True, timeout_scan_interval_ms=1_000)


class LifeCalls:
    """`call_soon` and `call_later` of one process: nothing runs while it stands still, nor after its end."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._loop = asyncio.get_running_loop()

    def soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(self._run, callback)

    def later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, self._run, callback)

    def _run(self, callback: Callable[[], None]) -> None:
        if self._life.paused:
            self._loop.create_task(self._when_it_goes_on(callback))
        elif self._life.alive:
            callback()

    async def _when_it_goes_on(self, callback: Callable[[], None]) -> None:
        await self._life.gate()
        callback()


class SimTransactionLinks(TransactionLinks):
    """The real roads, which a process that stands still does not take."""

    def __init__(self, broker: SimBroker, life: Life) -> None:
        super().__init__(broker, broker.connect)  # type: ignore[arg-type]
        self._life = life

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[TopicPartition, int]]:
        await self._life.gate()
        return await super().write_markers(node_id, markers)


class SimBroker:
    """One life of a node, as coordinators and APIs see it."""

    authorizer = None

    def __init__(self, node: SimNode, life: Life) -> None:
        self.node_id = node.id
        self.clock = node.clock
        self.replicas = node.manager
        self.store = node.store
        self.settings = node.cluster.settings
        self.image_holder = node.member.images
        self.dispatcher = self
        self._node = node
        self._life = life
        calls = LifeCalls(life)
        topics = ImageTopics(self)  # type: ignore[arg-type]
        group_log = ReplicaShardLog(self.replicas, GROUP_TOPIC)
        self.groups = GroupCoordinator(
            group_log,
            self.clock,
            GROUPS,
            lambda: INTERNAL_PARTITIONS,
            topics=topics,
            call_soon=calls.soon,
            call_later=calls.later,
            new_uuid=lambda: uuid.UUID(int=node.world.random.getrandbits(128), version=4),
            write_timeout_ms=WRITE_TIMEOUT_MS,
        )
        topics.on_deleted = self.groups.topics_deleted
        self.image_holder.subscribe(topics.image_changed)
        self.transaction_links = SimTransactionLinks(self, life)
        transaction_log = ReplicaShardLog(self.replicas, TRANSACTION_TOPIC)
        self.transactions = TransactionCoordinator(
            transaction_log,
            self.clock,
            TRANSACTIONS,
            cluster_producer_ids(self.store, self.node_id),
            self.transaction_links,
            lambda: INTERNAL_PARTITIONS,
            call_soon=calls.soon,
            call_later=calls.later,
        )
        group_log.follow_leadership(self.groups.runtime.elected, self.groups.runtime.resigned)
        transaction_log.follow_leadership(self.transactions.runtime.elected, self.transactions.runtime.resigned)
        self.transactions.start()

    @property
    def image(self) -> Any:
        return self.replicas.image

    def flush(self) -> None:
        self.replicas.write_staged()

    def speaks_for(self, connection: object, broker_id: int) -> bool:
        return True

    async def connect(self, node_id: int) -> Any:
        return await self._node.connect(self._life, node_id)

    def end(self) -> None:
        """The process is gone: nothing of it may write, answer or wait any more."""
        self.groups.runtime.close()
        self.transactions.runtime.close()
        self._node.world.spawn(self.transactions.stop())

    # -- requests ------------------------------------------------------------------------------------------------

    async def handle(self, api_name: str, version: int, request: Any, broker_id: int = -1) -> Any:
        """As the dispatcher does; who is not answered stays on the list."""
        module = importlib.import_module(f"penstock.broker.api.{api_name}")
        context = RequestContext(module.API.key, version, 0, "simulated", "sim", "PLAINTEXT", broker_id=broker_id)
        unanswered = self._node.cluster.unanswered
        number = self._node.cluster.next_number()
        unanswered[number] = (self._life, f"{api_name} v{version} at node {self.node_id}", self._node.world.now)
        try:
            answer = await module.handle(self, context, request)
        except Exception as error:
            self._ran_into(error, api_name)
            raise
        del unanswered[number]
        return answer

    def _ran_into(self, error: Exception, api_name: str) -> None:
        """A request may be refused, but never end in an exception; unless the process ended under it."""
        self._node.cluster.checker.demand(not self._life.alive, f"{api_name} at node {self.node_id}: {error!r}")

    async def fence(self, body: bytes) -> bytes:
        return answer_fence(self, body, lambda broker_id: True)  # type: ignore[arg-type]

    async def produce(
        self, transactional_id: str, version: int, where: TopicPartition, batch: bytes, timeout_ms: int
    ) -> tuple[int, int]:
        """A transactional batch: (error, base offset)."""
        verification = Verification(self)  # type: ignore[arg-type]
        try:
            await verification.ask(self, transactional_id, version, [(*where, batch)])  # type: ignore[arg-type]
        except Exception as error:
            self._ran_into(error, "produce")
            raise
        await self._life.gate()
        verified = verification.at_append(where)
        if verified is not None and verified.error:
            return int(verified.error), -1
        result = self.replicas.append(*where, batch, -1, guard=None if verified is None else verified.guard)
        failed = self.replicas.write_staged()
        if result.error:
            return int(result.error), -1
        partition = self.replicas.find(*where)
        if partition is None or partition in failed:
            return int(ErrorCode.KAFKA_STORAGE_ERROR), -1
        return await self.replicas.committed(partition, result.last_offset + 1, timeout_ms), result.base_offset
