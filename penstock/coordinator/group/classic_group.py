"""A classic group: its members, its generation and the table of its states. Data and rules about data, no time.

Between two generations a classic group lives in memory only (as in Kafka): what is stored is the outcome of a
rebalance. Whoever waits in a join or sync is kept here as the `reply` to call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from penstock.coordinator.group.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from penstock.coordinator.group.records import GroupMetadataValue, StoredMember
from penstock.coordinator.wire import MalformedRecord
from penstock.protocol.errors import ErrorCode

__all__ = ["ClassicGroup", "ClassicMember", "ClassicState", "JoinResult", "SyncResult"]


class ClassicState(Enum):
    """Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MAY_COME_FROM: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
    ClassicState.DEAD: frozenset(ClassicState),
}


@dataclass(slots=True)
class JoinResult:
    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    """(member id, instance id, metadata), for the leader only"""


@dataclass(slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]
Protocols = list[tuple[str, bytes]]


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: JoinReply | None = None
    awaiting_sync: SyncReply | None = None
    is_new: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The member's first choice among what everybody supports."""
        return next(name for name, _ in self.protocols if name in candidates)


class IllegalTransition(Exception):
    """A bug: the table does not allow this move."""


class ClassicGroup:
    """One group. Methods keep the counters right; decisions are made by the commands."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        self.protocol_type: str | None = None
        self.generation = 0
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.new_member_added = False
        self.supported: Counter[str] = Counter()
        self.subscribed_topics: set[str] | None = None
        self.awaits_rebalance = False
        """Loaded without a leader: it came out of a consumer group whose last member had just left."""

    def transition(self, to: ClassicState, now_ms: int) -> None:
        if self.state not in MAY_COME_FROM[to]:
            raise IllegalTransition(f"group {self.group_id}: {self.state.value} to {to.value}")
        self.previous_state, self.state = self.state, to
        self.state_timestamp_ms = now_ms

    # Members -------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.supported.update(name for name, _ in member.protocols)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        member = self.members.pop(member_id, None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        if member is None:
            return None
        self.supported.subtract(name for name, _ in member.protocols)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def update_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self.supported.subtract(name for name, _ in member.protocols)
        self.supported.update(name for name, _ in protocols)
        member.protocols = protocols

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """The same instance under a new id, in the same place of the member order."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        self.static_members[instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The order of checks that every request of a member passes (before its generation)."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def awaiting_join(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    def all_joined(self) -> bool:
        return not self.pending_joins and all(member.awaiting_join is not None for member in self.members.values())

    def accepts(self, member_id: str, max_size: int) -> bool:
        """Whether one more may join (or this known one again)."""
        if self.state in (ClassicState.EMPTY, ClassicState.DEAD) or len(self.members) < max_size:
            return True
        if self.state is ClassicState.PREPARING_REBALANCE:
            member = self.members.get(member_id)
            return (member is not None and member.awaiting_join is not None) or self.awaiting_join() < max_size
        return member_id in self.members

    def elect_joined_leader(self) -> bool:
        """Keep a leader that rejoined, else take the first member that did; False if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols -----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member that offers these could join."""
        offered = set(names)
        if self.state is ClassicState.EMPTY or not self.members:
            return bool(protocol_type) and bool(offered)
        common = {name for name, count in self.supported.items() if count == len(self.members)}
        return self.protocol_type == protocol_type and bool(common & offered)

    def select_protocol(self) -> str:
        """Each member votes for its first choice that all support; the most votes win, then the first voted for."""
        candidates = {name for name, count in self.supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        if self.members:
            self.protocol = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition(ClassicState.EMPTY, now_ms)
        self.pending_syncs.clear()

    def compute_subscribed_topics(self) -> set[str] | None:
        """Topics of the current subscriptions; None where the broker cannot know (another protocol type)."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members or self.protocol is None:
            return set()
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(decode_subscription(member.metadata(self.protocol)).topics)
            except MalformedRecord:
                return None
        return topics

    def is_subscribed(self, topic: str) -> bool:
        return self.subscribed_topics is not None and topic in self.subscribed_topics

    # Stored form ---------------------------------------------------------------------------------------------

    def to_record_value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        members = [
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader_id,
            -1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members,
        )

    @classmethod
    def from_record_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, 0)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader_id = value.leader
        group.awaits_rebalance = value.leader is None and bool(value.members)
        group.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        group.state_timestamp_ms = None if value.current_state_timestamp_ms < 0 else value.current_state_timestamp_ms
        for stored in value.members:
            member = ClassicMember(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.rebalance_timeout_ms,
                stored.session_timeout_ms,
                value.protocol_type,
                [(value.protocol or "", stored.subscription)],
                stored.assignment,
            )
            group.add(member)
        group.subscribed_topics = group.compute_subscribed_topics()
        return group
