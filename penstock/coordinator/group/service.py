"""The group coordinator of one broker: the door that the APIs knock at. Requests in plain types, error codes out.

`broker.groups` is one of these. Everything about a group is decided in its shard (shard.py); here is only which shard,
and what a request gets while there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

from penstock.base.clock import Clock
from penstock.coordinator.group import admin, commands
from penstock.coordinator.group.admin import ClassicDescription, ConsumerDescription, GroupListing
from penstock.coordinator.group.classic_group import JoinResult, SyncResult
from penstock.coordinator.group.classic_join import JoinRequest
from penstock.coordinator.group.classic_members import LeavingMember, SyncRequest
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest, HeartbeatResult
from penstock.coordinator.group.context import GroupContext, NoTopics, Topics
from penstock.coordinator.group.journal import RebalanceEntry
from penstock.coordinator.group.offsets import CommittedOffset, Committer, OffsetToCommit
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.group.subscriptions import Patterns, resolve
from penstock.coordinator.java_hash import partition_of
from penstock.coordinator.runtime import EXCLUSIVE, CoordinatorRuntime, Done
from penstock.coordinator.shard_log import Producer, ShardLog
from penstock.coordinator.timers import Timers
from penstock.protocol.errors import ErrorCode

__all__ = ["TOPIC", "GroupCoordinator"]

TOPIC = "__consumer_offsets"
_NAMES_PER_TURN = 500  # whose visibility is looked at before others get a turn


class GroupCoordinator:
    """One per broker. Shards come and go with the leadership of `__consumer_offsets` partitions."""

    def __init__(
        self,
        log: ShardLog,
        clock: Clock,
        config: GroupConfig,
        partition_count: Callable[[], int],
        *,
        topics: Topics | None = None,
        record_rebalance: Callable[[RebalanceEntry], None] | None = None,
        group_overrides: Callable[[str], Any] | None = None,
        call_soon: Callable[[Callable[[], None]], Any] | None = None,
        call_later: Callable[[float, Callable[[], None]], Any] | None = None,
        new_uuid: Callable[[], UUID] = uuid4,
        write_timeout_ms: int = 5_000,
    ) -> None:
        loop = asyncio.get_running_loop() if call_soon is None or call_later is None else None
        self.clock = clock
        self.config = config
        self._partition_count = partition_count
        self._topics: Topics = topics or NoTopics()
        self._record_rebalance = record_rebalance
        self._group_overrides = group_overrides
        self._new_uuid = new_uuid
        self._matcher: ThreadPoolExecutor | None = None
        self.companions: list[Callable[[], Awaitable[None]]] = []  # what is stopped together with the coordinator
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            TOPIC,
            log,
            clock,
            self._new_shard,
            call_soon=call_soon or (loop.call_soon if loop is not None else _never),
            call_later=call_later or (loop.call_later if loop is not None else _never),
            write_timeout_ms=write_timeout_ms,
        )

    def _new_shard(self, partition: int, timers: Timers) -> GroupShard:
        context = GroupContext(self.config, timers, self._topics, self._new_uuid)
        if self._record_rebalance is not None:
            context.record_rebalance = self._record_rebalance
        if self._group_overrides is not None:
            context.group_overrides = self._group_overrides
        return GroupShard(partition, context, self.clock)

    async def stop(self) -> None:
        self.runtime.close()
        if self._matcher is not None:
            self._matcher.shutdown(wait=False, cancel_futures=True)
        for stop_companion in self.companions:
            await stop_companion()

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group; its leader is the coordinator."""
        return partition_of(group_id, self._partition_count())

    # Classic members -----------------------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinResult:
        future: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()

        def reply(result: JoinResult) -> None:
            if not future.done():
                future.set_result(result)

        def done(error: ErrorCode, _response: Any) -> None:
            if error is not ErrorCode.NONE:
                reply(JoinResult(error, request.member_id))

        if not request.group_id:
            return JoinResult(ErrorCode.INVALID_GROUP_ID, request.member_id)
        self.runtime.write(
            self.partition_for(request.group_id),
            request.group_id,
            lambda shard, now_ms: commands.join(shard, request, reply, now_ms),
            done,
        )
        return await future

    async def sync(self, request: SyncRequest) -> SyncResult:
        future: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()

        def reply(result: SyncResult) -> None:
            if not future.done():
                future.set_result(result)

        def done(error: ErrorCode, _response: Any) -> None:
            # While its shard loads, a member is told to join again rather than to wait for what may never come.
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = ErrorCode.REBALANCE_IN_PROGRESS
            if error is not ErrorCode.NONE:
                reply(SyncResult(error))

        if not request.group_id:
            return SyncResult(ErrorCode.INVALID_GROUP_ID)
        self.runtime.write(
            self.partition_for(request.group_id),
            request.group_id,
            lambda shard, _now_ms: commands.sync(shard, request, reply),
            done,
        )
        return await future

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        """Answered at once: a heartbeat writes nothing."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        error, shard = self.runtime.find(self.partition_for(group_id))
        if shard is None:
            # A member must not lose its place because the coordinator has just moved.
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        return commands.heartbeat(shard, group_id, member_id, generation, instance_id)

    async def leave(self, group_id: str, leaving: list[LeavingMember]) -> tuple[ErrorCode, list[ErrorCode]]:
        """(top-level error, one code per member)"""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        error, response = await self.runtime.submit(
            self.partition_for(group_id),
            group_id,
            lambda shard, now_ms: commands.leave(shard, group_id, leaving, now_ms),
        )
        return _split(error, response)

    # Consumer group members ----------------------------------------------------------------------------------

    async def consumer_heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        request.patterns = await self._patterns(request)
        error, response = await self.runtime.submit(
            self.partition_for(request.group_id),
            request.group_id,
            lambda shard, now_ms: commands.consumer_heartbeat(shard, request, now_ms),
        )
        if error is not ErrorCode.NONE:
            return HeartbeatResult(error)
        result: HeartbeatResult = response
        return result

    async def _patterns(self, request: HeartbeatRequest) -> Patterns | None:
        """What the heartbeat's patterns match, looked up in a thread: one at a time, whoever asks."""
        _, shard = self.runtime.find(self.partition_for(request.group_id))
        if shard is None or request.member_epoch < 0:
            return None
        group = shard.groups.get(request.group_id)
        known = group if isinstance(group, ConsumerGroup) else None
        needed = shard.target.unresolved_patterns(known, request.topic_regex, self.clock.now_ms())
        version = self._topics.version()
        if not needed:
            return Patterns(version, {})
        names = self._topics.names()
        visible: list[str] = []
        for start in range(0, len(names), _NAMES_PER_TURN):
            visible += filter(request.may_describe, names[start : start + _NAMES_PER_TURN])
            await asyncio.sleep(0)
        if self._matcher is None:
            self._matcher = ThreadPoolExecutor(1, thread_name_prefix="patterns")
        return await asyncio.get_running_loop().run_in_executor(self._matcher, resolve, needed, version, visible)

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(
        self, who: Committer, version: int, entries: list[OffsetToCommit], done: Done, retention_ms: int = -1
    ) -> None:
        """`done(error, response)`: the response is a code for all of it, or one per entry (see `offset_codes`)."""
        self.runtime.write(
            self.partition_for(who.group_id),
            None,
            lambda shard, now_ms: commands.commit_offsets(shard, who, version, entries, now_ms, retention_ms),
            done,
        )

    def commit_in_transaction(
        self, who: Committer, producer: Producer, entries: list[OffsetToCommit], guard: Any = None
    ) -> asyncio.Future[tuple[ErrorCode, Any]]:
        """TxnOffsetCommit; the offsets show once `runtime.end_transaction` has written a commit marker."""
        return self.runtime.submit(
            self.partition_for(who.group_id),
            None,
            lambda shard, now_ms: commands.commit_transaction_offsets(shard, who, producer, entries, now_ms, guard),
        )

    async def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        topics: list[tuple[str, list[int]]] | None,
        require_stable: bool,
    ) -> ErrorCode | list[CommittedOffset]:
        error, response = await self.runtime.query(
            self.partition_for(group_id),
            lambda shard: commands.fetch_offsets(shard, group_id, member_id, member_epoch, topics, require_stable),
        )
        if error is not ErrorCode.NONE:
            return error
        result: ErrorCode | list[CommittedOffset] = response
        return result

    async def delete_offsets(
        self, group_id: str, partitions: list[tuple[str, int]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        error, response = await self.runtime.submit(
            self.partition_for(group_id),
            EXCLUSIVE,
            lambda shard, _now_ms: admin.delete_offsets(shard, group_id, partitions),
        )
        return _split(error, response)

    def topics_deleted(self, topics: set[str]) -> None:
        """Topics left the cluster: so do offsets committed for them."""
        for _, shard in self.runtime.machines():
            shard.forget_topics(topics)

    # Administration ------------------------------------------------------------------------------------------

    async def describe(self, group_id: str) -> tuple[ErrorCode, ClassicDescription | None]:
        return await self.runtime.query(
            self.partition_for(group_id), lambda shard: admin.describe_classic(shard, group_id)
        )

    async def describe_consumer_group(self, group_id: str) -> tuple[ErrorCode, ConsumerDescription | None]:
        return await self.runtime.query(
            self.partition_for(group_id), lambda shard: admin.describe_consumer(shard, group_id)
        )

    def list(self) -> tuple[ErrorCode, list[GroupListing]]:
        """The groups whose coordinator this broker is; an error if some of them are still being loaded."""
        if self.runtime.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        return ErrorCode.NONE, [group for _, shard in self.runtime.machines() for group in admin.list_groups(shard)]

    async def delete(self, group_id: str) -> ErrorCode:
        error, response = await self.runtime.submit(
            self.partition_for(group_id), EXCLUSIVE, lambda shard, _now_ms: admin.delete_group(shard, group_id)
        )
        if error is not ErrorCode.NONE:
            return error
        code: ErrorCode = response
        return code


def _split(error: ErrorCode, response: Any) -> tuple[ErrorCode, Any]:
    if error is not ErrorCode.NONE:
        return error, []
    if isinstance(response, ErrorCode):
        return response, []
    return ErrorCode.NONE, response


def _never(*_arguments: Any) -> Any:
    raise RuntimeError("no event loop")
