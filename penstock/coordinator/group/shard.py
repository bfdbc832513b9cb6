"""The groups of one partition of `__consumer_offsets`: state and its replay. Commands are in commands.py and admin.py.

Classic groups are rewritten by their command and only stored by records (`Write.replay` False); consumer groups and
offsets change by replay alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from penstock.base.clock import Clock
from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState, JoinResult, SyncResult
from penstock.coordinator.group.classic_in_consumer import ClassicInConsumer
from penstock.coordinator.group.classic_join import ClassicJoin
from penstock.coordinator.group.classic_members import ClassicMembers
from penstock.coordinator.group.classic_rebalance import ClassicRebalance
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_heartbeat import ConsumerHeartbeat
from penstock.coordinator.group.consumer_members import ConsumerMembers
from penstock.coordinator.group.consumer_target import ConsumerTarget
from penstock.coordinator.group.context import GroupContext
from penstock.coordinator.group.expiry import OFFSETS_PER_STEP, expiry_round
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.group.offsets import Offsets
from penstock.coordinator.group.records import RecordType
from penstock.coordinator.loader import Row
from penstock.coordinator.runtime import EXCLUSIVE, Write
from penstock.coordinator.shard_log import NO_PRODUCER, Producer, Record
from penstock.protocol.errors import ErrorCode

__all__ = ["Group", "GroupShard"]

logger = logging.getLogger(__name__)

Group = ClassicGroup | ConsumerGroup
_EXPIRY = ("offsets", "expiry")
_GONE_TOPICS = ("offsets", "of deleted topics")
EXPIRY_PAUSE_MS = 20
_OFFSET_COMMIT = int(RecordType.OFFSET_COMMIT)


class GroupShard:
    """State machine of one shard."""

    def __init__(self, partition: int, context: GroupContext, clock: Clock) -> None:
        self.partition = partition
        self.context = context
        self.clock = clock
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets(self._topic_id)
        self._gone_topics: set[str] = set()
        self.live = False
        self._expiry: Iterator[list[Record]] | None = None
        now_ms = clock.now_ms
        self.rebalance = ClassicRebalance(context, self.groups.get, now_ms)
        self.joins = ClassicJoin(self.rebalance)
        self.classic = ClassicMembers(self.rebalance)
        self.target = ConsumerTarget(context, self.groups.get)
        self.heartbeats = ConsumerHeartbeat(context, self.target, self._remove_members)
        self.consumers = ConsumerMembers(context, self.target, self.heartbeats.forget_timers, self._became_classic)
        self.guests = ClassicInConsumer(self.heartbeats, self.consumers)

    # Replay --------------------------------------------------------------------------------------------------

    def replay(self, record: Record, offset: int, producer: Producer) -> None:
        key, value = record
        kind = key[0] << 8 | key[1]
        if kind <= _OFFSET_COMMIT:  # nearly all records of a busy topic: loading is as fast as this branch
            group_end = 4 + (key[2] << 8 | key[3])
            self.offsets.replay(key[4:group_end].decode(), key[group_end:], value, producer)
        elif kind == RecordType.GROUP_METADATA:
            self._replay_classic(records.decode_group_key(key, kind)[0], value)
        elif kind in _CONSUMER_KINDS:
            group_id, second = records.decode_group_key(key, kind)
            self._replay_consumer(kind, group_id, second, value)
        # Other types belong to kinds of groups that are not ours (share, streams).

    def replay_rows(self, rows: list[Row], base_offset: int, producer: Producer) -> None:
        """Offsets of one group come in a row: while nothing else does, they go straight into its table."""
        prefix, prefix_bytes = b"", 0
        committed: dict[bytes, bytes] | None = None
        for delta, key, value in rows:
            if committed is not None and value is not None and key[:prefix_bytes] == prefix:
                committed[key[prefix_bytes:]] = value
                continue
            self.replay(Record(key, value), base_offset + delta, producer)
            committed = None
            if producer is NO_PRODUCER and key[0] == 0 and key[1] <= _OFFSET_COMMIT:
                prefix_bytes = 4 + (key[2] << 8 | key[3])
                prefix = key[:prefix_bytes]
                committed = self.offsets.plain_table(prefix[4:].decode())

    def replay_marker(self, producer: Producer, commit: bool, offset: int) -> None:
        self.offsets.replay_marker(producer.producer_id, commit)

    def _replay_classic(self, group_id: str, value: bytes | None) -> None:
        known = self.groups.get(group_id)
        if value is not None:
            self.groups[group_id] = ClassicGroup.from_record_value(group_id, records.decode_group_metadata(value))
        elif isinstance(known, ClassicGroup):
            self._retire(known, ErrorCode.REBALANCE_IN_PROGRESS)
            del self.groups[group_id]

    def _replay_consumer(self, kind: int, group_id: str, second: str, value: bytes | None) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if kind == RecordType.CONSUMER_GROUP_METADATA:
            if value is None:
                del self.groups[group_id]
            else:
                group.epoch, group.metadata_hash = records.decode_group_epoch(value)
        elif kind == RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            group.apply_member_metadata(second, None if value is None else records.decode_member_metadata(value))
        elif kind == RecordType.CONSUMER_GROUP_TARGET_METADATA:
            group.target_epoch = -1 if value is None else records.decode_target_epoch(value)
        elif kind == RecordType.CONSUMER_GROUP_TARGET_MEMBER:
            group.apply_target(second, None if value is None else records.decode_target_member(value))
        elif kind == RecordType.CONSUMER_GROUP_CURRENT_MEMBER:
            group.apply_current(second, None if value is None else records.decode_current_assignment(value))
        elif kind == RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
            if value is None:
                group.regexes.pop(second, None)
            else:
                group.regexes[second] = records.decode_regex(value)

    # Life ----------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> None:
        self.live = True
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.heartbeats.watch(group, member)
            else:
                self._start_sessions(group)
                if group.awaits_rebalance:
                    self.rebalance.maybe_prepare(group, Cause("other", detail="members left before a fail-over"))
                if len(group.members) > self.context.config.max_size:
                    self.rebalance.maybe_prepare(group, Cause("other", detail="more members than group.max.size"))
        self._schedule_expiry(self.context.config.offsets_retention_check_interval_ms)

    def on_unloaded(self) -> None:
        self.live = False
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self._retire(group, ErrorCode.NOT_COORDINATOR)

    def _retire(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Nobody will ever change this group again: answer who waits in it."""
        for member in list(group.members.values()):
            self.rebalance.reply_join(member, JoinResult(error, member.member_id))
            self.rebalance.reply_sync(member, SyncResult(error))
            self.context.timers.cancel(("session", group.group_id, member.member_id))
        for member_id in group.pending_joins:
            self.context.timers.cancel(("session", group.group_id, member_id))
        self.rebalance.forget(group.group_id)
        group.transition(ClassicState.DEAD, self.clock.now_ms())

    def _start_sessions(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self.rebalance.renew_session(group, member)

    # Groups --------------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """The group; one that has only committed offsets counts as an empty classic one."""
        group = self.groups.get(group_id)
        if group is None and group_id in self.offsets.groups:
            group = self.groups[group_id] = ClassicGroup(group_id, self.clock.now_ms())
        return group

    def all_groups(self) -> list[Group]:
        names = sorted({*self.groups, *self.offsets.groups})
        return [group for name in names if (group := self.find(name)) is not None]

    def _remove_members(self, group: ConsumerGroup, member_ids: list[str], cause: Cause, now_ms: int) -> Write:
        return self.consumers.remove(group, member_ids, cause, now_ms)

    def _became_classic(
        self, before: ConsumerGroup, value: records.GroupMetadataValue, cause: Cause
    ) -> Callable[[ErrorCode], None]:
        """Go on as a classic group at once, before its record is committed: the members left behind must rebalance,
        however long that takes. What comes back undoes it, should the log refuse."""
        classic = ClassicGroup.from_record_value(before.group_id, value)
        self.groups[before.group_id] = classic
        self._start_sessions(classic)
        self.rebalance.maybe_prepare(classic, cause)

        def refused(error: ErrorCode) -> None:
            if self.groups.get(before.group_id) is not classic:
                return
            self._retire(classic, error)
            self.groups[before.group_id] = before
            for member in before.members.values():
                self.heartbeats.watch(before, member)

        return refused

    # Deleted topics ------------------------------------------------------------------------------------------

    def _topic_id(self, name: str) -> bytes:
        topic = self.context.topics.by_name(name)
        return b"" if topic is None else topic.topic_id.bytes

    def forget_topics(self, topics: set[str]) -> None:
        """Topics left the cluster: so do offsets committed for them, a few at a time, until none is left."""
        self._gone_topics |= topics
        self.context.timers.schedule(_GONE_TOPICS, 0, EXCLUSIVE, _forget_gone_topics)

    def forget_gone_topics(self) -> Write:
        topics = set(self._gone_topics)
        written = self.offsets.delete_topics(topics, OFFSETS_PER_STEP)
        if not written:
            self._gone_topics.clear()
            return Write()
        return Write(written, divisible=True, on_committed=lambda: self.forget_topics(set()))

    # Expiry --------------------------------------------------------------------------------------------------

    def _schedule_expiry(self, delay_ms: float) -> None:
        self.context.timers.schedule(_EXPIRY, delay_ms, EXCLUSIVE, _expire)

    def expire(self, now_ms: int) -> Write:
        """The next step of the round that forgets old offsets and groups."""
        if self._expiry is None:
            self._expiry = expiry_round(self, now_ms)
        written = next(self._expiry, None)
        if written is None:
            self._expiry = None
            self._schedule_expiry(self.context.config.offsets_retention_check_interval_ms)
            return Write()
        self._schedule_expiry(EXPIRY_PAUSE_MS)
        return Write(written, divisible=True)


def _expire(shard: Any, now_ms: int) -> Write:
    write: Write = shard.expire(now_ms)
    return write


def _forget_gone_topics(shard: Any, _now_ms: int) -> Write:
    write: Write = shard.forget_gone_topics()
    return write


_CONSUMER_KINDS = frozenset(
    (
        RecordType.CONSUMER_GROUP_METADATA,
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_MEMBER,
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    )
)
