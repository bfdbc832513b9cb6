"""How members of a consumer group go: removal with its epoch bump, and the way back to a classic group (downgrade)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import ClassicGroup
from penstock.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from penstock.coordinator.group.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from penstock.coordinator.group.consumer_target import ConsumerTarget
from penstock.coordinator.group.context import GroupContext
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.group.records import (
    Assignment,
    ClassicProtocols,
    GroupMetadataValue,
    RecordType,
    StoredMember,
)
from penstock.coordinator.group.subscriptions import metadata_hash
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord
from penstock.protocol.errors import ErrorCode

__all__ = ["ConsumerMembers", "Converted", "serialized_assignment", "to_consumer_group"]

_UPGRADE = ("upgrade", "bidirectional")
_DOWNGRADE = ("downgrade", "bidirectional")


class ConsumerMembers:
    """Removal from the consumer groups of one shard."""

    def __init__(
        self,
        context: GroupContext,
        target: ConsumerTarget,
        forget_timers: Callable[[str, str], None],
        became_classic: Callable[[ConsumerGroup, GroupMetadataValue, Cause], Callable[[ErrorCode], None]],
    ) -> None:
        self.context = context
        self.target = target
        self._forget_timers = forget_timers
        self._became_classic = became_classic

    def remove(self, group: ConsumerGroup, member_ids: list[str], cause: Cause, now_ms: int) -> Write:
        """Take members out: the epoch moves, others pick up their partitions at their next heartbeat."""
        remaining = [member for key, member in group.members.items() if key not in member_ids]
        if self._should_downgrade(remaining):
            return self._downgrade(group, remaining, cause)
        self.target.trace(group, cause, now_ms)
        written: list[Record] = []
        for member_id in member_ids:
            written.extend(group.member_tombstones(member_id))
        used = {member.topic_regex for member in remaining}
        kind = RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION
        unused = [regex for regex in sorted(group.regexes) if regex not in used]
        written.extend(records.tombstone(kind, group.group_id, regex) for regex in unused)
        new_hash = metadata_hash(group.subscribed_topics(remaining), self.context.topics)
        written.append(records.encode_group_epoch(group.group_id, group.epoch + 1, new_hash))

        def committed() -> None:
            for member_id in member_ids:
                self._forget_timers(group.group_id, member_id)
            self.target.finish_trace(group.group_id, now_ms)

        return Write(written, on_committed=committed)

    def maybe_downgrade(self, group: ConsumerGroup, cause: Cause) -> Write:
        """A static member came back with the classic protocol: maybe nobody speaks the other one any longer."""
        remaining = list(group.members.values())
        return self._downgrade(group, remaining, cause) if self._should_downgrade(remaining) else Write()

    def _should_downgrade(self, remaining: list[ConsumerMember]) -> bool:
        return (
            bool(remaining)
            and all(member.classic is not None for member in remaining)
            and self.context.config.consumer_migration_policy in _DOWNGRADE
            and len(remaining) <= self.context.config.max_size
        )

    def _downgrade(self, group: ConsumerGroup, remaining: list[ConsumerMember], cause: Cause) -> Write:
        """Only classic-protocol members are left: become a classic group of the same generation, and rebalance."""
        written = group.tombstones()
        common = [
            name
            for name, _ in _protocols(remaining[0])
            if all(name in dict(_protocols(member)) for member in remaining)
        ]
        protocol = common[0] if common else _protocols(remaining[0])[0][0]
        stored = [
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms if member.classic is not None else member.rebalance_timeout_ms,
                dict(_protocols(member)).get(protocol, b""),
                serialized_assignment(member.assigned, self.context),
            )
            for member in remaining
        ]
        # No leader: whoever loads this knows that the shares of those who left wait for a rebalance.
        value = GroupMetadataValue(PROTOCOL_TYPE, group.epoch, protocol, None, -1, stored)
        written.append(records.encode_group_metadata(group.group_id, value))
        for member_id in group.members:
            self._forget_timers(group.group_id, member_id)
        self.target.forget(group.group_id)
        return Write(written, replay=False, on_refused=self._became_classic(group, value, cause))


def _protocols(member: ConsumerMember) -> list[tuple[str, bytes]]:
    return member.classic.protocols if member.classic is not None else []


def serialized_assignment(assigned: Assignment, context: GroupContext) -> bytes:
    """As a classic consumer understands it; topics that are gone are left out."""
    by_name: dict[str, list[int]] = {}
    for topic_id, partitions in assigned.items():
        topic = context.topics.by_id(topic_id)
        if topic is not None:
            by_name[topic.name] = sorted(partitions)
    return encode_assignment(by_name)


class Converted:
    """A classic group seen as a consumer group: the group, and the records that make it one."""

    def __init__(self, group: ConsumerGroup, written: list[Record]) -> None:
        self.group = group
        self.written = written


def to_consumer_group(classic: ClassicGroup, context: GroupContext) -> Converted | ErrorCode:
    """Upgrade a classic group with members (KIP-848, online migration), or say why not."""
    if context.config.consumer_migration_policy not in _UPGRADE or classic.protocol_type != PROTOCOL_TYPE:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if len(classic.members) > context.config.consumer_max_size:
        return ErrorCode.GROUP_ID_NOT_FOUND
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.target_epoch = classic.generation
    try:
        members = [_converted_member(classic, member_id, context) for member_id in classic.members]
    except MalformedRecord:
        return ErrorCode.GROUP_ID_NOT_FOUND
    group_id = classic.group_id
    written = [records.tombstone(RecordType.GROUP_METADATA, group_id)]
    for member in members:
        group.apply_member_metadata(member.member_id, member.metadata_value())
        group.apply_current(member.member_id, member.current_value())
        group.apply_target(member.member_id, member.assigned)
        written.append(records.encode_member_metadata(group_id, member.member_id, member.metadata_value()))
    group.metadata_hash = metadata_hash(group.subscribed_topics(), context.topics)
    written.append(records.encode_group_epoch(group_id, group.epoch, group.metadata_hash))
    written.extend(records.encode_target_member(group_id, m.member_id, m.assigned) for m in members)
    written.append(records.encode_target_epoch(group_id, group.epoch))
    written.extend(records.encode_current_assignment(group_id, m.member_id, m.current_value()) for m in members)
    return Converted(group, written)


def _converted_member(classic: ClassicGroup, member_id: str, context: GroupContext) -> ConsumerMember:
    member = classic.members[member_id]
    # While nothing is chosen yet (a rebalance from Empty) every member still has its own first choice.
    metadata = member.metadata(classic.protocol) or (member.protocols[0][1] if member.protocols else b"")
    subscription = decode_subscription(metadata)
    assigned: Assignment = {}
    if member.assignment:
        for name, partitions in decode_assignment(member.assignment).items():
            topic = context.topics.by_name(name)
            if topic is not None and partitions:
                assigned[topic.topic_id] = set(partitions)
    return replace(
        ConsumerMember(member_id),
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        assigned=assigned,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
    )
