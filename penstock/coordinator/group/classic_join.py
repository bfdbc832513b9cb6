"""JoinGroup for classic groups: who may enter, under which id, and what it sets in motion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    JoinReply,
    JoinResult,
    Protocols,
    SyncResult,
)
from penstock.coordinator.group.classic_rebalance import ClassicRebalance
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.protocol.errors import ErrorCode

__all__ = ["ClassicJoin", "JoinRequest"]


@dataclass(slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    requires_known_member_id: bool = True
    """Version 4 and later: a first join is sent back with an id (KIP-394)."""
    may_skip_assignment: bool = True
    """Version 9 and later (KIP-814)."""
    reason: str = ""

    def new_member_id(self, new_uuid: Callable[[], object]) -> str:
        return f"{self.instance_id if self.instance_id is not None else self.client_id}-{new_uuid()}"


class ClassicJoin:
    """Joins of the classic groups of one shard."""

    def __init__(self, rebalance: ClassicRebalance) -> None:
        self.rebalance = rebalance
        self.context = rebalance.context

    def join(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply, is_new_group: bool) -> Write:
        """`reply` is called when the member's place in the next generation (or an error) is known."""
        member_id = request.member_id
        if not group.accepts(member_id, self.context.config.max_size):
            member = group.members.get(member_id)
            if member is not None:
                self.rebalance.take_out(group, member)
            reply(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return Write()
        if group.state is ClassicState.DEAD:
            reply(JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
            return Write()
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return Write()
        if is_new_group:
            return self._join_new_group(group, request, reply)
        if member_id == "":
            return self._join_unknown(group, request, reply)
        return Write(self._join_known(group, request, reply), replay=False)

    def _join_new_group(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> Write:
        # The empty group is stored first, so that a group that never gets a generation can still be found and expired.
        stored = records.encode_group_metadata(group.group_id, group.to_record_value())
        write = self._join_unknown(group, request, reply)

        def failed(error: ErrorCode) -> None:
            for member in list(group.members.values()):
                self.rebalance.reply_join(member, JoinResult(error))

        return Write([stored, *write.records], replay=False, on_failed=failed)

    # New members ---------------------------------------------------------------------------------------------

    def _join_unknown(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> Write:
        new_id = request.new_member_id(self.context.new_uuid)
        if request.instance_id is not None:
            old_id = group.static_members.get(request.instance_id)
            if old_id is not None:
                return self._replace_static(group, request, old_id, new_id, reply)
        elif request.requires_known_member_id:
            group.pending_joins.add(new_id)
            self.rebalance.watch(group, new_id, request.session_timeout_ms)
            reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, new_id))
            return Write()
        return Write(self._add(group, request, new_id, reply), replay=False)

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str, reply: JoinReply) -> list[Record]:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
            awaiting_join=reply,
            is_new=True,
        )
        cause = Cause("joined", member_id, request.reason)
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        self.rebalance.note(group, cause)
        group.add(member)
        # A member that has never been told its generation cannot heartbeat; it is only dropped if it never comes.
        self.rebalance.renew_session(group, member, self.context.config.new_member_join_timeout_ms)
        return self._rebalance_or_complete(group, cause)

    def _rebalance_or_complete(self, group: ClassicGroup, cause: Cause) -> list[Record]:
        if group.state is ClassicState.PREPARING_REBALANCE:
            return self.rebalance.maybe_complete(group)
        return self.rebalance.maybe_prepare(group, cause)

    # Static members that come back ---------------------------------------------------------------------------

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, old_id: str, new_id: str, reply: JoinReply
    ) -> Write:
        assert request.instance_id is not None
        member = group.members[old_id]
        old_leader = group.leader_id
        old_protocols = member.protocols
        old_timeouts = member.rebalance_timeout_ms, member.session_timeout_ms
        old_protocol = group.protocol
        self.rebalance.reply_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.rebalance.reply_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        group.replace_static(request.instance_id, old_id, new_id)
        self.context.timers.cancel(("session", group.group_id, old_id))
        self._update(group, member, request, reply)
        self.rebalance.renew_session(group, member)
        cause = Cause("static_replaced", new_id, f"instance {request.instance_id}")
        if group.state is not ClassicState.STABLE or group.select_protocol() != old_protocol:
            return Write(self._rebalance_or_complete(group, cause), replay=False)

        # The assignment stands: nobody else has to move because a process was restarted (KIP-345).
        member.awaiting_join = None

        def committed() -> None:
            is_leader = group.leader_id == new_id
            members = self.rebalance.member_list(group) if is_leader and request.may_skip_assignment else []
            result = self.rebalance.join_result(group, member, members)
            if request.may_skip_assignment:
                result.skip_assignment = is_leader
            else:
                result.leader = old_leader or ""  # so that an old client does not think it must assign
            reply(result)

        def failed(error: ErrorCode) -> None:
            if group.static_members.get(request.instance_id or "") != new_id:
                reply(JoinResult(error, new_id))  # replaced once more, or gone: there is nothing to take back
                return
            group.update_protocols(member, old_protocols)
            member.rebalance_timeout_ms, member.session_timeout_ms = old_timeouts
            group.replace_static(request.instance_id or "", new_id, old_id)
            self.context.timers.cancel(("session", group.group_id, new_id))
            self.rebalance.renew_session(group, member)
            reply(JoinResult(error, new_id))

        stored = records.encode_group_metadata(group.group_id, group.to_record_value())
        return Write([stored], replay=False, on_committed=committed, on_failed=failed)

    # Members that are known ----------------------------------------------------------------------------------

    def _join_known(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> list[Record]:
        member_id = request.member_id
        if member_id in group.pending_joins and request.instance_id is None:
            return self._add(group, request, member_id, reply)
        error = group.check_member(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            reply(JoinResult(error, member_id))
            return []
        member = group.members[member_id]
        changed = member.protocols != request.protocols
        is_leader = group.leader_id == member_id
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._update(group, member, request, reply)
            return self.rebalance.maybe_complete(group)
        if group.state is ClassicState.COMPLETING_REBALANCE and not changed:
            # It missed the answer to its last join; the generation is still open.
            members = self.rebalance.member_list(group) if is_leader else []
            reply(self.rebalance.join_result(group, member, members))
            return []
        if group.state is ClassicState.STABLE and not changed and not is_leader:
            reply(self.rebalance.join_result(group, member, []))
            return []
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            kind = "subscription" if changed else "other"
            cause = Cause(kind, member_id, request.reason or ("" if changed else "the leader joined again"))
            self.rebalance.note(group, cause)
            self._update(group, member, request, reply)
            return self.rebalance.maybe_prepare(group, cause)
        reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        return []

    def _update(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, reply: JoinReply) -> None:
        group.update_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        self.rebalance.reply_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.awaiting_join = reply
