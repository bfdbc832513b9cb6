"""14 SyncGroup, v0–5: the leader hands in the assignment, everybody gets their part once it is stored.

v3: instance ids · v4: flexible · v5: protocol type and name are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import SyncGroup

API = ApiSpec(14, "SyncGroup", 0, 5)

PROTOCOL_REQUIRED = 5


async def handle(broker: Broker, ctx: RequestContext, request: SyncGroup.Request) -> SyncGroup.Response:
    from penstock.coordinator.group.classic_members import SyncRequest
    from penstock.protocol import messages

    api = messages.api("sync_group")
    if not may_read_group(broker, ctx, request.group_id):
        return api.Response(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED), assignment=b"")
    if ctx.api_version >= PROTOCOL_REQUIRED and (request.protocol_type is None or request.protocol_name is None):
        return api.Response(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), assignment=b"")
    result = await broker.groups.sync(
        SyncRequest(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            {assignment.member_id: assignment.assignment for assignment in request.assignments},
        )
    )
    return api.Response(
        error_code=int(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
