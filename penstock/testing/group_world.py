"""A group coordinator without a broker: the real runtime on a log in memory, with a clock that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.base.clock import ManualClock
from penstock.coordinator.group import admin, commands
from penstock.coordinator.group.classic_group import ClassicGroup, JoinResult, SyncResult
from penstock.coordinator.group.classic_join import JoinRequest
from penstock.coordinator.group.classic_members import LeavingMember, SyncRequest
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest, HeartbeatResult
from penstock.coordinator.group.consumer_protocol import Subscription, encode_subscription
from penstock.coordinator.group.context import TopicInfo
from penstock.coordinator.group.journal import RebalanceEntry
from penstock.coordinator.group.offsets import Committer, OffsetToCommit
from penstock.coordinator.group.service import GroupCoordinator
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.replica_log import encode_batch
from penstock.coordinator.runtime import EXCLUSIVE
from penstock.coordinator.shard_log import Appended, Marker, Producer, Record
from penstock.protocol.batch import BatchHeader, build_marker, patch_offset_and_epoch
from penstock.protocol.errors import ErrorCode


class MemoryLog:
    """`ShardLog` in memory. `commits` False keeps the high watermark where it is until `commit_all`."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.commits = True
        self.refuses = ErrorCode.NONE
        self.max_bytes = 1_048_588
        self.appends = 0
        self._listeners: list[Callable[[int], None]] = []

    def append(
        self,
        partition: int,
        records: list[Record],
        now_ms: int,
        producer: Producer | None,
        leader_epoch: int,
        guard: Any = None,
    ) -> Appended:
        return self._take(partition, encode_batch(records, now_ms, producer))

    def append_marker(self, partition: int, marker: Marker, now_ms: int, leader_epoch: int) -> Appended:
        return self._take(partition, build_marker(*marker.producer, marker.commit, marker.coordinator_epoch, now_ms))

    def _take(self, partition: int, encoded: bytes) -> Appended:
        if self.refuses is not ErrorCode.NONE:
            return Appended(self.refuses)
        if len(encoded) > self.max_bytes:
            return Appended(ErrorCode.MESSAGE_TOO_LARGE)
        self.appends += 1
        base = self.ends.get(partition, 0)
        batch = bytearray(encoded)
        patch_offset_and_epoch(batch, base, 0)
        header = BatchHeader.parse(batch)
        self.batches.setdefault(partition, []).append(bytes(batch))
        self.ends[partition] = header.next_offset
        if self.commits:
            self.committed[partition] = header.next_offset
        return Appended(ErrorCode.NONE, base, header.last_offset)

    def commit_all(self) -> None:
        self.commits = True
        for partition, end in self.ends.items():
            self.committed[partition] = end
            for listener in self._listeners:
                listener(partition)

    def lose_uncommitted(self) -> None:
        """What a failover to another replica does to the end of the log."""
        for partition, batches in self.batches.items():
            end = self.committed.get(partition, 0)
            self.batches[partition] = [batch for batch in batches if BatchHeader.parse(batch).next_offset <= end]
            self.ends[partition] = end

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes

    def committed_offset(self, partition: int) -> int:
        return self.committed.get(partition, 0)

    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        wanted = [b for b in self.batches.get(partition, []) if BatchHeader.parse(b).next_offset > offset]
        taken: list[bytes] = []
        for batch in wanted:
            if taken and sum(map(len, taken)) + len(batch) > max_bytes:
                break
            taken.append(batch)
        return b"".join(taken)

    def on_committed(self, listener: Callable[[int], None]) -> None:
        self._listeners.append(listener)

    def on_lost(self, listener: Callable[[int], None]) -> None:
        pass


class FixedTopics:
    """Topics that a test makes."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self._version = 0

    def create(self, name: str, partitions: int) -> UUID:
        topic_id = UUID(int=len(self.topics) + 1)
        self.topics[name] = TopicInfo(name, topic_id, partitions)
        self._version += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.topics[name] = self.topics[name]._replace(partition_count=partitions)
        self._version += 1

    def by_name(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self.topics)

    def version(self) -> int:
        return self._version


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """One shard (partition 0) that this broker leads."""

    def __init__(self, log: MemoryLog | None = None, clock: ManualClock | None = None, **config: Any) -> None:
        self.clock = clock or ManualClock()
        self.log = log or MemoryLog()
        self.topics = FixedTopics()
        self.journal: list[RebalanceEntry] = []
        self.config = GroupConfig(**config)
        self._soon: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._sequence = 0
        self.coordinator = GroupCoordinator(
            self.log,
            self.clock,
            self.config,
            lambda: 1,
            topics=self.topics,
            record_rebalance=self.journal.append,
            call_soon=self._soon.append,
            call_later=self._later,
        )
        self.runtime = self.coordinator.runtime
        self.lead(1)

    def lead(self, epoch: int) -> None:
        async def load() -> None:
            task = self.runtime.elected(0, epoch)
            if task is not None:
                await task

        asyncio.run(load())

    def fail_over(self) -> None:
        """Another term: everything in memory is lost, of the log what was not committed."""
        self.runtime.resigned(0)
        self.settle()
        self.log.lose_uncommitted()
        self.lead(self.runtime.leader_epoch(0) + 100)

    @property
    def shard(self) -> GroupShard:
        error, machine = self.runtime.find(0)
        assert machine is not None, error
        return machine

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # Time ----------------------------------------------------------------------------------------------------

    def _later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        self._sequence += 1
        heapq.heappush(self._timers, (self.clock.monotonic() + delay, self._sequence, timer))
        return timer

    def settle(self) -> None:
        """Run what this wake-up has scheduled."""
        for _ in range(1000):
            if not self._soon:
                return
            run, self._soon[:] = list(self._soon), []
            for callback in run:
                callback()
        raise AssertionError("the runtime never comes to rest")

    def pass_time(self, milliseconds: float) -> None:
        """Let time pass, running timers at the moments when they are due."""
        end = self.clock.monotonic() + milliseconds / 1000
        self.settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            if due > self.clock.monotonic():
                self.clock.advance((due - self.clock.monotonic()) * 1000)
            if timer.callback is not None:
                timer.callback()
            self.settle()
        if end > self.clock.monotonic():
            self.clock.advance((end - self.clock.monotonic()) * 1000)

    # Requests ------------------------------------------------------------------------------------------------

    def _write(self, key: Any, command: Callable[[GroupShard, int], Any]) -> list[tuple[ErrorCode, Any]]:
        answers: list[tuple[ErrorCode, Any]] = []
        self.runtime.write(0, key, command, lambda error, response: answers.append((error, response)))
        self.settle()
        return answers

    def join(self, member_id: str = "", group_id: str = "g", **changes: Any) -> list[JoinResult]:
        """The list fills when the answer comes."""
        answers: list[JoinResult] = []
        fields: dict[str, Any] = {
            "instance_id": None,
            "protocol_type": "consumer",
            "protocols": [("range", subscription("t"))],
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
        request = JoinRequest(group_id, member_id, **(fields | changes))
        failed = self._write(group_id, lambda shard, now: commands.join(shard, request, answers.append, now))
        answers.extend(JoinResult(error) for error, _ in failed if error is not ErrorCode.NONE)
        return answers

    def join_with_id(self, group_id: str = "g", **changes: Any) -> tuple[str, list[JoinResult]]:
        """Both steps of a first join."""
        (first,) = self.join("", group_id, **changes)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, group_id, **changes)

    def sync(
        self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None, **shares: bytes
    ) -> list[SyncResult]:
        return self.sync_with(SyncRequest(group_id, member_id, generation, instance_id, assignments=dict(shares)))

    def sync_with(self, request: SyncRequest) -> list[SyncResult]:
        answers: list[SyncResult] = []
        failed = self._write(request.group_id, lambda shard, _now: commands.sync(shard, request, answers.append))
        if not answers:
            answers.extend(SyncResult(error) for error, _ in failed if error is not ErrorCode.NONE)
        return answers

    def heartbeat(
        self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None
    ) -> ErrorCode:
        return self.coordinator.heartbeat(group_id, member_id, generation, instance_id)

    def leave(self, *member_ids: str, group_id: str = "g", instance_id: str | None = None) -> list[ErrorCode]:
        leaving = [LeavingMember(member_id, instance_id) for member_id in member_ids]
        ((error, codes),) = self._write(group_id, lambda shard, now: commands.leave(shard, group_id, leaving, now))
        assert error is ErrorCode.NONE
        return list(codes) if isinstance(codes, list) else [codes]

    def commit(
        self,
        member_id: str = "",
        generation: int = -1,
        offset: int = 1,
        group_id: str = "g",
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        version: int = 8,
    ) -> list[ErrorCode]:
        """Codes; empty while the answer is parked."""
        entry = OffsetToCommit(topic, partition, offset, -1, metadata)
        who = Committer(group_id, member_id, None, generation)
        answers = self._write(None, lambda shard, now: commands.commit_offsets(shard, who, version, [entry], now))
        return _codes(answers)

    def commit_in_transaction(self, producer: Producer, offset: int, group_id: str = "g") -> list[ErrorCode]:
        entry = OffsetToCommit("t", 0, offset, -1, "")
        return _codes(
            self._write(
                None,
                lambda shard, now: commands.commit_transaction_offsets(
                    shard, Committer(group_id), producer, [entry], now
                ),
            )
        )

    def end_transaction(self, producer: Producer, commit: bool) -> None:
        from penstock.coordinator.runtime import Write

        self._write(None, lambda _shard, _now: Write(marker=Marker(producer, 0, commit)))

    def committed(self, group_id: str = "g", topic: str = "t", partition: int = 0, stable: bool = False) -> Any:
        """The committed offset, or an error code."""
        found = commands.fetch_offsets(self.shard, group_id, None, -1, [(topic, [partition])], stable)
        assert not isinstance(found, ErrorCode)
        return found[0].offset if found[0].error is ErrorCode.NONE else found[0].error

    def delete_group(self, group_id: str = "g") -> ErrorCode:
        ((error, code),) = self._write(EXCLUSIVE, lambda shard, _now: admin.delete_group(shard, group_id))
        assert error is ErrorCode.NONE
        assert isinstance(code, ErrorCode)
        return code

    def consumer_heartbeat(self, member_id: str, epoch: int, group_id: str = "g", **fields: Any) -> HeartbeatResult:
        request = HeartbeatRequest(group_id, member_id, epoch, **fields)
        ((error, result),) = self._write(group_id, lambda shard, now: commands.consumer_heartbeat(shard, request, now))
        assert error is ErrorCode.NONE, error
        assert isinstance(result, HeartbeatResult)
        return result

    def consumer_join(self, member_id: str, *topics: str, group_id: str = "g", **fields: Any) -> HeartbeatResult:
        fields.setdefault("rebalance_timeout_ms", 30_000)
        if topics:
            fields["topic_names"] = list(topics)
        return self.consumer_heartbeat(member_id, 0, group_id, owned={}, **fields)


def _codes(answers: list[tuple[ErrorCode, Any]]) -> list[ErrorCode]:
    if not answers:
        return []
    ((error, response),) = answers
    if error is not ErrorCode.NONE:
        return [error]
    return [response] if isinstance(response, ErrorCode) else list(response)


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(list(topics), version=1))
