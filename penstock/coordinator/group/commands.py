"""Commands of clients on a group shard: which kind of group is asked, and what follows. Each returns a `Write`."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicState,
    JoinReply,
    JoinResult,
    SyncReply,
    SyncResult,
)
from penstock.coordinator.group.classic_join import JoinRequest
from penstock.coordinator.group.classic_members import LeavingMember, SyncRequest
from penstock.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest, HeartbeatResult
from penstock.coordinator.group.consumer_members import to_consumer_group
from penstock.coordinator.group.offsets import CommittedOffset, Committer, OffsetToCommit
from penstock.coordinator.group.records import RecordType
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Producer
from penstock.protocol.errors import ErrorCode

__all__ = [
    "commit_offsets",
    "commit_transaction_offsets",
    "consumer_heartbeat",
    "fetch_offsets",
    "heartbeat",
    "join",
    "leave",
    "sync",
]


def join(shard: GroupShard, request: JoinRequest, reply: JoinReply, now_ms: int) -> Write:
    config = shard.context.config
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        reply(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        return Write()
    group = shard.find(request.group_id)
    if isinstance(group, ConsumerGroup):
        if group.members:
            return shard.guests.join(group, request, reply, now_ms)
        return _replace_empty_consumer_group(shard, group, request, reply, now_ms)
    if group is not None:
        is_simple = group.protocol_type is None and not group.members and not group.pending_joins
        return shard.joins.join(group, request, reply, is_new_group=is_simple and request.member_id == "")
    if request.member_id != "":
        reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        return Write()
    group = ClassicGroup(request.group_id, now_ms)
    if group.supports(request.protocol_type, [name for name, _ in request.protocols]):
        shard.groups[request.group_id] = group
    return shard.joins.join(group, request, reply, is_new_group=True)


def _replace_empty_consumer_group(
    shard: GroupShard, group: ConsumerGroup, request: JoinRequest, reply: JoinReply, now_ms: int
) -> Write:
    """A classic consumer comes to a consumer group that nobody uses: the group changes its kind, offsets stay."""
    if request.member_id != "":
        reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        return Write()
    classic = ClassicGroup(group.group_id, now_ms)
    tombstones = group.tombstones()
    shard.groups[group.group_id] = classic
    write = shard.joins.join(classic, request, reply, is_new_group=True)
    write.records[:0] = tombstones
    replied = write.on_failed

    def failed(error: ErrorCode) -> None:
        shard.groups[group.group_id] = group
        if replied is not None:
            replied(error)

    write.on_failed = failed
    return write


def sync(shard: GroupShard, request: SyncRequest, reply: SyncReply) -> Write:
    group = shard.find(request.group_id)
    if group is None:
        reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return Write()
    if isinstance(group, ConsumerGroup):
        return shard.guests.sync(group, request, reply)
    return shard.classic.sync(group, request, reply)


def heartbeat(shard: GroupShard, group_id: str, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
    """Writes nothing, so that it needs no command."""
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ConsumerGroup):
        return shard.guests.heartbeat(group, member_id, generation, instance_id)
    return shard.classic.heartbeat(group, member_id, generation, instance_id)


def leave(shard: GroupShard, group_id: str, leaving: list[LeavingMember], now_ms: int) -> Write:
    """The response: one code per member."""
    group = shard.find(group_id)
    if group is None:
        return Write(response=[ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving))
    if isinstance(group, ConsumerGroup):
        return shard.guests.leave(group, leaving, now_ms)
    return shard.classic.leave(group, leaving)


def consumer_heartbeat(shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> Write:
    if request.server_assignor is not None and request.server_assignor not in shard.context.config.consumer_assignors:
        message = f"supported assignors are {', '.join(shard.context.config.consumer_assignors)}"
        return Write(response=HeartbeatResult(ErrorCode.UNSUPPORTED_ASSIGNOR, message=message))
    group = shard.find(request.group_id)
    if isinstance(group, ConsumerGroup):
        return shard.heartbeats.heartbeat(group, request, now_ms)
    if request.member_epoch != 0:
        message = f"group {request.group_id} is not a consumer group"
        return Write(response=HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, message=message))
    if group is None:
        return shard.heartbeats.heartbeat(_new_consumer_group(request.group_id), request, now_ms)
    if group.state is ClassicState.EMPTY:
        write = shard.heartbeats.heartbeat(_new_consumer_group(request.group_id), request, now_ms)
        if write.records:
            write.records.insert(0, records.tombstone(RecordType.GROUP_METADATA, group.group_id))
        return write
    return _upgrade(shard, group, request, now_ms)


def _new_consumer_group(group_id: str) -> ConsumerGroup:
    """Its first member comes to epoch 2, as with Kafka: 1 is the epoch of a group that nobody has joined."""
    group = ConsumerGroup(group_id)
    group.epoch = 1
    return group


def _upgrade(shard: GroupShard, classic: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> Write:
    converted = to_consumer_group(classic, shard.context)
    if isinstance(converted, ErrorCode):
        message = f"classic group {request.group_id} cannot become a consumer group"
        return Write(response=HeartbeatResult(converted, message=message))
    write = shard.heartbeats.heartbeat(converted.group, request, now_ms)
    if write.records:
        write.records[:0] = converted.written
        for member in converted.group.members.values():
            shard.heartbeats.watch(converted.group, member)
    return write


# Offsets -----------------------------------------------------------------------------------------------------------


def commit_offsets(
    shard: GroupShard,
    who: Committer,
    version: int,
    entries: list[OffsetToCommit],
    now_ms: int,
    retention_ms: int = -1,
) -> Write:
    """The response: a code for all of it, or one per entry. `retention_ms` -1: what the broker is set to."""
    error = _check_commit(shard, who, version, entries)
    if error is not ErrorCode.NONE:
        return Write(response=error)
    written, errors = shard.offsets.commit_records(
        who.group_id, entries, now_ms, shard.context.config.offset_metadata_max_bytes, retention_ms
    )
    return Write(written, errors)


def _check_commit(shard: GroupShard, who: Committer, version: int, entries: list[OffsetToCommit]) -> ErrorCode:
    group_id, member_id, instance_id, generation = who
    group = shard.groups.get(group_id) or shard.find(group_id)
    if group is None:
        if generation < 0:
            return ErrorCode.NONE  # a simple committer starts the group
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ClassicGroup):
        return shard.classic.check_commit(group, member_id, instance_id, generation, transactional=False)
    if generation < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is not None and member.classic is None and version < 9:
        return ErrorCode.UNSUPPORTED_VERSION
    error = _check_consumer_commit(shard, group, member, generation, entries)
    if error is ErrorCode.NONE and member is not None and member.classic is not None:
        shard.heartbeats.watch(group, member)
    return error


def _check_consumer_commit(
    shard: GroupShard, group: ConsumerGroup, member: ConsumerMember | None, epoch: int, entries: list[OffsetToCommit]
) -> ErrorCode:
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    topics = {topic: shard.context.topics.by_name(topic) for topic in {entry.topic for entry in entries}}
    places = [(info.topic_id if (info := topics[entry.topic]) else None, entry.partition) for entry in entries]
    if group.may_commit(member, epoch, places):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def commit_transaction_offsets(
    shard: GroupShard,
    who: Committer,
    producer: Producer,
    entries: list[OffsetToCommit],
    now_ms: int,
    guard: Any = None,
) -> Write:
    """TxnOffsetCommit: pending until the marker. The response as for `commit_offsets`."""
    group_id, member_id, instance_id, generation = who
    group = shard.find(group_id)
    error = ErrorCode.NONE
    if group is None:
        if generation >= 0:
            error = ErrorCode.ILLEGAL_GENERATION
    elif isinstance(group, ClassicGroup):
        error = shard.classic.check_commit(group, member_id, instance_id, generation, transactional=True)
    elif generation >= 0 or member_id:
        error = _check_consumer_commit(shard, group, group.members.get(member_id), generation, entries)
    if error is not ErrorCode.NONE:
        return Write(response=error)
    written, errors = shard.offsets.commit_records(
        group_id, entries, now_ms, shard.context.config.offset_metadata_max_bytes
    )
    return Write(written, errors, producer=producer, guard=guard)


def fetch_offsets(
    shard: GroupShard,
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    topics: list[tuple[str, list[int]]] | None,
    require_stable: bool,
) -> ErrorCode | list[CommittedOffset]:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup) and (member_id or member_epoch >= 0):
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is not None:
            if member_epoch >= 0 and member_epoch != member.member_epoch:
                return ErrorCode.ILLEGAL_GENERATION
        elif member_epoch != member.member_epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
    return shard.offsets.fetch(group_id, topics, require_stable)
