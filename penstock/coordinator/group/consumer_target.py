"""From subscriptions to a target assignment: when a consumer group's epoch moves, and what everyone shall then hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.coordinator.group import records
from penstock.coordinator.group.assignors import ASSIGNORS, AssignorMember
from penstock.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from penstock.coordinator.group.context import GroupContext
from penstock.coordinator.group.journal import Cause, RebalanceEntry, RebalanceTrace, count_moved
from penstock.coordinator.group.reconcile import reconcile
from penstock.coordinator.group.records import Assignment, RecordType, RegexValue
from penstock.coordinator.group.subscriptions import matching_topics, metadata_hash, topic_ids
from penstock.coordinator.shard_log import Record

if TYPE_CHECKING:
    from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest

__all__ = ["ConsumerTarget", "TargetPlan"]

REGEX_MIN_REFRESH_MS = 10_000


@dataclass(slots=True)
class TargetPlan:
    """What this heartbeat's member is to be reconciled with."""

    target_epoch: int
    target: Assignment
    owners: dict[tuple[UUID, int], str]
    subscribed: set[UUID]

    def reconcile(self, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        return reconcile(member, self.target_epoch, self.target, self.owners, owned, self.subscribed)


class ConsumerTarget:
    """Epochs and targets of the consumer groups of one shard."""

    def __init__(self, context: GroupContext, current: Callable[[str], Any]) -> None:
        self.context = context
        self._current = current
        self._traces: dict[str, RebalanceTrace] = {}

    def plan(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
        is_new: bool,
        request: HeartbeatRequest,
        written: list[Record],
        now_ms: int,
    ) -> TargetPlan:
        """Bump the epoch and compute a new target if something that matters has changed; records go to `written`."""
        topics = self.context.topics
        changed_names = updated.topic_names != member.topic_names or updated.topic_regex != member.topic_regex
        regexes = self._refresh_regexes(group, member.topic_regex, updated, request, written, now_ms)
        changed_regex = regexes is not group.regexes
        if (
            not is_new
            and not changed_names
            and not changed_regex
            and replaced is None
            and group.hash_version == topics.version()
            and updated.server_assignor == member.server_assignor
            and group.target_epoch == group.epoch
        ):
            names = group.topics_of(updated)
            return TargetPlan(
                group.target_epoch,
                group.target.get(updated.member_id, {}),
                group.owners,
                set(topic_ids(names, topics)),
            )
        members = {key: value for key, value in group.members.items() if replaced is None or key != replaced.member_id}
        members[updated.member_id] = updated
        view = _View(group, regexes)
        subscribed_names = view.subscribed(members.values())
        new_hash = metadata_hash(subscribed_names, topics)
        epoch = group.epoch
        cause = self._cause(is_new, replaced, changed_names, changed_regex, new_hash != group.metadata_hash, updated)
        if (is_new and replaced is None) or changed_names or changed_regex or new_hash != group.metadata_hash:
            epoch += 1
            written.append(records.encode_group_epoch(group.group_id, epoch, new_hash))
            self.trace(group, cause, now_ms)
        if new_hash == group.metadata_hash:  # else not before the record with the new hash has been replayed
            group.hash_version = topics.version()
        target_epoch, target = self._maybe_assign(group, view, members, updated, replaced, epoch, written, now_ms)
        owners = group.owners
        if replaced is not None:
            owners = {key: updated.member_id if who == replaced.member_id else who for key, who in owners.items()}
        return TargetPlan(target_epoch, target, owners, set(topic_ids(view.topics_of(updated), topics)))

    @staticmethod
    def _cause(
        is_new: bool,
        replaced: ConsumerMember | None,
        changed_names: bool,
        changed_regex: bool,
        changed_hash: bool,
        member: ConsumerMember,
    ) -> Cause:
        if replaced is not None:
            return Cause("static_replaced", member.member_id, f"instance {member.instance_id}")
        if is_new:
            return Cause("joined", member.member_id)
        if changed_names:
            return Cause("subscription", member.member_id)
        if changed_regex or changed_hash:
            return Cause("metadata", detail="topics or partitions changed")
        return Cause("other")

    # Patterns ------------------------------------------------------------------------------------------------

    def _refresh_regexes(
        self,
        group: ConsumerGroup,
        old_pattern: str | None,
        updated: ConsumerMember,
        request: HeartbeatRequest,
        written: list[Record],
        now_ms: int,
    ) -> dict[str, RegexValue]:
        """Resolve a new pattern at once, known ones when topics changed or they are old. The old dict if unchanged."""
        pattern = updated.topic_regex
        if not pattern and not group.regexes:
            return group.regexes
        topics, patterns = self.context.topics, request.patterns
        version = topics.version() if patterns is None else patterns.version
        resolved: dict[str, RegexValue] = {}
        if pattern and pattern not in group.regexes:
            names = self._names(pattern, request)
            resolved[pattern] = RegexValue(names, version, now_ms)
        if (patterns is None or patterns.names) and self.patterns_are_old(group, now_ms):
            group.regex_checked_ms = now_ms
            for known, value in group.regexes.items():
                if patterns is not None and patterns.names.get(known) is None:
                    continue  # it came meanwhile: the next look finds that it is old
                names = self._names(known, request)
                if names != value.topics:
                    resolved[known] = RegexValue(names, version, now_ms)
                else:
                    value.version = version
        unused: list[str] = []
        if old_pattern and old_pattern != pattern:
            used = {member.topic_regex for key, member in group.members.items() if key != updated.member_id}
            unused = [known for known in group.regexes if known not in used and known != pattern]
        if not resolved and not unused:
            return group.regexes
        written.extend(records.encode_regex(group.group_id, known, value) for known, value in resolved.items())
        kind = RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION
        written.extend(records.tombstone(kind, group.group_id, known) for known in unused)
        kept = {known: value for known, value in group.regexes.items() if known not in unused}
        return {**kept, **resolved}

    def patterns_are_old(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether it is time to look again what the group's patterns match."""
        if not group.regexes:
            return False
        age_ms = now_ms - group.regex_checked_ms
        if age_ms >= self.context.config.consumer_regex_refresh_interval_ms:
            return True
        version = self.context.topics.version()
        return age_ms >= REGEX_MIN_REFRESH_MS and any(value.version != version for value in group.regexes.values())

    def unresolved_patterns(self, group: ConsumerGroup | None, pattern: str | None, now_ms: int) -> set[str]:
        """What a heartbeat with this pattern will need."""
        needed = {pattern} if pattern and (group is None or pattern not in group.regexes) else set()
        if group is not None and self.patterns_are_old(group, now_ms):
            needed.update(group.regexes)
        return needed

    def _names(self, pattern: str, request: HeartbeatRequest) -> list[str]:
        found = None if request.patterns is None else request.patterns.names.get(pattern)
        return matching_topics(pattern, self.context.topics, request.may_describe) if found is None else found

    # Target --------------------------------------------------------------------------------------------------

    def _maybe_assign(
        self,
        group: ConsumerGroup,
        view: _View,
        members: dict[str, ConsumerMember],
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
        epoch: int,
        written: list[Record],
        now_ms: int,
    ) -> tuple[int, Assignment]:
        held = dict(group.target)
        if replaced is not None:
            held[updated.member_id] = held.pop(replaced.member_id, {})
        config = self.context.config.for_group(self.context.group_overrides(group.group_id))
        too_soon = (
            config.assignment_interval_ms > 0
            and group.target_epoch > 0
            and now_ms - group.assigned_at_ms < config.assignment_interval_ms
        )
        if epoch == group.target_epoch or too_soon:
            return group.target_epoch, held.get(updated.member_id, {})
        assignor = group.preferred_assignor(members.values(), self.context.config.consumer_assignors[0])
        target = self.compute(view, members, held, assignor)
        written.extend(
            records.encode_target_member(group.group_id, member_id, target[member_id])
            for member_id in sorted(target)
            if member_id not in held or target[member_id] != held[member_id]
        )
        written.append(records.encode_target_epoch(group.group_id, epoch))
        group.assigned_at_ms = now_ms
        return epoch, target.get(updated.member_id, {})

    def compute(
        self, view: _View, members: dict[str, ConsumerMember], held: dict[str, Assignment], assignor: str
    ) -> dict[str, Assignment]:
        topics = self.context.topics
        counts = topic_ids(view.subscribed(members.values()), topics)
        ids_by_names: dict[frozenset[str], frozenset[UUID]] = {}
        inputs: dict[str, AssignorMember] = {}
        for member_id, member in members.items():
            names = frozenset(view.topics_of(member))
            if names not in ids_by_names:
                ids_by_names[names] = frozenset(topic_ids(names, topics))
            inputs[member_id] = AssignorMember(
                member_id, member.instance_id, ids_by_names[names], held.get(member_id, {})
            )
        return ASSIGNORS[assignor](inputs, counts)

    # Journal -------------------------------------------------------------------------------------------------

    def trace(self, group: ConsumerGroup, cause: Cause, now_ms: int) -> None:
        trace = self._traces.get(group.group_id)
        if trace is None:
            owned = {member_id: _pairs(member.assigned) for member_id, member in group.members.items()}
            trace = self._traces[group.group_id] = RebalanceTrace(now_ms, owned)
        trace.add(cause)

    def finish_trace(self, group_id: str, now_ms: int) -> None:
        """If the group has come to rest, the story of its rebalance is complete."""
        trace = self._traces.get(group_id)
        if trace is None:
            return
        group = self._current(group_id)
        if not isinstance(group, ConsumerGroup) or group.state_name not in ("Stable", "Empty"):
            return
        del self._traces[group_id]
        after = {member_id: _pairs(member.assigned) for member_id, member in group.members.items()}
        partitions, moved = count_moved(trace.owned, after)
        self.context.record_rebalance(
            RebalanceEntry(
                group_id,
                now_ms,
                now_ms - trace.started_ms,
                "consumer",
                group.epoch,
                tuple(trace.causes),
                trace.causes_left_out,
                len(group.members),
                partitions,
                moved,
            )
        )

    def forget(self, group_id: str) -> None:
        self._traces.pop(group_id, None)


class _View:
    """A group with the patterns that this heartbeat has just resolved."""

    def __init__(self, group: ConsumerGroup, regexes: dict[str, RegexValue]) -> None:
        self._group = group
        self._regexes = regexes

    def topics_of(self, member: ConsumerMember) -> set[str]:
        names = set(member.topic_names)
        if member.topic_regex and member.topic_regex in self._regexes:
            names.update(self._regexes[member.topic_regex].topics)
        return names

    def subscribed(self, members: Any) -> set[str]:
        names: set[str] = set()
        for member in members:
            names |= self.topics_of(member)
        return names


def _pairs(assignment: Assignment) -> list[tuple[UUID, int]]:
    return [(topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions]


def waits_for_release(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether some partition of its target is still in another member's hands."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    target = group.target.get(member.member_id, {})
    return all(
        group.owners.get((topic_id, partition), member.member_id) != member.member_id
        for topic_id, partitions in target.items()
        for partition in partitions - member.assigned.get(topic_id, set())
    )
