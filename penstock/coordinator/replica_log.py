"""The log of a coordinator's shards on this broker's replicas: `ShardLog` over one internal topic.

It also observes that topic: the replica manager says here when leadership comes and goes and when the high watermark
moves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from penstock.coordinator.shard_log import Appended, Marker, Producer, Record
from penstock.log.results import AppendResult, OffsetOutOfRange, Origin
from penstock.log.validation import Inspection
from penstock.log.verifications import VerificationGuard
from penstock.protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    build_marker,
    seal_batch,
)
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import encode_record
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import ReplicaManager

__all__ = ["ReplicaShardLog", "encode_batch"]

_NOT_COMPRESSED = ("producer", "uncompressed")


def encode_batch(records: list[Record], now_ms: int, producer: Producer | None) -> bytes:
    """One batch at one time. Transactional exactly if it has a producer; its sequence is then always 0, as Kafka's."""
    payload = b"".join([encode_record(delta, 0, key, value, ()) for delta, (key, value) in enumerate(records)])
    return seal_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=0 if producer is None else TRANSACTIONAL_BIT,
        last_offset_delta=len(records) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
        base_sequence=NO_SEQUENCE if producer is None else 0,
        record_count=len(records),
    )


class ReplicaShardLog:
    """Partitions of one internal topic that this broker leads."""

    def __init__(self, replicas: ReplicaManager, topic: str) -> None:
        self._replicas = replicas
        self.topic = topic
        self._committed: list[Callable[[int], None]] = []
        self._lost: list[Callable[[int], None]] = []

    def follow_leadership(self, elected: Callable[[int, int], object], resigned: Callable[[int], None]) -> None:
        """Call `elected(partition, leader_epoch)` and `resigned(partition)`, beginning with what is led already."""
        self._replicas.observe(self.topic, _Observer(elected, resigned, self._committed, self._lost))

    # As ShardLog ---------------------------------------------------------------------------------------------

    def append(
        self,
        partition: int,
        records: list[Record],
        now_ms: int,
        producer: Producer | None,
        leader_epoch: int,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        batch = encode_batch(records, now_ms, producer)
        result = self._replicas.append(
            self.topic,
            partition,
            batch,
            -1,
            origin=Origin.COORDINATOR,
            inspection=self._inspected(partition, batch),
            guard=guard,
            leader_epoch=leader_epoch,
        )
        return self._written(partition, result)

    def _inspected(self, partition: int, batch: bytes) -> Inspection | None:
        """We have just built it: unless the log wants it compressed, there is nothing to look for in it."""
        replica = self._replicas.find(self.topic, partition)
        if replica is None:
            return None
        log: Any = replica.log
        return Inspection(ErrorCode.NONE, batch) if log.config.compression_type in _NOT_COMPRESSED else None

    def append_marker(self, partition: int, marker: Marker, now_ms: int, leader_epoch: int) -> Appended:
        batch = build_marker(
            marker.producer.producer_id,
            marker.producer.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            now_ms,
        )
        result = self._replicas.append(
            self.topic,
            partition,
            batch,
            -1,
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
            leader_epoch=leader_epoch,
        )
        return self._written(partition, result)

    def _written(self, partition: int, result: AppendResult) -> Appended:
        """Write only this partition now: what connections have staged elsewhere is written, and its failure seen, by
        them."""
        if result.error is not ErrorCode.NONE:
            return Appended(result.error)
        replica = self._replicas.find(self.topic, partition)
        if replica is None:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica.write_now()
        if replica.write_error is not None:
            self._replicas.unclaimed_failures[replica] = replica.write_error  # a client may have staged here, too
            replica.write_error = None
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR)
        replica.written()
        return Appended(ErrorCode.NONE, result.base_offset, result.last_offset)

    def _find(self, partition: int) -> Partition:
        replica = self._replicas.find(self.topic, partition)
        if replica is None:
            raise LookupError(f"{self.topic}-{partition} is not hosted here")
        return replica

    def max_batch_bytes(self, partition: int) -> int:
        log: Any = self._find(partition).log
        return int(log.config.max_message_bytes)

    def committed_offset(self, partition: int) -> int:
        replica = self._replicas.find(self.topic, partition)
        return -1 if replica is None else replica.log.high_watermark

    def start_offset(self, partition: int) -> int:
        return self._find(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        return self._find(partition).log.log_end_offset

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        region = self._find(partition).log.read(offset, max_bytes)
        if isinstance(region, OffsetOutOfRange) or region.file is None:
            return b""
        # The region holds the file open, so that a thread may read it: a cold file would stall the loop.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, os.pread, region.file.fd, region.length, region.position)

    def on_committed(self, listener: Callable[[int], None]) -> None:
        self._committed.append(listener)

    def on_lost(self, listener: Callable[[int], None]) -> None:
        self._lost.append(listener)


class _Observer:
    """Passes on what replication says about the partitions of the topic."""

    def __init__(
        self,
        elected: Callable[[int, int], object],
        resigned: Callable[[int], None],
        committed: list[Callable[[int], None]],
        lost: list[Callable[[int], None]],
    ) -> None:
        self._elected = elected
        self._resigned = resigned
        self._committed = committed
        self._lost = lost

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        self._elected(partition, leader_epoch)

    def on_resign(self, topic: str, partition: int, leader_epoch: int) -> None:
        self._resigned(partition)

    def on_committed(self, topic: str, partition: int, high_watermark: int) -> None:
        for listener in self._committed:
            listener(partition)

    def on_lost(self, topic: str, partition: int) -> None:
        for listener in self._lost:
            listener(partition)
