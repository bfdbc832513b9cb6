"""The phases of a classic rebalance: prepare (members join), complete (the leader assigns), and their timers.

Functions here change the group in memory and return the records that must be stored; time comes from the shard's
timers. Commands (classic_join.py, classic_members.py) decide when a phase starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator.group import consumer_protocol, records
from penstock.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    JoinResult,
    SyncResult,
)
from penstock.coordinator.group.context import GroupContext
from penstock.coordinator.group.journal import Cause, RebalanceEntry, RebalanceTrace, count_moved
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord
from penstock.protocol.errors import ErrorCode

__all__ = ["ClassicRebalance"]

_AWAITS_ALL = (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)


class ClassicRebalance:
    """Rebalances of the classic groups of one shard."""

    def __init__(self, context: GroupContext, current: Callable[[str], Any], now_ms: Callable[[], int]) -> None:
        self.context = context
        self._current = current
        self._now_ms = now_ms
        self._traces: dict[str, RebalanceTrace] = {}

    def forget(self, group_id: str) -> None:
        """The group is gone: so are its timers and the story of its rebalance."""
        self._traces.pop(group_id, None)
        for name in (("join", group_id), ("sync", group_id)):
            self.context.timers.cancel(name)

    # Prepare -------------------------------------------------------------------------------------------------

    def maybe_prepare(self, group: ClassicGroup, cause: Cause) -> list[Record]:
        if group.state in (ClassicState.PREPARING_REBALANCE, ClassicState.DEAD):
            self.note(group, cause)
            return []
        return self.prepare(group, cause)

    def prepare(self, group: ClassicGroup, cause: Cause) -> list[Record]:
        """Ask all members to join again."""
        self.note(group, cause)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.context.timers.cancel(("sync", group.group_id))
        initial = group.state is ClassicState.EMPTY
        group.transition(ClassicState.PREPARING_REBALANCE, self._now_ms())
        if initial:
            delay_ms = self.context.config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_initial(group, delay_ms, remaining_ms)
            return []
        return self.complete_or_wait(group)

    def complete_or_wait(self, group: ClassicGroup) -> list[Record]:
        """Finish the join phase if everybody is in; else give the rest the time that the slowest member asked for."""
        self._schedule_join_deadline(group)
        return self.maybe_complete(group)

    def maybe_complete(self, group: ClassicGroup) -> list[Record]:
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY  # a first rebalance waits for others, KIP-134
            and group.all_joined()
        ):
            return self.complete_join(group)
        return []

    def _schedule_initial(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def initial_delay_over(_machine: Any, _now_ms: int) -> Write:
            if self._current(group.group_id) is not group or group.state is not ClassicState.PREPARING_REBALANCE:
                return Write()
            if group.new_member_added and remaining_ms > 0:
                group.new_member_added = False
                next_ms = min(self.context.config.initial_rebalance_delay_ms, remaining_ms)
                self._schedule_initial(group, next_ms, max(remaining_ms - next_ms, 0))
                return Write()
            return Write(self.complete_join(group), replay=False)

        self.context.timers.schedule(("join", group.group_id), delay_ms, group.group_id, initial_delay_over)

    def _schedule_join_deadline(self, group: ClassicGroup) -> None:
        def deadline(_machine: Any, _now_ms: int) -> Write:
            if self._current(group.group_id) is not group or group.state is not ClassicState.PREPARING_REBALANCE:
                return Write()
            return Write(self.complete_join(group), replay=False)

        name = ("join", group.group_id)
        self.context.timers.schedule(name, group.rebalance_timeout_ms, group.group_id, deadline)

    # Complete ------------------------------------------------------------------------------------------------

    def complete_join(self, group: ClassicGroup) -> list[Record]:
        """End the join phase: drop who did not come back, start the next generation, tell everybody."""
        self.context.timers.cancel(("join", group.group_id))
        for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
            self.note(group, Cause("timed_out", member.member_id, "did not rejoin in time"))
            group.remove(member.member_id)
            self.context.timers.cancel(("session", group.group_id, member.member_id))
        if group.members and not group.elect_joined_leader():
            self._schedule_join_deadline(group)  # only absent static members: they keep their place a while longer
            return []
        now_ms = self._now_ms()
        group.next_generation(now_ms)
        if group.state is ClassicState.EMPTY:
            self._finish_trace(group)
            return [records.encode_group_metadata(group.group_id, group.to_record_value())]
        everybody = self.member_list(group)
        for member in list(group.members.values()):
            members = everybody if member.member_id == group.leader_id else []
            group.pending_syncs.add(member.member_id)
            member.is_new = False
            self.reply_join(member, self.join_result(group, member, members))
            self.renew_session(group, member)
        self._schedule_sync_deadline(group)
        return []

    @staticmethod
    def member_list(group: ClassicGroup) -> list[tuple[str, str | None, bytes]]:
        return [
            (member.member_id, member.instance_id, member.metadata(group.protocol)) for member in group.members.values()
        ]

    @staticmethod
    def join_result(
        group: ClassicGroup, member: ClassicMember, members: list[tuple[str, str | None, bytes]]
    ) -> JoinResult:
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader_id or "",
            members=members,
        )

    @staticmethod
    def reply_join(member: ClassicMember, result: JoinResult) -> None:
        reply, member.awaiting_join = member.awaiting_join, None
        if reply is not None:
            reply(result)

    @staticmethod
    def reply_sync(member: ClassicMember, result: SyncResult) -> None:
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is not None:
            reply(result)

    def _schedule_sync_deadline(self, group: ClassicGroup) -> None:
        generation = group.generation

        def deadline(_machine: Any, _now_ms: int) -> Write:
            if self._current(group.group_id) is not group or group.generation != generation:
                return Write()
            if group.state not in _AWAITS_ALL or not group.pending_syncs:
                return Write()
            late = sorted(group.pending_syncs)
            for member_id in late:
                self.note(group, Cause("timed_out", member_id, "did not sync in time"))
                group.remove(member_id)
                self.context.timers.cancel(("session", group.group_id, member_id))
            return Write(self.prepare(group, Cause("timed_out", late[0], "did not sync in time")), replay=False)

        name = ("sync", group.group_id)
        self.context.timers.schedule(name, group.rebalance_timeout_ms, group.group_id, deadline)

    def fail_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            waited = member.awaiting_sync is not None
            self.reply_sync(member, SyncResult(error))
            if waited:
                self.renew_session(group, member)
        group.pending_syncs.clear()

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader's assignment is stored: hand it out."""
        group.transition(ClassicState.STABLE, self._now_ms())
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                group.pending_syncs.discard(member.member_id)
                result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
                self.reply_sync(member, result)
                self.renew_session(group, member)
        self._finish_trace(group)

    # Sessions ------------------------------------------------------------------------------------------------

    def renew_session(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Give the member its session timeout from now on."""
        self.watch(group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def watch(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        def expired(_machine: Any, _now_ms: int) -> Write:
            if self._current(group.group_id) is not group or group.state is ClassicState.DEAD:
                return Write()
            return Write(self._expire(group, member_id), replay=False)

        self.context.timers.schedule(("session", group.group_id, member_id), timeout_ms, group.group_id, expired)

    def _expire(self, group: ClassicGroup, member_id: str) -> list[Record]:
        if member_id in group.pending_joins:
            group.pending_joins.discard(member_id)
            return self.maybe_complete(group)
        member = group.members.get(member_id)
        if member is None:
            return []
        if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
            return []  # it waits for us, not we for it
        return self.remove_member(group, member, Cause("timed_out", member_id, "session expired"))

    def remove_member(self, group: ClassicGroup, member: ClassicMember, cause: Cause) -> list[Record]:
        """Take a member out and let the others rebalance."""
        self.take_out(group, member)
        if group.state in _AWAITS_ALL:
            return self.maybe_prepare(group, cause)
        if group.state is ClassicState.PREPARING_REBALANCE:
            self.note(group, cause)
            return self.maybe_complete(group)
        return []

    def take_out(self, group: ClassicGroup, member: ClassicMember) -> None:
        self.reply_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.reply_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._open_trace(group)  # while it still shows what the member owned
        group.remove(member.member_id)
        self.context.timers.cancel(("session", group.group_id, member.member_id))

    # Journal -------------------------------------------------------------------------------------------------

    def _open_trace(self, group: ClassicGroup) -> RebalanceTrace:
        trace = self._traces.get(group.group_id)
        if trace is None:
            owned = {member.member_id: member.assignment for member in group.members.values()}
            trace = self._traces[group.group_id] = RebalanceTrace(self._now_ms(), owned)
        return trace

    def note(self, group: ClassicGroup, cause: Cause) -> None:
        """Remember why the group rebalances (before the change, so that the journal knows the old owners)."""
        self._open_trace(group).add(cause)

    def _finish_trace(self, group: ClassicGroup) -> None:
        trace = self._traces.pop(group.group_id, None)
        if trace is None:
            return
        after = {member.member_id: member.assignment for member in group.members.values()}
        partitions: int | None = None
        moved: int | None = None
        if group.protocol_type == consumer_protocol.PROTOCOL_TYPE:
            try:
                partitions, moved = count_moved(_owned(trace.owned), _owned(after))
            except MalformedRecord:
                partitions = moved = None  # the leader's own encoding, which only its members read
        now_ms = self._now_ms()
        self.context.record_rebalance(
            RebalanceEntry(
                group.group_id,
                now_ms,
                now_ms - trace.started_ms,
                "classic",
                group.generation,
                tuple(trace.causes),
                trace.causes_left_out,
                len(group.members),
                partitions,
                moved,
            )
        )


def _owned(assignments: dict[str, bytes]) -> dict[str, list[tuple[str, int]]]:
    return {
        member_id: [
            (topic, partition)
            for topic, partitions in consumer_protocol.decode_assignment(assignment).items()
            for partition in partitions
        ]
        for member_id, assignment in assignments.items()
        if assignment
    }
