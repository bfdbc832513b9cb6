"""The coordinator runtime: one shard per partition of an internal topic.

    command(machine, now_ms) -> Write(records, response)     decides; changes nothing that is in the log
    machine.replay(record, offset, producer)                 the only thing that changes such state
    loading a shard                                          = replay of its partition, from the start

A response is parked until the records behind it are committed (high watermark), so that no client ever hears of state
that a failover could take back. Commands of one wake-up share one append where they can. Records are replayed after
the log has taken them: a refused append leaves nothing to undo. A command therefore must not run while records of an
earlier command under the same key wait for the append of this wake-up; it waits behind it, in order. Commands that
conflict with nothing (offset commits) pass `key=None`; those that must see everything of this wake-up (deletions) pass
`key=EXCLUSIVE`.

Pure of I/O: log, clock, `call_soon` and `call_later` are handed in. What may not live here: anything about groups or
transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Generic

from penstock.base.clock import Clock
from penstock.coordinator.answers import Answers
from penstock.coordinator.loader import load_partition
from penstock.coordinator.shard_log import NO_PRODUCER, Appended, Marker, Record, ShardLog, coordinator_error
from penstock.coordinator.shards import (
    BATCH_OVERHEAD_BYTES,
    EXCLUSIVE,
    MAX_BATCH_BYTES,
    Command,
    Done,
    M,
    Shard,
    ShardState,
    ShardTimers,
    StateMachine,
    Write,
    pieces_of,
    runs_of,
)
from penstock.coordinator.timer_driver import TimerDriver
from penstock.coordinator.timers import Timers
from penstock.protocol.errors import ErrorCode

__all__ = ["EXCLUSIVE", "Command", "CoordinatorRuntime", "Done", "StateMachine", "Write"]

logger = logging.getLogger(__name__)

MAX_ROUNDS_PER_WAKE_UP = 1_000


class CoordinatorRuntime(Generic[M]):
    """Shards of one internal topic on this broker."""

    def __init__(
        self,
        name: str,
        log: ShardLog,
        clock: Clock,
        machine_factory: Callable[[int, Timers], M],
        *,
        call_soon: Callable[[Callable[[], None]], Any],
        call_later: Callable[[float, Callable[[], None]], Any],
        write_timeout_ms: int = 5_000,
        max_parked: int = 100_000,
        load_slice_bytes: int = 1 << 20,
    ) -> None:
        self.name = name
        self.log = log
        self.clock = clock
        self._machine_factory = machine_factory
        self._call_soon = call_soon
        self._max_parked = max_parked
        self._load_slice_bytes = load_slice_bytes
        self._shards: dict[int, Shard[M]] = {}
        self._timers = TimerDriver(name, self._shards, clock, call_later, self.write)
        self._answers = Answers(name, log, self._timers, write_timeout_ms)
        log.on_committed(self.advance)
        log.on_lost(self.reload)

    # Leadership ------------------------------------------------------------------------------------------------

    def elected(self, partition: int, leader_epoch: int) -> asyncio.Task[None] | None:
        """This broker leads the partition now: load it in the background (needs a running event loop)."""
        shard = self._shards.get(partition)
        if shard is not None and shard.leader_epoch >= leader_epoch and shard.state is not ShardState.FAILED:
            return None
        self.resigned(partition)
        self._shards[partition] = shard = Shard(partition, leader_epoch)
        return asyncio.get_running_loop().create_task(self._load(shard), name=f"load {self.name}-{partition}")

    def resigned(self, partition: int) -> None:
        """Another broker leads the partition: forget it, and say so to whoever waits."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._drop(shard, ErrorCode.NOT_COORDINATOR)

    def reload(self, partition: int) -> None:
        """The log lost records that were already replayed: what is in the log is the truth, read it again."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._drop(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.elected(partition, shard.leader_epoch)

    def close(self) -> None:
        for partition in list(self._shards):
            self.resigned(partition)

    async def _load(self, shard: Shard[M]) -> None:
        timers = ShardTimers(shard.timers, self._timers.now_ms, self._timers.arm)
        shard.machine = self._machine_factory(shard.partition, timers)
        try:
            shard.loaded_records = await load_partition(
                self.log,
                shard.partition,
                shard.machine,
                slice_bytes=self._load_slice_bytes,
                still_wanted=lambda: self._shards.get(shard.partition) is shard,
            )
        except Exception:
            logger.exception("cannot load %s-%d", self.name, shard.partition)
            shard.state = ShardState.FAILED
            return
        if self._shards.get(shard.partition) is not shard:
            return
        shard.last_appended_offset = self.log.end_offset(shard.partition) - 1
        shard.state = ShardState.ACTIVE
        self._answers.guarded(lambda: shard.machine.on_loaded(self.clock.now_ms()))
        self._timers.arm()

    def _drop(self, shard: Shard[M], error: ErrorCode) -> None:
        shard.timers.clear()
        waiting = [(parked.write, parked.done) for parked in shard.parked] + shard.pending
        deferred = list(shard.deferred)
        was_active = shard.state is ShardState.ACTIVE
        shard.state = ShardState.FAILED
        shard.parked.clear()
        shard.overdue.clear()
        shard.deferred.clear()
        shard.pending = []
        for write, done in waiting:
            self._answers.fail(write, done, error)
        for _, _, done in deferred:
            self._answers.guarded(lambda done=done: done(error, None))  # type: ignore[misc]
        if was_active:
            self._answers.guarded(shard.machine.on_unloaded)

    # Asking ----------------------------------------------------------------------------------------------------

    def find(self, partition: int) -> tuple[ErrorCode, M | None]:
        """The state machine that answers for the partition, or why there is none."""
        shard = self._shards.get(partition)
        if shard is None or shard.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR, None
        if shard.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return ErrorCode.NONE, shard.machine

    def machines(self) -> Iterator[tuple[int, M]]:
        """The machines that answer now."""
        for partition, shard in sorted(self._shards.items()):
            if shard.state is ShardState.ACTIVE:
                yield partition, shard.machine

    @property
    def loading(self) -> bool:
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    def partitions(self) -> dict[int, ShardState]:
        return {partition: shard.state for partition, shard in self._shards.items()}

    def leader_epoch(self, partition: int) -> int:
        shard = self._shards.get(partition)
        return -1 if shard is None else shard.leader_epoch

    def write(self, partition: int, key: Hashable, command: Command, done: Done) -> None:
        """Run a command; `done(error, response)` is called once its records are committed, or it failed."""
        shard = self._shards.get(partition)
        if shard is None or shard.state is not ShardState.ACTIVE:
            done(self.find(partition)[0], None)
        elif len(shard.parked) + len(shard.deferred) + len(shard.pending) >= self._max_parked:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        elif key is not None and self._must_wait(shard, key):
            shard.deferred.append((key, command, done))
        else:
            self._run(shard, key, command, done)

    def read(self, partition: int, query: Callable[[M], Any], done: Done) -> None:
        """Answer from state; the answer waits until all that it may have seen is committed."""
        shard = self._shards.get(partition)
        if shard is None or shard.state is not ShardState.ACTIVE:
            done(self.find(partition)[0], None)
            return
        try:
            response = query(shard.machine)
        except Exception:
            logger.exception("a query failed on %s-%d", self.name, partition)
            done(ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return
        if self.log.committed_offset(partition) > shard.last_appended_offset:
            done(ErrorCode.NONE, response)
        else:
            self._answers.park(shard, shard.last_appended_offset, Write(response=response), done)

    def submit(self, partition: int, key: Hashable, command: Command) -> asyncio.Future[tuple[ErrorCode, Any]]:
        """`write` for callers that await: (error, response)."""
        future, done = _future()
        self.write(partition, key, command, done)
        return future

    def query(self, partition: int, query: Callable[[M], Any]) -> asyncio.Future[tuple[ErrorCode, Any]]:
        """`read` for callers that await: (error, response)."""
        future, done = _future()
        self.read(partition, query, done)
        return future

    def end_transaction(self, partition: int, marker: Marker) -> asyncio.Future[tuple[ErrorCode, Any]]:
        """Write the end of a transaction into the partition and let the machine publish or drop what was pending."""
        return self.submit(partition, None, lambda _machine, _now_ms: Write(marker=marker))

    # Writing ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _must_wait(shard: Shard[M], key: Hashable) -> bool:
        if key is EXCLUSIVE:
            return bool(shard.pending)
        return key in shard.dirty or any(waiting == key for waiting, _, _ in shard.deferred)

    def _run(self, shard: Shard[M], key: Hashable, command: Command, done: Done) -> None:
        try:
            write = command(shard.machine, self.clock.now_ms())
        except Exception:
            logger.exception("a command failed on %s-%d", self.name, shard.partition)
            done(ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return
        if not write.records and write.marker is None:
            if write.after_commit and self.log.committed_offset(shard.partition) <= shard.last_appended_offset:
                self._answers.park(shard, shard.last_appended_offset, write, done)
                return
            self._answers.succeed(write, done)
            return
        shard.pending.append((write, done))
        if key is not None:
            shard.dirty.add(key)
        if not shard.flush_scheduled and not shard.flushing:
            shard.flush_scheduled = True
            self._call_soon(lambda: self._flush(shard))

    def _flush(self, shard: Shard[M]) -> None:
        """Append what this wake-up decided; then let those run that waited behind it, and append theirs."""
        shard.flush_scheduled = False
        shard.flushing = True
        try:
            for _ in range(MAX_ROUNDS_PER_WAKE_UP):
                pending, shard.pending = shard.pending, []
                if pending:
                    max_bytes = self._batch_bytes(shard.partition)
                    for run in runs_of(pending, max_bytes):
                        self._append(shard, run, max_bytes)
                shard.dirty.clear()
                waiting, shard.deferred = shard.deferred, deque()
                for key, command, done in waiting:
                    if key is not None and self._must_wait(shard, key):
                        shard.deferred.append((key, command, done))
                    else:
                        self._run(shard, key, command, done)
                if not shard.pending:
                    break
        finally:
            shard.flushing = False
        if shard.pending:
            shard.flush_scheduled = True
            self._call_soon(lambda: self._flush(shard))
        self.advance(shard.partition)

    def _batch_bytes(self, partition: int) -> int:
        try:
            allowed = self.log.max_batch_bytes(partition)
        except LookupError:  # it is leaving us: the append says so
            return MAX_BATCH_BYTES
        return max(1, min(MAX_BATCH_BYTES, allowed - BATCH_OVERHEAD_BYTES))

    def _append(self, shard: Shard[M], run: list[tuple[Write, Done]], max_bytes: int) -> None:
        """Append and replay the writes of a run; those of a divisible one piece by piece."""
        first = run[0][0]
        if first.marker is not None:
            pieces: list[list[Record]] = [[]]
        elif first.divisible:
            pieces = list(pieces_of(first.records, max_bytes))
        else:
            pieces = [first.records if len(run) == 1 else [record for write, _ in run for record in write.records]]
        last_offset = -1
        for piece in pieces:
            appended = self._append_piece(shard, first, piece)
            if appended.error is not ErrorCode.NONE:
                for write, done in run:
                    self._answers.refuse(write, done, appended.error)
                return
            last_offset = shard.last_appended_offset = appended.last_offset
            if first.divisible:
                self._replay(shard, replace(first, records=piece), appended.base_offset)
                continue
            offset = appended.base_offset
            for write, _ in run:
                self._replay(shard, write, offset)
                offset += len(write.records)
        for write, done in run:
            self._answers.park(shard, last_offset, write, done)

    def _append_piece(self, shard: Shard[M], write: Write, records: list[Record]) -> Appended:
        """The error is in the words that clients of a coordinator know."""
        if shard.state is not ShardState.ACTIVE:
            return Appended(ErrorCode.NOT_COORDINATOR)
        now_ms = self.clock.now_ms()
        try:
            if write.marker is not None:
                appended = self.log.append_marker(shard.partition, write.marker, now_ms, shard.leader_epoch)
            else:
                appended = self.log.append(
                    shard.partition, records, now_ms, write.producer, shard.leader_epoch, write.guard
                )
        except OSError:
            logger.exception("cannot append to %s-%d", self.name, shard.partition)
            self.reload(shard.partition)
            return Appended(ErrorCode.NOT_COORDINATOR)
        if appended.error is not ErrorCode.NONE:
            return Appended(coordinator_error(appended.error))
        return appended

    def _replay(self, shard: Shard[M], write: Write, offset: int) -> None:
        machine = shard.machine
        if write.marker is not None:
            machine.replay_marker(write.marker.producer, write.marker.commit, offset)
        elif write.replay:
            producer = write.producer or NO_PRODUCER
            for record in write.records:
                machine.replay(record, offset, producer)
                offset += 1

    def advance(self, partition: int) -> None:
        """The high watermark moved: answer whom it passed."""
        shard = self._shards.get(partition)
        if shard is not None:
            self._answers.advance(shard)

    def run_timers(self) -> None:
        """Run what is due."""
        self._timers.run_due()


def _future() -> tuple[asyncio.Future[tuple[ErrorCode, Any]], Done]:
    future: asyncio.Future[tuple[ErrorCode, Any]] = asyncio.get_running_loop().create_future()

    def done(error: ErrorCode, response: Any) -> None:
        if not future.done():  # the asking connection may have gone away
            future.set_result((error, response))

    return future, done
