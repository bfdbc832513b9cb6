"""ConsumerGroupHeartbeat (KIP-848): one request in which a member joins, says what it holds, learns what to do.

The command reads the group, computes what follows, and returns records; replay of those records changes the group.
Order of checks and epochs: Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.coordinator.group import records
from penstock.coordinator.group.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.group.consumer_target import ConsumerTarget
from penstock.coordinator.group.context import GroupContext
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.group.reconcile import is_subset
from penstock.coordinator.group.records import Assignment
from penstock.coordinator.group.subscriptions import Patterns, is_valid_regex
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.protocol.errors import ErrorCode

__all__ = ["ConsumerHeartbeat", "HeartbeatRequest", "HeartbeatResult"]


@dataclass(slots=True)
class HeartbeatRequest:
    """None means "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: list[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = lambda _topic: True
    patterns: Patterns | None = None
    """What the service has looked up for this request; without it the command does so itself."""

    @property
    def is_full(self) -> bool:
        """Carries everything, as after a reconnect: answered with everything."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


@dataclass(slots=True)
class HeartbeatResult:
    error: ErrorCode
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    message: str | None = None


class ConsumerHeartbeat:
    """Heartbeats of the consumer groups of one shard."""

    def __init__(
        self,
        context: GroupContext,
        target: ConsumerTarget,
        removed: Callable[[ConsumerGroup, list[str], Cause, int], Write],
    ) -> None:
        self.context = context
        self.target = target
        self._removed = removed

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Write:
        """`group` may be a new one that no record knows yet."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group, request, now_ms)
        if request.topic_regex and not _is_usable(request.topic_regex, request.patterns):
            return _refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{request.topic_regex!r} is no RE2 expression")
        if request.member_id not in group.members and len(group.members) >= self.context.config.consumer_max_size:
            return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
        written: list[Record] = []
        found = self._find_member(group, request, written)
        if isinstance(found, Write):
            return found
        member, replaced = found
        updated = _with_subscription(member, request)
        return self.proceed(group, member, updated, replaced, request, written, now_ms)

    def proceed(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
        request: HeartbeatRequest,
        written: list[Record],
        now_ms: int,
    ) -> Write:
        """From a changed (or unchanged) subscription to target, reconciliation and answer."""
        is_new = member.member_id not in group.members
        if is_new or updated.metadata_value() != member.metadata_value():
            written.append(records.encode_member_metadata(group.group_id, updated.member_id, updated.metadata_value()))
        plan = self.target.plan(group, member, updated, replaced, is_new, request, written, now_ms)
        settled = plan.reconcile(updated, request.owned)
        if settled != updated or is_new:
            written.append(
                records.encode_current_assignment(group.group_id, settled.member_id, settled.current_value())
            )
        self.watch(group, settled)
        config = self.context.config.for_group(self.context.group_overrides(group.group_id))
        show = request.member_epoch == JOIN_EPOCH or request.is_full or settled.assigned != member.assigned
        result = HeartbeatResult(
            ErrorCode.NONE,
            settled.member_id,
            settled.member_epoch,
            config.heartbeat_interval_ms,
            settled.assigned if show else None,
        )

        def finish() -> None:
            self.target.finish_trace(group.group_id, now_ms)

        # Even without records it may have seen an epoch that is not committed yet.
        return Write(written, result, on_committed=finish, after_commit=True)

    # Members -------------------------------------------------------------------------------------------------

    def _find_member(
        self, group: ConsumerGroup, request: HeartbeatRequest, written: list[Record]
    ) -> Write | tuple[ConsumerMember, ConsumerMember | None]:
        """(the member, whom it replaces as a static one)"""
        joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            known_id = group.static_members.get(request.instance_id)
            known = None if known_id is None else group.members[known_id]
            if known is None:
                if not joining:
                    return _refused(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {request.instance_id} is not a member")
                return ConsumerMember(request.member_id, instance_id=request.instance_id), None
            if joining and known.classic is None and known.member_epoch != STATIC_LEAVE_EPOCH:
                return _refused(ErrorCode.UNRELEASED_INSTANCE_ID, "the instance id is still in use")
            if known.member_id != request.member_id:
                if not joining:
                    return _refused(ErrorCode.FENCED_INSTANCE_ID, "another member holds the instance id")
                return self.replace_static(group, known, request.member_id, written), known
        member = group.members.get(request.member_id)
        if member is None:
            if not joining:
                return _refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member")
            return ConsumerMember(request.member_id), None
        if not joining and not self._epoch_is_valid(member, request):
            return _refused(ErrorCode.FENCED_MEMBER_EPOCH, f"the member is at epoch {member.member_epoch}")
        return member, None

    @staticmethod
    def replace_static(group: ConsumerGroup, old: ConsumerMember, new_id: str, written: list[Record]) -> ConsumerMember:
        """The new process takes over what the old one held."""
        written.extend(group.member_tombstones(old.member_id))
        target = group.target.get(old.member_id)
        if target is not None:
            written.append(records.encode_target_member(group.group_id, new_id, target))
        return replace(old, member_id=new_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    @staticmethod
    def _epoch_is_valid(member: ConsumerMember, request: HeartbeatRequest) -> bool:
        if request.member_epoch == member.member_epoch:
            return True
        # The answer to its last heartbeat got lost: fine, as long as it claims nothing that is not its own.
        return (
            request.member_epoch == member.previous_member_epoch
            and request.member_epoch < member.member_epoch
            and request.owned is not None
            and is_subset(request.owned, member.assigned)
        )

    # Leaving -------------------------------------------------------------------------------------------------

    def _leave(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Write:
        if request.instance_id is not None:
            known_id = group.static_members.get(request.instance_id)
            if known_id is None:
                return _refused(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {request.instance_id} is not a member")
            if known_id != request.member_id:
                return _refused(ErrorCode.FENCED_INSTANCE_ID, "another member holds the instance id")
        member = group.members.get(request.member_id)
        if member is None:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member")
        result = HeartbeatResult(ErrorCode.NONE, request.member_id, request.member_epoch)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            away = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
            record = records.encode_current_assignment(group.group_id, away.member_id, away.current_value())
            return Write([record], result)
        write = self._removed(group, [member.member_id], Cause("left", member.member_id), now_ms)
        write.response = result
        return write

    # Timers --------------------------------------------------------------------------------------------------

    def watch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Session from now on; and, while it must give partitions back, its rebalance timeout."""
        timers, group_id, member_id = self.context.timers, group.group_id, member.member_id
        session_ms = self.context.config.for_group(self.context.group_overrides(group_id)).session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        timers.schedule(
            ("consumer-session", group_id, member_id),
            session_ms,
            group_id,
            self._fence(group_id, member_id, "session expired", lambda _now: True),
        )
        name = ("consumer-rebalance", group_id, member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            timers.cancel(name)
        elif not timers.pending(name):
            epoch = member.member_epoch

            def stuck(now: ConsumerMember) -> bool:
                return now.state is MemberState.UNREVOKED_PARTITIONS and now.member_epoch == epoch

            fence = self._fence(group_id, member_id, "did not give partitions back in time", stuck)
            timers.schedule(name, member.rebalance_timeout_ms, group_id, fence)

    def _fence(
        self, group_id: str, member_id: str, why: str, still: Callable[[ConsumerMember], bool]
    ) -> Callable[[Any, int], Write]:
        def fence(machine: Any, now_ms: int) -> Write:
            group = machine.groups.get(group_id)
            if not isinstance(group, ConsumerGroup) or member_id not in group.members:
                return Write()
            if not still(group.members[member_id]):
                return Write()
            return self._removed(group, [member_id], Cause("timed_out", member_id, why), now_ms)

        return fence

    def forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in ("consumer-session", "consumer-rebalance", "consumer-join", "consumer-sync"):
            self.context.timers.cancel((kind, group_id, member_id))


def _with_subscription(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """Omitted fields stay as they were; a member that speaks this protocol is no classic one any longer."""
    changes: dict[str, Any] = {"client_id": request.client_id, "client_host": request.client_host, "classic": None}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["server_assignor"] = request.server_assignor
    if request.topic_names is not None:
        changes["topic_names"] = frozenset(request.topic_names)
    if request.topic_regex is not None:
        changes["topic_regex"] = request.topic_regex or None
    return replace(member, **changes)


def _is_usable(pattern: str, patterns: Patterns | None) -> bool:
    if patterns is None or pattern not in patterns.names:
        return is_valid_regex(pattern)
    return patterns.names[pattern] is not None


def _refused(error: ErrorCode, message: str) -> Write:
    return Write(response=HeartbeatResult(error, message=message))
