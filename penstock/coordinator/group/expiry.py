"""When committed offsets, and groups without any, are forgotten (`offsets.retention.minutes`).

A round looks at all offsets of a shard, a few at a time: a million of them must not stall the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from penstock.coordinator.group.offset_records import OffsetAndMetadata, decode_offset, decode_slot, offset_tombstone
from penstock.coordinator.group.records import RecordType
from penstock.coordinator.shard_log import Record

if TYPE_CHECKING:
    from penstock.coordinator.group.consumer_group import ConsumerGroup
    from penstock.coordinator.group.shard import GroupShard

__all__ = ["expiry_round", "group_tombstones", "offset_is_expired"]

OFFSETS_PER_STEP = 2_000


def expiry_round(shard: GroupShard, now_ms: int) -> Iterator[list[Record]]:
    """Tombstones, step by step. Each step's records are replayed before the next is asked for."""
    retention_ms = shard.context.config.offsets_retention_ms
    looked = 0
    written: list[Record] = []
    for group_id in sorted({*shard.groups, *shard.offsets.groups}):
        group = shard.find(group_id)
        if group is None:
            continue
        is_expired = offset_is_expired(group, now_ms, retention_ms)
        offsets = shard.offsets.groups.get(group_id)
        gone = 0
        for slot, value in [] if offsets is None else list(offsets.committed.items()):
            looked += 1
            if looked >= OFFSETS_PER_STEP:
                yield written
                looked, written, gone = 0, [], 0
                group = shard.find(group_id)
                if group is None:
                    break
                is_expired = offset_is_expired(group, now_ms, retention_ms)
            assert offsets is not None
            if offsets.committed.get(slot) is not value or offsets.is_pending(slot):
                continue  # committed anew meanwhile, or a transaction will
            topic = decode_slot(slot)[0]
            if is_expired(topic, decode_offset(value)) or shard.offsets.is_of_another_topic(topic, value):
                written.append(offset_tombstone(group_id, slot))
                gone += 1
        offsets = shard.offsets.groups.get(group_id)
        nothing_left = offsets is None or (gone == len(offsets.committed) and not offsets.pending)
        if group is not None and nothing_left and _may_vanish(group):
            written.extend(group_tombstones(group))
        looked += 1
    yield written


def _may_vanish(group: ClassicGroup | ConsumerGroup) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY and not group.pending_joins
    return not group.members


def offset_is_expired(
    group: ClassicGroup | ConsumerGroup, now_ms: int, retention_ms: int
) -> Callable[[str, OffsetAndMetadata], bool]:
    """A predicate over (topic, committed offset) for this group as it is now."""
    if not isinstance(group, ClassicGroup):
        return lambda topic, offset: (
            not group.is_subscribed(topic) and _is_over(offset, offset.commit_timestamp_ms, now_ms, retention_ms)
        )
    if group.protocol_type is None:  # a simple group: nobody is ever a member
        return lambda _topic, offset: _is_over(offset, offset.commit_timestamp_ms, now_ms, retention_ms)
    if group.state is ClassicState.EMPTY:
        empty_since_ms = group.state_timestamp_ms
        return lambda _topic, offset: _is_over(
            offset, offset.commit_timestamp_ms if empty_since_ms is None else empty_since_ms, now_ms, retention_ms
        )
    if group.state is ClassicState.STABLE and group.protocol_type == PROTOCOL_TYPE:
        return lambda topic, offset: (
            group.subscribed_topics is not None
            and not group.is_subscribed(topic)
            and _is_over(offset, offset.commit_timestamp_ms, now_ms, retention_ms)
        )
    return lambda _topic, _offset: False


def _is_over(offset: OffsetAndMetadata, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp_ms >= 0:  # from the days when clients could ask for an own retention
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def group_tombstones(group: ClassicGroup | ConsumerGroup) -> list[Record]:
    """Forget the group itself."""
    if isinstance(group, ClassicGroup):
        return [records.tombstone(RecordType.GROUP_METADATA, group.group_id)]
    return group.tombstones()
