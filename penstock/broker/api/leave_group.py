"""13 LeaveGroup, v0–5: members leave, or an administrator removes them (several at once from v3 on).

v3: batched, instance ids · v4: flexible · v5: reason. Below v3 the one member's error is the top-level code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import LeaveGroup

API = ApiSpec(13, "LeaveGroup", 0, 5)

BATCHED = 3


async def handle(broker: Broker, ctx: RequestContext, request: LeaveGroup.Request) -> LeaveGroup.Response:
    from penstock.coordinator.group.classic_members import LeavingMember
    from penstock.protocol import messages

    api = messages.api("leave_group").load_all_versions()
    if not may_read_group(broker, ctx, request.group_id):
        return api.Response(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED), members=[])
    if ctx.api_version < BATCHED:
        error, codes = await broker.groups.leave(request.group_id, [LeavingMember(request.member_id)])
        return api.Response(error_code=int(codes[0] if error is ErrorCode.NONE else error), members=[])
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, member.reason or "") for member in request.members
    ]
    error, codes = await broker.groups.leave(request.group_id, leaving)
    struct = api.response_struct("MemberResponse")
    members = [
        struct(member_id=who.member_id, group_instance_id=who.instance_id, error_code=int(code))
        for who, code in zip(leaving, codes, strict=False)  # no codes when the whole request failed
    ]
    return api.Response(error_code=int(error), members=members)
