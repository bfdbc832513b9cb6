"""Bringing decided transactions to their end: a marker into every partition that they span, then `completed`.

Markers travel by broker: one request at a time to each, carrying whatever has gathered meanwhile. What a broker
refuses for the moment is tried again at the partition's leader of then. The sockets belong to the `MarkerTransport`
that the broker hands in; the order of things belongs here.

A partition that no longer exists is done: none is added to a transaction before the coordinator has heard of it, so
that one which is not in the image has been there. A coordinator that learns it has been replaced (its epoch or the
producer's is old) stops: the new one sends the markers from its own log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from penstock.protocol.errors import ErrorCode, error_name

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.02
LONGEST_RETRY_SECONDS = 1.0
MAX_MARKERS_PER_REQUEST = 1_000

RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # an operator can mend this; giving up would leave records hanging
    }
)
REPLACED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerWrite(NamedTuple):
    """One marker for partitions of one broker."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class MarkerTransport(Protocol):
    """How markers reach a broker, this one included."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The broker that leads; -1 if none does at the moment; None if the partition is no more."""

    async def write_markers(self, node_id: int, markers: list[MarkerWrite]) -> list[dict[TopicPartition, int]]:
        """The error code of each partition, marker by marker; raises OSError if the broker cannot be asked."""

    async def fence(self, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]) -> bool:
        """Have the leaders of these partitions, and whoever leads them after, refuse batches of this pair; False if
        that could not be had in time."""


@dataclass(slots=True, eq=False)
class _Ending:
    """A decided transaction whose markers are on their way."""

    transaction: Transaction
    shard: int
    coordinator_epoch: int
    missing: set[TopicPartition]
    travelling: set[TopicPartition] = field(default_factory=set)
    retry_seconds: float = FIRST_RETRY_SECONDS
    retry: asyncio.TimerHandle | None = None

    def marker(self, partitions: list[TopicPartition]) -> MarkerWrite:
        t = self.transaction
        return MarkerWrite(
            t.producer_id,
            t.producer_epoch,
            t.state is TransactionState.PREPARE_COMMIT,
            self.coordinator_epoch,
            t.client_version,
            tuple(sorted(partitions)),
        )


@dataclass(slots=True)
class _Road:
    """What waits to be sent to one broker."""

    queue: deque[tuple[_Ending, list[TopicPartition]]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class MarkerSender:
    """`completed(shard, transaction)` is called once per decided transaction, when all its markers are committed."""

    def __init__(self, transport: MarkerTransport, completed: Callable[[int, Transaction], None]) -> None:
        self._transport = transport
        self._completed = completed
        self._endings: dict[str, _Ending] = {}
        self._roads: dict[int, _Road] = {}

    @property
    def in_flight(self) -> int:
        return len(self._endings)

    def is_sending(self, transaction: Transaction) -> bool:
        ending = self._endings.get(transaction.transactional_id)
        return ending is not None and ending.transaction == transaction

    def send(self, shard: int, transaction: Transaction, coordinator_epoch: int) -> None:
        """Start on a decided transaction; one that is under way already goes on as it is."""
        if self.is_sending(transaction):
            return
        self._drop(transaction.transactional_id)
        ending = _Ending(transaction, shard, coordinator_epoch, set(transaction.partitions))
        self._endings[transaction.transactional_id] = ending
        self._advance(ending)

    def drop_shard(self, shard: int) -> None:
        """Another broker coordinates these transactions now, and sends their markers."""
        for transactional_id in [i for i, ending in self._endings.items() if ending.shard == shard]:
            self._drop(transactional_id)

    async def close(self) -> None:
        for transactional_id in list(self._endings):
            self._drop(transactional_id)
        tasks = [road.task for road in self._roads.values() if road.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._roads.clear()

    def _drop(self, transactional_id: str) -> None:
        ending = self._endings.pop(transactional_id, None)
        if ending is not None and ending.retry is not None:
            ending.retry.cancel()

    def _is_current(self, ending: _Ending) -> bool:
        return self._endings.get(ending.transaction.transactional_id) is ending

    def _advance(self, ending: _Ending) -> None:
        """Send what is missing to whoever leads now; finish if nothing is missing."""
        ending.retry = None
        by_leader: dict[int, list[TopicPartition]] = {}
        leaderless = False
        for partition in sorted(ending.missing - ending.travelling):
            leader = self._transport.leader_of(partition)
            if leader is None:
                ending.missing.discard(partition)
            elif leader < 0:
                leaderless = True
            else:
                by_leader.setdefault(leader, []).append(partition)
        if not ending.missing:
            self._finish(ending)
            return
        for leader, partitions in sorted(by_leader.items()):
            self._enqueue(leader, ending, partitions)
        if leaderless:
            self._retry_later(ending)

    def _finish(self, ending: _Ending) -> None:
        self._drop(ending.transaction.transactional_id)
        self._completed(ending.shard, ending.transaction)

    def _retry_later(self, ending: _Ending) -> None:
        if ending.retry is None:
            loop = asyncio.get_running_loop()
            ending.retry = loop.call_later(ending.retry_seconds, self._advance, ending)
            ending.retry_seconds = min(ending.retry_seconds * 2, LONGEST_RETRY_SECONDS)

    def _enqueue(self, node_id: int, ending: _Ending, partitions: list[TopicPartition]) -> None:
        road = self._roads.setdefault(node_id, _Road())
        ending.travelling.update(partitions)
        road.queue.append((ending, partitions))
        if road.task is None or road.task.done():
            road.task = asyncio.get_running_loop().create_task(self._drive(node_id, road), name=f"markers to {node_id}")

    async def _drive(self, node_id: int, road: _Road) -> None:
        """Send to one broker until nothing waits for it."""
        while road.queue:
            batch = [road.queue.popleft() for _ in range(min(len(road.queue), MAX_MARKERS_PER_REQUEST))]
            batch = [(ending, partitions) for ending, partitions in batch if self._is_current(ending)]
            if not batch:
                continue
            try:
                answers = await self._transport.write_markers(
                    node_id, [ending.marker(partitions) for ending, partitions in batch]
                )
            except (TimeoutError, OSError) as error:
                logger.warning("cannot send transaction markers to broker %d: %s", node_id, error)
                answers = [dict.fromkeys(partitions, int(ErrorCode.NETWORK_EXCEPTION)) for _, partitions in batch]
            for (ending, partitions), codes in zip(batch, answers, strict=True):
                if self._is_current(ending):
                    self._answered(ending, partitions, codes)

    def _answered(self, ending: _Ending, partitions: list[TopicPartition], codes: dict[TopicPartition, int]) -> None:
        retry = False
        ending.travelling.difference_update(partitions)
        for partition in partitions:
            code = codes.get(partition, int(ErrorCode.NETWORK_EXCEPTION))
            if code == ErrorCode.NONE:
                ending.missing.discard(partition)
            elif code in REPLACED:
                logger.info(
                    "the markers of %s are not ours to send any more: %s",
                    ending.transaction.transactional_id,
                    error_name(code),
                )
                self._drop(ending.transaction.transactional_id)
                return
            else:
                if code not in RETRIED:
                    logger.error("%s-%d refused a transaction marker: %s", *partition, error_name(code))
                retry = True
        if not ending.missing:
            self._finish(ending)
        elif retry:
            self._retry_later(ending)
