"""11 JoinGroup, v0–9: enter a classic group; answered when the rebalance has gathered its members.

v1: rebalance time-out · v4: MEMBER_ID_REQUIRED on a first join · v5: instance ids · v6: flexible · v7: protocol type in
the answer · v8: reason · v9: skip-assignment for a static leader that came back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.coordinator.group.classic_group import JoinResult
    from penstock.protocol.shapes import JoinGroup

API = ApiSpec(11, "JoinGroup", 0, 9)


async def handle(broker: Broker, ctx: RequestContext, request: JoinGroup.Request) -> JoinGroup.Response:
    from penstock.coordinator.group.classic_group import JoinResult
    from penstock.coordinator.group.classic_join import JoinRequest

    if not may_read_group(broker, ctx, request.group_id):
        return _response(ctx, JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
    version = ctx.api_version
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        client_id=ctx.client_id,
        client_host=f"/{ctx.client_host}",
        requires_known_member_id=version >= 4 and request.group_instance_id is None,
        may_skip_assignment=version >= 9,
        reason=request.reason or "",
    )
    return _response(ctx, await broker.groups.join(join))


def _response(ctx: RequestContext, result: JoinResult) -> JoinGroup.Response:
    from penstock.protocol import messages

    api = messages.api("join_group")
    # From v7 on a missing protocol is null; before, it cannot be.
    missing = None if ctx.api_version >= 7 else ""
    return api.Response(
        error_code=int(result.error),
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=missing if result.protocol is None else result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            api.JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )
