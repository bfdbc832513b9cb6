"""Questions and orders of administrators to a group shard: describe, list, delete groups, delete offsets."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from penstock.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from penstock.coordinator.group.expiry import group_tombstones
from penstock.coordinator.group.offset_records import offset_slot, offset_tombstone
from penstock.coordinator.group.records import Assignment
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.protocol.errors import ErrorCode

__all__ = [
    "ClassicDescription",
    "ConsumerDescription",
    "GroupListing",
    "delete_group",
    "delete_offsets",
    "describe_classic",
    "describe_consumer",
    "list_groups",
]


@dataclass(slots=True)
class ClassicMemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class ClassicDescription:
    group_id: str
    found: bool = False
    state: str = ClassicState.DEAD.value
    protocol_type: str = ""
    protocol: str = ""
    members: list[ClassicMemberDescription] = field(default_factory=list)
    message: str | None = None


@dataclass(slots=True)
class ConsumerDescription:
    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: list[tuple[ConsumerMember, Assignment]]
    """With each one's target"""


@dataclass(slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    group_type: str


def describe_classic(shard: GroupShard, group_id: str) -> ClassicDescription:
    group = shard.find(group_id)
    if group is None:
        return ClassicDescription(group_id, message=f"Group {group_id} not found.")
    if not isinstance(group, ClassicGroup):
        return ClassicDescription(group_id, message=f"Group {group_id} is not a classic group.")
    stable = group.state is ClassicState.STABLE
    members = [
        ClassicMemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    ]
    protocol = (group.protocol or "") if stable else ""
    return ClassicDescription(group_id, True, group.state.value, group.protocol_type or "", protocol, members)


def describe_consumer(shard: GroupShard, group_id: str) -> ConsumerDescription | None:
    group = shard.find(group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    assignor = group.preferred_assignor(group.members.values(), shard.context.config.consumer_assignors[0])
    members = [(member, group.target.get(member_id, {})) for member_id, member in sorted(group.members.items())]
    return ConsumerDescription(group_id, group.state_name, group.epoch, group.target_epoch, assignor, members)


def list_groups(shard: GroupShard) -> list[GroupListing]:
    listed: list[GroupListing] = []
    for group in shard.all_groups():
        if isinstance(group, ConsumerGroup):
            listed.append(GroupListing(group.group_id, PROTOCOL_TYPE, group.state_name, "consumer"))
        else:
            listed.append(GroupListing(group.group_id, group.protocol_type or "", group.state.value, "classic"))
    return listed


def delete_group(shard: GroupShard, group_id: str) -> Write:
    """The response is an error code."""
    group = shard.find(group_id)
    if group is None:
        return Write(response=ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup):
        if group.state is ClassicState.DEAD:
            return Write(response=ErrorCode.GROUP_ID_NOT_FOUND)
        occupied = group.state is not ClassicState.EMPTY
    else:
        occupied = bool(group.members)
    if occupied:
        return Write(response=ErrorCode.NON_EMPTY_GROUP)
    written = shard.offsets.tombstones(group_id) + group_tombstones(group)
    return Write(written, ErrorCode.NONE, divisible=True)


def delete_offsets(shard: GroupShard, group_id: str, partitions: list[tuple[str, int]]) -> Write:
    """The response is a code for all of it, or one per partition."""
    group = shard.find(group_id)
    if group is None or (isinstance(group, ClassicGroup) and group.state is ClassicState.DEAD):
        return Write(response=ErrorCode.GROUP_ID_NOT_FOUND)
    occupied = isinstance(group, ClassicGroup) and group.state is not ClassicState.EMPTY
    if isinstance(group, ClassicGroup) and occupied and group.protocol_type != PROTOCOL_TYPE:
        return Write(response=ErrorCode.NON_EMPTY_GROUP)
    written: list[Record] = []
    errors: list[ErrorCode] = []
    offsets = shard.offsets.groups.get(group_id)
    for topic, partition in partitions:
        if group.is_subscribed(topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(ErrorCode.NONE)
        slot = offset_slot(topic, partition)
        if offsets is not None and (slot in offsets.committed or offsets.is_pending(slot)):
            written.append(offset_tombstone(group_id, slot))
    return Write(written, errors, divisible=True)
