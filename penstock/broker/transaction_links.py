"""The roads of the transaction coordinator on this broker: markers to partition leaders, questions to coordinators of
other brokers. The coordinator decides; here is its I/O.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.writer_fences import fence_writer
from penstock.client.errors import ClientError
from penstock.coordinator.shard_log import Marker, Producer
from penstock.coordinator.transaction.marker_sender import MarkerWrite
from penstock.coordinator.transaction.service import TOPIC as TRANSACTION_TOPIC
from penstock.log.results import Origin
from penstock.protocol import messages
from penstock.protocol.batch import build_marker
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import StoreError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.client.connection import Connection
    from penstock.coordinator.transaction.producer_ids import ProducerIds
    from penstock.store.interface import TreeStore

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
MARKER_TIMEOUT_MS = 30_000

TopicPartition = tuple[str, int]

# What the group coordinator says when a marker comes at the wrong moment, in the words of a partition.
_AS_PARTITION_ERROR = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class TransactionLinks:
    """Satisfies `MarkerTransport` and `CoordinatorLink`. `connect(node_id)` gives a connection to another broker."""

    def __init__(self, broker: Broker, connect: Callable[[int], Awaitable[Connection]]) -> None:
        self._broker = broker
        self._connect = connect

    # Markers ---------------------------------------------------------------------------------------------------

    def leader_of(self, partition: TopicPartition) -> int | None:
        registration = self._broker.image.partition(*partition)
        return None if registration is None else int(registration.leader)

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[TopicPartition, int]]:
        if node_id == self._broker.node_id:
            return await write_markers_here(self._broker, markers)
        api = messages.api("write_txn_markers")
        request = api.Request(markers=[_wire_marker(api, marker) for marker in markers])
        try:
            connection = await self._connect(node_id)
            response = await connection.request("write_txn_markers", request)
        except ClientError as error:
            raise ConnectionError(str(error)) from error
        answers = [  # one per marker, in the order of the request
            {(topic.name, p.partition_index): p.error_code for topic in result.topics for p in topic.partitions}
            for result in response.markers
        ]
        if len(answers) != len(markers):
            raise ConnectionError(f"broker {node_id} answered {len(answers)} of {len(markers)} markers")
        return answers

    async def fence(self, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]) -> bool:
        return await fence_writer(self._broker, self._connect, producer_id, producer_epoch, partitions)

    # Verification ----------------------------------------------------------------------------------------------

    async def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        coordinator = self._broker.transactions
        shard = coordinator.partition_for(transactional_id)
        registration = self._broker.image.partition(TRANSACTION_TOPIC, shard)
        if registration is None or registration.leader < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if registration.leader != self._broker.node_id:
            return await self._ask(
                registration.leader, transactional_id, producer_id, producer_epoch, partitions, verify_only
            )
        if verify_only:
            answer = await coordinator.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
        else:
            answer = await coordinator.add_partitions(transactional_id, producer_id, producer_epoch, partitions, 2)
        codes: dict[TopicPartition, ErrorCode] = answer
        return codes

    async def _ask(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        api = messages.api("add_partitions_to_txn")
        topics = [
            api.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
        ]
        request = api.Request(
            transactions=[
                api.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=verify_only,
                    topics=topics,
                )
            ]
        )
        try:
            connection = await self._connect(node_id)
            response = await connection.request("add_partitions_to_txn", request)
        except (ClientError, OSError) as error:
            logger.info("the coordinator of %s cannot be asked: %s", transactional_id, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code:
            return dict.fromkeys(partitions, ErrorCode(response.error_code))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }


def by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _wire_marker(api: Any, marker: MarkerWrite) -> Any:
    return api.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        topics=[
            api.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(list(marker.partitions)).items()
        ],
    )


async def write_markers_here(broker: Broker, markers: list[MarkerWrite]) -> list[dict[TopicPartition, int]]:
    """Append markers to partitions that this broker leads, and wait until they are committed."""
    answers: list[dict[TopicPartition, int]] = [{} for _ in markers]
    waits: list[tuple[int, TopicPartition, Awaitable[int]]] = []
    appended: list[tuple[int, TopicPartition, Any, int]] = []
    for number, marker in enumerate(markers):
        for topic, index in marker.partitions:
            if topic == OFFSETS_TOPIC and broker.groups is not None:
                waits.append((number, (topic, index), _end_offsets_transaction(broker, index, marker)))
                continue
            batch = build_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                broker.clock.now_ms(),
            )
            result = broker.replicas.append(
                topic,
                index,
                batch,
                -1,
                origin=Origin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
            answers[number][(topic, index)] = int(result.error)
            if not result.error:
                partition = broker.replicas.find(topic, index)
                appended.append((number, (topic, index), partition, result.last_offset + 1))
    if appended:
        broker.dispatcher.flush()  # whoever else has appended in this wake-up is answered with it
    for number, topic_partition, partition, next_offset in appended:
        if partition.log.log_end_offset < next_offset:
            answers[number][topic_partition] = int(ErrorCode.KAFKA_STORAGE_ERROR)
        elif partition.log.high_watermark < next_offset:
            waits.append(
                (number, topic_partition, broker.replicas.committed(partition, next_offset, MARKER_TIMEOUT_MS))
            )
    codes = await asyncio.gather(*(wait for _, _, wait in waits))
    for (number, topic_partition, _), code in zip(waits, codes, strict=True):
        answers[number][topic_partition] = int(code)
    return answers


async def _end_offsets_transaction(broker: Broker, index: int, marker: MarkerWrite) -> int:
    """In a partition of offsets a marker also publishes or drops the offsets that wait for it."""
    error, _ = await broker.groups.runtime.end_transaction(
        index,
        Marker(
            Producer(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            marker.commit,
            marker.transaction_version,
        ),
    )
    return int(_AS_PARTITION_ERROR.get(error, error))


def cluster_producer_ids(store: TreeStore, node_id: int) -> ProducerIds:
    """Ids from the blocks of the cluster's store."""
    from penstock.cluster.producer_ids import ProducerIds as ClusterProducerIds
    from penstock.coordinator.transaction.producer_ids import ProducerIds, ProducerIdsExhausted

    blocks = ClusterProducerIds(store, node_id)

    async def claim_block() -> tuple[int, int]:
        try:
            return await blocks.claim_block()
        except StoreError as error:
            raise ProducerIdsExhausted(str(error)) from error

    return ProducerIds(claim_block)


def start_transactions(broker: Broker) -> None:
    """Make the broker's transaction coordinator: `broker.transactions`, reached by others over `transaction_links`."""
    from penstock.coordinator.replica_log import ReplicaShardLog
    from penstock.coordinator.transaction.service import TransactionCoordinator, TransactionLimits

    links = TransactionLinks(broker, broker.inter_broker.connect)
    log = ReplicaShardLog(broker.replicas, TRANSACTION_TOPIC)
    coordinator = TransactionCoordinator(
        log,
        broker.clock,
        TransactionLimits.from_settings(broker.settings),
        cluster_producer_ids(broker.store, broker.node_id),
        links,
        lambda: _partition_count(broker),
    )
    broker.transactions, broker.transaction_links = coordinator, links
    log.follow_leadership(coordinator.runtime.elected, coordinator.runtime.resigned)
    coordinator.start()


def _partition_count(broker: Broker) -> int:
    topic = broker.image.topic(TRANSACTION_TOPIC)
    return len(topic.partitions) if topic is not None else int(broker.settings["transaction.state.log.num.partitions"])
