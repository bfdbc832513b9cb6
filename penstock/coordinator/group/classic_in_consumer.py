"""Members that speak the classic protocol inside a consumer group: join, sync, heartbeat, leave (KIP-848 migration).

For them a generation is their member epoch, nobody is the leader, and "rebalance in progress" is how they learn that
they must come back for a new assignment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.coordinator.group.classic_group import JoinReply, JoinResult, SyncReply, SyncResult
from penstock.coordinator.group.classic_join import JoinRequest
from penstock.coordinator.group.classic_members import LeavingMember, SyncRequest
from penstock.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from penstock.coordinator.group.consumer_heartbeat import ConsumerHeartbeat, HeartbeatRequest, HeartbeatResult
from penstock.coordinator.group.consumer_members import ConsumerMembers, serialized_assignment
from penstock.coordinator.group.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from penstock.coordinator.group.consumer_target import waits_for_release
from penstock.coordinator.group.journal import Cause
from penstock.coordinator.group.records import Assignment, ClassicProtocols
from penstock.coordinator.group.subscriptions import Patterns
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord
from penstock.protocol.errors import ErrorCode

__all__ = ["ClassicInConsumer"]


class ClassicInConsumer:
    """Classic requests to the consumer groups of one shard."""

    def __init__(self, heartbeat: ConsumerHeartbeat, members: ConsumerMembers) -> None:
        self._heartbeat = heartbeat
        self._members = members
        self.context = heartbeat.context

    # Join ----------------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply, now_ms: int) -> Write:
        names = [name for name, _ in request.protocols]
        if (
            request.protocol_type != PROTOCOL_TYPE
            or not names
            or not group.supports_classic(names, besides=request.member_id)
        ):
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return Write()
        try:
            subscription = decode_subscription(request.protocols[0][1])
        except MalformedRecord:
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return Write()
        if request.member_id not in group.members and len(group.members) >= self.context.config.consumer_max_size:
            reply(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id))
            return Write()
        written: list[Record] = []
        found = self._find(group, request, written)
        if isinstance(found, JoinResult):
            reply(found)
            return Write()
        member, replaced = found
        updated = replace(
            member,
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=frozenset(subscription.topics),
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
        )
        owned = self._owned(subscription.owned)
        # What the others' patterns match is looked up for them, with their rights.
        others = Patterns(self._heartbeat.context.topics.version(), {})
        as_heartbeat = HeartbeatRequest(
            request.group_id, updated.member_id, member.member_epoch, owned=owned, patterns=others
        )
        write = self._heartbeat.proceed(group, member, updated, replaced, as_heartbeat, written, now_ms)
        finish = write.on_committed
        result: HeartbeatResult = write.response

        def committed() -> None:
            if finish is not None:
                finish()
            self._watch_sync(group, updated)
            if replaced is not None and replaced.classic is None:
                self._look_for_downgrade(group.group_id, updated.member_id)
            reply(
                JoinResult(
                    ErrorCode.NONE, result.member_id, result.member_epoch, PROTOCOL_TYPE, request.protocols[0][0]
                )
            )

        def failed(error: ErrorCode) -> None:
            reply(JoinResult(error, request.member_id))

        self.context.timers.cancel(("consumer-join", group.group_id, updated.member_id))
        return Write(write.records, on_committed=committed, on_failed=failed)

    def _find(
        self, group: ConsumerGroup, request: JoinRequest, written: list[Record]
    ) -> JoinResult | tuple[ConsumerMember, ConsumerMember | None]:
        member_id = request.member_id
        if request.instance_id is not None:
            known_id = group.static_members.get(request.instance_id)
            if member_id == "":
                new_id = request.new_member_id(self.context.new_uuid)
                if known_id is None:
                    return ConsumerMember(new_id), None
                old = group.members[known_id]
                return self._heartbeat.replace_static(group, old, new_id, written), old
            if known_id is None:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            if known_id != member_id:
                return JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id)
            return group.members[known_id], None
        if member_id == "":
            new_id = request.new_member_id(self.context.new_uuid)
            if request.requires_known_member_id:
                return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, new_id)
            return ConsumerMember(new_id), None
        return group.members.get(member_id) or ConsumerMember(member_id), None

    def _owned(self, by_name: dict[str, list[int]]) -> Assignment:
        owned: Assignment = {}
        for name, partitions in by_name.items():
            topic = self.context.topics.by_name(name)
            if topic is not None and partitions:
                owned[topic.topic_id] = set(partitions)
        return owned

    def _look_for_downgrade(self, group_id: str, member_id: str) -> None:
        def look(machine: Any, _now_ms: int) -> Write:
            group = machine.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                return Write()
            return self._members.maybe_downgrade(group, Cause("static_replaced", member_id))

        self.context.timers.schedule(("consumer-downgrade", group_id), 0, group_id, look)

    def _watch_sync(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        name = ("consumer-sync", group.group_id, member.member_id)
        fence = self._fence(group.group_id, member.member_id, "did not sync in time")
        self.context.timers.schedule(name, member.rebalance_timeout_ms, group.group_id, fence)

    def _fence(self, group_id: str, member_id: str, why: str) -> Any:
        def fence(machine: Any, now_ms: int) -> Write:
            group = machine.groups.get(group_id)
            if not isinstance(group, ConsumerGroup) or member_id not in group.members:
                return Write()
            return self._members.remove(group, [member_id], Cause("timed_out", member_id, why), now_ms)

        return fence

    # Sync and heartbeat --------------------------------------------------------------------------------------

    def _check(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if instance_id is not None:
            known_id = group.static_members.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = group.members.get(member_id)
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != member.member_epoch:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def sync(self, group: ConsumerGroup, request: SyncRequest, reply: SyncReply) -> Write:
        error = self._check(group, request.member_id, request.instance_id, request.generation)
        member = group.members.get(request.member_id)
        if error is not ErrorCode.NONE or member is None or member.classic is None:
            reply(SyncResult(error))
            return Write()
        protocol = member.classic.protocols[0][0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (None, protocol):
            reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return Write()
        # One that gives partitions back has joined already: it syncs to learn which, and joins again after that.
        if self._is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._watch_join(group, member)
            reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return Write()
        self.context.timers.cancel(("consumer-sync", group.group_id, member.member_id))
        self._heartbeat.watch(group, member)
        reply(SyncResult(ErrorCode.NONE, PROTOCOL_TYPE, protocol, serialized_assignment(member.assigned, self.context)))
        return Write()

    @staticmethod
    def _is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether a join would bring it something new: an assignment that is there, not one that is still to be made.

        Consumers have it made by their heartbeats. Without any, a join of ours has to.
        """
        if member.member_epoch < group.target_epoch:
            return True
        return member.member_epoch < group.epoch and all(one.classic is not None for one in group.members.values())

    def _watch_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        name = ("consumer-join", group.group_id, member.member_id)
        if not self.context.timers.pending(name):
            fence = self._fence(group.group_id, member.member_id, "did not rejoin in time")
            self.context.timers.schedule(name, member.rebalance_timeout_ms, group.group_id, fence)

    def heartbeat(self, group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        error = self._check(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        member = group.members[member_id]
        self._heartbeat.watch(group, member)
        free_now = member.state is MemberState.UNRELEASED_PARTITIONS and not waits_for_release(group, member)
        if not (self._is_behind(group, member) or member.state is MemberState.UNREVOKED_PARTITIONS or free_now):
            return ErrorCode.NONE
        self._watch_join(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    # Leave ---------------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, leaving: list[LeavingMember], now_ms: int) -> Write:
        answers: list[ErrorCode] = []
        gone: list[str] = []
        for who in leaving:
            member_id = who.member_id
            if who.instance_id is not None:
                known_id = group.static_members.get(who.instance_id)
                if known_id is None:
                    answers.append(ErrorCode.UNKNOWN_MEMBER_ID)
                    continue
                if member_id not in ("", known_id):
                    answers.append(ErrorCode.FENCED_INSTANCE_ID)
                    continue
                member_id = known_id
            if member_id not in group.members or member_id in gone:
                answers.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            answers.append(ErrorCode.NONE)
            gone.append(member_id)
        if not gone:
            return Write(response=answers)
        write = self._members.remove(group, gone, Cause("left", gone[0], leaving[0].reason), now_ms)
        write.response = answers
        return write
