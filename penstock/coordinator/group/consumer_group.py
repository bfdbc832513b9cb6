"""A KIP-848 consumer group: what its records say. `apply_*` is replay; nothing else changes a group.

Soft state that can be computed again (resolved subscriptions, owners, timing of the last assignment) sits beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from penstock.coordinator.group import records
from penstock.coordinator.group.records import (
    Assignment,
    ClassicProtocols,
    CurrentAssignmentValue,
    MemberMetadataValue,
    RecordType,
    RegexValue,
)
from penstock.coordinator.shard_log import Record

__all__ = ["LEAVE_EPOCH", "STATIC_LEAVE_EPOCH", "ConsumerGroup", "ConsumerMember", "MemberState"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(IntEnum):
    """As stored in the member's current assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: subscription and current assignment. Immutable, so that a command may hold on to the old one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None

    @property
    def owned(self) -> Assignment:
        """What it may still read: its share, and what it has been asked to give back."""
        if not self.pending_revocation:
            return self.assigned
        topics = {*self.assigned, *self.pending_revocation}
        return {t: self.assigned.get(t, set()) | self.pending_revocation.get(t, set()) for t in topics}

    def metadata_value(self) -> MemberMetadataValue:
        return MemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            sorted(self.topic_names),
            self.topic_regex or None,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def current_value(self) -> CurrentAssignmentValue:
        return CurrentAssignmentValue(
            self.member_epoch, self.previous_member_epoch, int(self.state), self.assigned, self.pending_revocation
        )

    def with_epoch(self, epoch: int) -> ConsumerMember:
        if epoch == self.member_epoch:
            return self
        return replace(self, member_epoch=epoch, previous_member_epoch=self.member_epoch)


class ConsumerGroup:
    """One group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target_epoch = 0
        self.target: dict[str, Assignment] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        # Soft:
        self.held_since: dict[tuple[UUID, int], int] = {}
        """At which member epoch the owner was given a partition; a later one after a fail-over."""
        self.hash_version: int | None = None
        self.regex_checked_ms = 0
        self.assigned_at_ms = 0

    # Replay --------------------------------------------------------------------------------------------------

    def apply_member_metadata(self, member_id: str, value: MemberMetadataValue | None) -> None:
        if value is None:
            gone = self.members.pop(member_id, None)
            if gone is not None:
                self._release(gone)
                if gone.instance_id is not None and self.static_members.get(gone.instance_id) == member_id:
                    del self.static_members[gone.instance_id]
            return
        member = self.members.get(member_id) or ConsumerMember(member_id)
        self.members[member_id] = replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic,
        )
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def apply_current(self, member_id: str, value: CurrentAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = ConsumerMember(member_id)
        held_before = self._release(member)
        if value is None:
            self.members[member_id] = replace(
                member,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned={},
                pending_revocation={},
            )
            return
        self.members[member_id] = replace(
            member,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=value.assigned,
            pending_revocation=value.pending_revocation,
        )
        for held in (value.assigned, value.pending_revocation):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    place = (topic_id, partition)
                    self.owners[place] = member_id
                    self.held_since[place] = held_before.get(place, value.member_epoch)

    def _release(self, member: ConsumerMember) -> dict[tuple[UUID, int], int]:
        """What the member held, and since which of its epochs."""
        released: dict[tuple[UUID, int], int] = {}
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    place = (topic_id, partition)
                    if self.owners.get(place) == member.member_id:
                        del self.owners[place]
                        released[place] = self.held_since.pop(place, member.member_epoch)
        return released

    def apply_target(self, member_id: str, value: Assignment | None) -> None:
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = value

    # Questions -----------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """As DescribeGroups and ListGroups show it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reconciled = all(
            member.state is MemberState.STABLE and member.member_epoch == self.target_epoch
            for member in self.members.values()
        )
        return "Stable" if reconciled else "Reconciling"

    def may_commit(self, member: ConsumerMember, epoch: int, places: Iterable[tuple[UUID | None, int]]) -> bool:
        """An older epoch is no harm for partitions that the member has held since then: a commit that met a rebalance
        on its way need not be sent again."""
        if epoch >= member.member_epoch:
            return epoch == member.member_epoch
        for topic_id, partition in places:
            if topic_id is None or self.owners.get((topic_id, partition)) != member.member_id:
                return False
            if self.held_since[topic_id, partition] > epoch:
                return False
        return True

    def topics_of(self, member: ConsumerMember) -> set[str]:
        """The topic names a member is subscribed to, by name and by pattern."""
        names = set(member.topic_names)
        if member.topic_regex and member.topic_regex in self.regexes:
            names.update(self.regexes[member.topic_regex].topics)
        return names

    def subscribed_topics(self, members: Iterable[ConsumerMember] | None = None) -> set[str]:
        names: set[str] = set()
        for member in self.members.values() if members is None else members:
            names |= self.topics_of(member)
        return names

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def preferred_assignor(self, members: Iterable[ConsumerMember], default: str) -> str:
        votes: dict[str, int] = {}
        for member in members:
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.classic is not None]

    def supports_classic(self, protocol_names: Iterable[str], besides: str = "") -> bool:
        """Whether all classic-protocol members share one of these protocols."""
        common = set(protocol_names)
        for member in self.members.values():
            if member.classic is not None and member.member_id != besides:
                common &= {name for name, _ in member.classic.protocols}
        return bool(common)

    # Records -------------------------------------------------------------------------------------------------

    def member_tombstones(self, member_id: str) -> list[Record]:
        return [
            records.tombstone(RecordType.CONSUMER_GROUP_CURRENT_MEMBER, self.group_id, member_id),
            records.tombstone(RecordType.CONSUMER_GROUP_TARGET_MEMBER, self.group_id, member_id),
            records.tombstone(RecordType.CONSUMER_GROUP_MEMBER_METADATA, self.group_id, member_id),
        ]

    def tombstones(self) -> list[Record]:
        """Forget the group with all its members."""
        kinds = (
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER,
            RecordType.CONSUMER_GROUP_TARGET_MEMBER,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        )
        written = [records.tombstone(kind, self.group_id, member_id) for kind in kinds for member_id in self.members]
        written.append(records.tombstone(RecordType.CONSUMER_GROUP_TARGET_METADATA, self.group_id))
        written.extend(
            records.tombstone(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, self.group_id, regex)
            for regex in self.regexes
        )
        written.append(records.tombstone(RecordType.CONSUMER_GROUP_METADATA, self.group_id))
        return written
