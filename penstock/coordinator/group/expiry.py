"""When committed offsets, and groups without any, are forgotten (`offsets.retention.minutes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from penstock.coordinator.group.offset_records import OffsetAndMetadata
from penstock.coordinator.group.records import RecordType
from penstock.coordinator.shard_log import Record

if TYPE_CHECKING:
    from penstock.coordinator.group.consumer_group import ConsumerGroup

__all__ = ["group_tombstones", "offset_is_expired"]


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
