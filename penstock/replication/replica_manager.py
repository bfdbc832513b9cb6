"""The door to a broker's replicas: appends of a wake-up, the one write at its end, and the waits for their commit.

Nothing here waits; what must wait is parked through `parking`. Which replicas there are: `hosted_replicas`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Clock
from penstock.log.log_manager import LogManager
from penstock.log.results import AppendResult, LogWriteError, Origin
from penstock.protocol.errors import ErrorCode
from penstock.replication.hosted_replicas import HostedReplicas, Replication
from penstock.replication.partition import Partition
from penstock.replication.waits import Parking, Timers

if TYPE_CHECKING:
    from penstock.log.validation import Inspection
    from penstock.log.verifications import VerificationGuard

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview
_NOTHING_FAILED: Mapping[Partition, LogWriteError] = {}


def _nothing_to_schedule() -> None:
    """Whoever appends calls `write_staged` itself."""


class ReplicaManager(HostedReplicas):
    """Only the event loop calls it."""

    def __init__(
        self,
        node_id: int,
        settings: Any,
        clock: Clock,
        log_manager: LogManager,
        timers: Timers,
        replication: Replication | None = None,
    ) -> None:
        super().__init__(node_id, settings, clock, log_manager, replication)
        self.parking = Parking(timers)
        self._dirty: list[Partition] = []
        self.on_dirty: Callable[[], object] = _nothing_to_schedule  # the first append of a wake-up: plan the write
        self.unclaimed_failures: dict[Partition, LogWriteError] = {}  # of whoever wrote, for whoever answers produces

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
        lent: bool = False,
    ) -> AppendResult:
        """Stage one batch; offsets are final unless the write at the end of the wake-up fails.

        acks=-1 demands min ISR before anything is appended. A `leader_epoch` other than -1 refuses when the
        leadership is not the one that the caller (a coordinator) was elected under. `lent`: see `append_lent`.
        """
        partition = self.partitions.get((topic, index))
        if partition is None:
            return AppendResult(ErrorCode(self.hosting_error(topic, index)))
        error = partition.append_error(acks)
        if error or (leader_epoch != -1 and leader_epoch != partition.leader_epoch):
            if error == ErrorCode.NOT_ENOUGH_REPLICAS:
                partition.log.note_refused(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
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
                lent=lent,
            )
        except LogWriteError as error_:
            return self._not_appended(partition, error_)
        if not partition.dirty and not result.error:
            self._mark_dirty(partition)
        return result

    def append_lent(self, partition: Partition, batch: Buffer, acks: int) -> AppendResult:
        """`append` for what producers usually send, without a detour: the caller knows the partition, and hands over a
        batch that the log may change and need not copy, because its bytes stay as they are until `write_staged`."""
        if acks == -1 or not partition.is_leader:
            error = partition.append_error(acks)
            if error:
                return AppendResult(ErrorCode(error))
        try:
            result = partition.log.append_as_leader(batch, partition.leader_epoch, self.clock.now_ms(), lent=True)
        except LogWriteError as write_error:
            return self._not_appended(partition, write_error)
        if not partition.dirty and not result.error:
            self._mark_dirty(partition)
        return result

    def _mark_dirty(self, partition: Partition) -> None:
        partition.dirty = True
        if not self._dirty:
            self.on_dirty()
        self._dirty.append(partition)

    def _not_appended(self, partition: Partition, error: LogWriteError) -> AppendResult:
        partition.write_failed(error)
        if not partition.dirty:
            partition.write_error = None  # nobody else has appended: this answer is the only one to fail
        self._storage_failed(partition, error)
        return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))

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
            self.unclaimed_failures[partition] = error
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

    def _storage_failed(self, partition: Partition, error: LogWriteError) -> None:
        logger.error("%r could not be written: %s", partition, error)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the timers and, in a cluster, fetching. Call it in the running loop."""
        self.replication.start()

    async def stop(self) -> None:
        """Stop fetching and end all waits; logs are closed by their manager."""
        await self.replication.stop()
        await self.moves.stop()
        self.write_staged()
        for partition in list(self.partitions.values()):
            partition.close(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
