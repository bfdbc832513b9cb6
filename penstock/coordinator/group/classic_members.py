"""What members of a classic group do between joins: sync, heartbeat, leave, commit (the checks of it)."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator.group import records
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState, SyncReply, SyncResult
from penstock.coordinator.group.classic_rebalance import ClassicRebalance
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.runtime import Write
from penstock.protocol.errors import ErrorCode

__all__ = ["ClassicMembers", "LeavingMember", "SyncRequest"]


@dataclass(slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None = None
    reason: str = ""


class ClassicMembers:
    """Sync, heartbeat and leave for the classic groups of one shard."""

    def __init__(self, rebalance: ClassicRebalance) -> None:
        self.rebalance = rebalance
        self.context = rebalance.context

    # Sync ----------------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, request: SyncRequest, reply: SyncReply) -> Write:
        error = self._check_sync(group, request)
        if error is not ErrorCode.NONE:
            reply(SyncResult(error))
            return Write()
        member = group.members[request.member_id]
        if group.state is ClassicState.STABLE:
            group.pending_syncs.discard(member.member_id)
            self.rebalance.renew_session(group, member)
            reply(SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
            return Write()
        self.rebalance.reply_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # an older try of the same
        member.awaiting_sync = reply
        group.pending_syncs.discard(member.member_id)
        if request.member_id != group.leader_id:
            return Write()
        return self._store_assignment(group, request.assignments)

    def _check_sync(self, group: ClassicGroup, request: SyncRequest) -> ErrorCode:
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol is not None and request.protocol != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _store_assignment(self, group: ClassicGroup, assignments: dict[str, bytes]) -> Write:
        generation = group.generation
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}

        def still_completing() -> bool:
            return group.state is ClassicState.COMPLETING_REBALANCE and group.generation == generation

        def committed() -> None:
            if still_completing():
                self.rebalance.assign(group, complete)

        def failed(error: ErrorCode) -> None:
            if still_completing():
                self.rebalance.fail_syncs(group, error)
                # Members will come back; they start over from the last stored generation.
                self.rebalance.maybe_prepare(group, Cause("other", detail=f"assignment not stored: {error.name}"))

        record = records.encode_group_metadata(group.group_id, group.to_record_value(complete))
        return Write([record], replay=False, on_committed=committed, on_failed=failed)

    # Heartbeat -----------------------------------------------------------------------------------------------

    def heartbeat(self, group: ClassicGroup, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.rebalance.renew_session(group, group.members[member_id])
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Leave ---------------------------------------------------------------------------------------------------

    def leave(self, group: ClassicGroup, leaving: list[LeavingMember]) -> Write:
        """The response is one error code per leaving member, or a single code when the whole group is unfit."""
        if group.state is ClassicState.DEAD:
            return Write(response=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answers: list[ErrorCode] = []
        last: Cause | None = None
        for who in leaving:
            error, cause = self._leave_one(group, who)
            answers.append(error)
            last = cause or last
        written = []
        if last is not None:
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                written = self.rebalance.maybe_prepare(group, last)
            elif group.state is ClassicState.PREPARING_REBALANCE:
                written = self.rebalance.maybe_complete(group)
        return Write(written, answers, replay=False)

    def _leave_one(self, group: ClassicGroup, who: LeavingMember) -> tuple[ErrorCode, Cause | None]:
        member_id = who.member_id
        if member_id == "" and who.instance_id is not None:
            member_id = group.static_members.get(who.instance_id, "")
            if member_id == "":
                return ErrorCode.UNKNOWN_MEMBER_ID, None
        if member_id in group.pending_joins:
            group.pending_joins.discard(member_id)
            self.context.timers.cancel(("session", group.group_id, member_id))
            return ErrorCode.NONE, Cause("left", member_id, "before it had joined")
        error = group.check_member(member_id, who.instance_id)
        if error is not ErrorCode.NONE:
            return error, None
        cause = Cause("left", member_id, who.reason)
        self.rebalance.note(group, cause)
        self.rebalance.take_out(group, group.members[member_id])
        return ErrorCode.NONE, cause

    # Commit --------------------------------------------------------------------------------------------------

    def check_commit(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, transactional: bool
    ) -> ErrorCode:
        """Whether this member may commit offsets now; renews its session if so."""
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is ClassicState.EMPTY and not transactional:
            return ErrorCode.NONE  # a simple committer that manages its partitions itself
        if generation >= 0 or member_id or instance_id is not None:
            error = group.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID  # a simple committer while the group has members
        if transactional:
            return ErrorCode.NONE
        if group.state is ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.rebalance.renew_session(group, group.members[member_id])
        return ErrorCode.NONE
