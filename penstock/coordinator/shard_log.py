"""What a coordinator needs of a log: append a batch, read it back, learn what is committed.

The runtime knows nothing of replicas. `ReplicaShardLog` (coordinator/replica_log.py) satisfies this Protocol with the
broker's replicas; tests and the simulation bring one in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.protocol.errors import ErrorCode

__all__ = ["NO_PRODUCER", "Appended", "Marker", "Producer", "Record", "ShardLog", "coordinator_error"]


class Record(NamedTuple):
    """One record of an internal topic, encoded; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """The transactional producer in whose name records are written."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = Producer(-1, -1)


class Marker(NamedTuple):
    """The end of a transaction in this shard's partition."""

    producer: Producer
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 1


@dataclass(frozen=True, slots=True)
class Appended:
    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1


class ShardLog(Protocol):
    """Logs of one internal topic, by partition. Appends are synchronous; being committed is told by the listener."""

    def append(
        self,
        partition: int,
        records: list[Record],
        now_ms: int,
        producer: Producer | None,
        leader_epoch: int,
        guard: Any = None,
    ) -> Appended:
        """Append `records` as one batch with the demand of acks=all (min ISR is checked before anything is written).

        Those of a producer carry the `guard` of their verification, unless their transaction is open here already.
        """

    def append_marker(self, partition: int, marker: Marker, now_ms: int, leader_epoch: int) -> Appended:
        """Append the control batch that ends a transaction."""

    def max_batch_bytes(self, partition: int) -> int:
        """The largest batch that the log takes (`max.message.bytes`)."""

    def committed_offset(self, partition: int) -> int:
        """The high watermark: records below it survive every failover."""

    def start_offset(self, partition: int) -> int: ...

    def end_offset(self, partition: int) -> int: ...

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`; at least one if there is any; empty at the end of the log."""

    def on_committed(self, listener: Callable[[int], None]) -> None:
        """Call `listener(partition)` whenever the high watermark of a partition moved."""

    def on_lost(self, listener: Callable[[int], None]) -> None:
        """Call `listener(partition)` when appended records could not be written after all (a disk fault)."""


_MAPPED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator's own log refused: clients know coordinators, not their logs."""
    return _MAPPED.get(error, error)
