"""Moving replicas between the log directories of a broker (KIP-113): copy beside, catch up, swap.

The copy runs in slices on the loop, so that appends and reads go on; the last slice and the swap happen in one stretch
of code, so that nothing can be appended in between.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log import future_log
from penstock.log.damage import UNREADABLE
from penstock.log.files import fsync_path
from penstock.log.log import Log
from penstock.log.results import LogWriteError
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.replication.hosted_replicas import HostedReplicas
    from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024
_NONE = int(ErrorCode.NONE)
TopicPartition = tuple[str, int]


class LogDirMoves:
    """At most one move per replica."""

    def __init__(self, replicas: HostedReplicas) -> None:
        self._replicas = replicas
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.futures: dict[TopicPartition, Log] = {}

    def move(self, topic: str, index: int, directory: Path) -> int:
        """Begin to move a replica; an error code. A move to where it lies ends one that is under way."""
        manager = self._replicas.log_manager
        where = (topic, index)
        if directory in manager.failed_directories:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if directory not in manager.directories:
            return int(ErrorCode.LOG_DIR_NOT_FOUND)
        partition = self._replicas.find(topic, index)
        if partition is None:
            if where in self._replicas.offline:
                return int(ErrorCode.KAFKA_STORAGE_ERROR)
            return int(ErrorCode.REPLICA_NOT_AVAILABLE)
        log = partition.log
        assert isinstance(log, Log)
        under_way = self.futures.get(where)
        if under_way is not None and under_way.directory.parent == directory:
            return _NONE
        self.cancel(where)
        if log.directory.parent == directory:
            return _NONE
        try:
            future = future_log.begin(manager, log, directory)
        except OSError as error:
            manager.fail_directory(directory, error)
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        self.futures[where] = future
        self._tasks[where] = asyncio.get_running_loop().create_task(self._run(where, partition, future))
        return _NONE

    def cancel(self, where: TopicPartition) -> None:
        task = self._tasks.pop(where, None)
        if task is not None:
            task.cancel()
        future = self.futures.pop(where, None)
        if future is not None:
            future_log.abandon(self._replicas.log_manager, future)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for where in list(self._tasks):
            self.cancel(where)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, where: TopicPartition, partition: Partition, future: Log) -> None:
        manager = self._replicas.log_manager
        try:
            await self._copy(where, partition, future)
        except (LogWriteError, *UNREADABLE) as error:
            logger.error("moving %s-%d to %s failed: %s", *where, future.directory.parent, error)
            if self.futures.get(where) is future:
                del self.futures[where]
                future_log.abandon(manager, future)
        finally:
            if self.futures.get(where) is not future:
                self._tasks.pop(where, None)

    async def _copy(self, where: TopicPartition, partition: Partition, future: Log) -> None:
        log = partition.log
        assert isinstance(log, Log)
        truncations = log.truncations
        flushed = False
        while self._replicas.partitions.get(where) is partition:
            if log.truncations != truncations or future.log_end_offset < log.log_start_offset:
                # What was copied may not be what is there now, or is gone by now: once more from the start.
                truncations = log.truncations
                future.truncate_fully_and_start_at(log.log_start_offset)
            partition.write_now()
            data = log.read_bytes(future.log_end_offset, SLICE_BYTES)
            if data:
                future.append_as_follower(data)
                future.write_staged()
            elif not flushed:
                # The bulk becomes durable without holding up the loop; what comes meanwhile is little.
                future.write_staged()
                flushed = True
                await asyncio.get_running_loop().run_in_executor(None, _sync_files, future)
                continue
            else:
                self._swap(where, partition, log, future)
                return
            await asyncio.sleep(0)

    def _swap(self, where: TopicPartition, partition: Partition, log: Log, future: Log) -> None:
        future.set_high_watermark(log.high_watermark)
        epochs = [(epoch, start) for epoch, start in log.epochs.entries() if start >= log.log_start_offset]
        for epoch, start in epochs:
            if epoch > (future.latest_epoch() or -1):
                future.assign_epoch_start(epoch, start)  # epochs that nobody has written in yet
        promoted = future_log.promote(self._replicas.log_manager, log, future)
        partition.take_log(promoted)
        del self.futures[where]
        logger.info("%r now lies in %s", partition, promoted.directory.parent)


def _sync_files(future: Log) -> None:
    for segment in list(future.segments):
        fsync_path(segment.path)
