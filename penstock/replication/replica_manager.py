"""All replicas of a broker: it follows the metadata image, and it is the door for appends and reads.

The hot path is `append` for each batch of a wake-up, one `write_staged` at its end, then the answers. Nothing here
waits; what must wait is parked through `parking`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Clock
from penstock.cluster.image import ImageDelta, MetadataImage
from penstock.log.log_manager import LogManager
from penstock.log.results import AppendResult, LogWriteError, Origin
from penstock.protocol.errors import ErrorCode
from penstock.replication.partition import IsrProposal, Partition, PartitionObserver
from penstock.replication.waits import Parking, Timers

if TYPE_CHECKING:
    from penstock.log.producer_state import VerificationGuard
    from penstock.log.validation import Inspection

Buffer = bytes | bytearray | memoryview
TopicPartition = tuple[str, int]
_NOTHING_FAILED: Mapping[Partition, LogWriteError] = {}


class ReplicaManager:
    """Only the event loop calls it."""

    def __init__(
        self,
        node_id: int,
        settings: Any,
        clock: Clock,
        log_manager: LogManager,
        timers: Timers,
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.clock = clock
        self.log_manager = log_manager
        self.image = MetadataImage()
        self.partitions: dict[TopicPartition, Partition] = {}  # hosted here and on line
        self.offline: dict[TopicPartition, str] = {}  # hosted here, but their log directory failed: why
        self.parking = Parking(timers)
        self._dirty: list[Partition] = []
        self._observers: dict[str, PartitionObserver] = {}

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def hosting_error(self, topic: str, index: int) -> int:
        """Why `find` gave None (SEMANTICS 1.1, row 11)."""
        if (topic, index) in self.offline:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.image.partition(topic, index) is not None:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- appends -------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        index: int,
        batch: Buffer,
        acks: int,
        *,
        origin: Origin = Origin.CLIENT,
        inspection: Inspection | None = None,
        guard: VerificationGuard | None = None,
        transaction_version: int = 1,
        leader_epoch: int = -1,
    ) -> AppendResult:
        """Stage one batch; offsets are final unless the write at the end of the wake-up fails.

        acks=-1 demands min ISR before anything is appended. A `leader_epoch` other than -1 refuses when the
        leadership is not the one that the caller (a coordinator) was elected under.
        """
        partition = self.partitions.get((topic, index))
        if partition is None:
            return AppendResult(ErrorCode(self.hosting_error(topic, index)))
        error = partition.append_error(acks)
        if error or (leader_epoch != -1 and leader_epoch != partition.leader_epoch):
            return AppendResult(ErrorCode(error or ErrorCode.NOT_LEADER_OR_FOLLOWER))
        try:
            result = partition.log.append_as_leader(
                batch,
                partition.leader_epoch,
                self.clock.now_ms(),
                origin,
                inspection=inspection,
                guard=guard,
                transaction_version=transaction_version,
            )
        except LogWriteError as error_:
            partition.write_failed(error_)
            if not partition.dirty:
                partition.write_error = None  # nobody else has appended: this answer is the only one to fail
            self._storage_failed(partition, error_)
            return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error_))
        if not partition.dirty and not result.error:
            partition.dirty = True
            self._dirty.append(partition)
        return result

    def write_staged(self) -> Mapping[Partition, LogWriteError]:
        """Write everything appended since the last call, move high watermarks, wake who waits.

        Returns the partitions whose write failed: what was appended to them in this wake-up is void and must be
        answered with KAFKA_STORAGE_ERROR. Call it in the same stretch of code as the appends, before any answer.
        """
        dirty = self._dirty
        if not dirty:
            return _NOTHING_FAILED
        self._dirty = []
        failed: dict[Partition, LogWriteError] = {}
        for partition in dirty:
            partition.write_now()
            if partition.write_error is not None:
                failed[partition] = partition.write_error
                partition.write_error = None
            else:
                partition.written()
        for partition, error in failed.items():
            self._storage_failed(partition, error)
        return failed or _NOTHING_FAILED

    async def committed(self, partition: Partition, offset: int, timeout_ms: int) -> int:
        """Wait until the high watermark reaches `offset` (last offset + 1). Returns an error code."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(errors: list[int]) -> None:
            if not future.done():
                future.set_result(errors[0])

        wait = self.parking.until_committed([(partition, offset)], timeout_ms, done)
        try:
            return await future
        finally:
            self.parking.cancel(wait)

    # -- leadership ----------------------------------------------------------------------------------------------

    def observe(self, topic: str, observer: PartitionObserver) -> None:
        """Tell `observer` about this topic's partitions, beginning with those led already."""
        self._observers[topic] = observer
        for partition in list(self.partitions.values()):
            if partition.topic == topic:
                partition.observer = observer
                if partition.is_leader:
                    observer.on_leader(topic, partition.index, partition.leader_epoch)

    # -- metadata ------------------------------------------------------------------------------------------------

    def apply(self, delta: ImageDelta, image: MetadataImage) -> None:
        """Take in a new image: replicas come, go and change their roles."""
        raise NotImplementedError

    def broker_epoch(self, broker_id: int) -> int | None:
        """See `partition.Membership`."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.shutting_down else broker.epoch

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the timers (ISR shrink) and, in a cluster, the fetchers and the sender of ISR changes."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop fetching and end all waits; logs are closed by their manager."""
        raise NotImplementedError

    def _storage_failed(self, partition: Partition, error: LogWriteError) -> None:
        raise NotImplementedError

    def _propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        raise NotImplementedError


IsrSender = Callable[[list[tuple[Partition, IsrProposal]]], None]
