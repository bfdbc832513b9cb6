"""15 DescribeGroups, v0–6: state and members of classic groups.

v3: authorized operations · v4: instance ids · v5: flexible · v6: GROUP_ID_NOT_FOUND where older versions say Dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import operations_on
from penstock.broker.api.group_support import may_describe_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.coordinator.group.admin import ClassicDescription
    from penstock.protocol.shapes import DescribeGroups

API = ApiSpec(15, "DescribeGroups", 0, 6, takes_long_lists=True)

NOT_ASKED = -(1 << 31)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeGroups.Request) -> DescribeGroups.Response:
    from penstock.protocol import messages

    api = messages.api("describe_groups")
    groups = []
    async for group_id in in_slices(request.groups):
        if not may_describe_group(broker, ctx, group_id):
            groups.append(_failed(api, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        error, found = await broker.groups.describe(group_id)
        if error is not ErrorCode.NONE:
            groups.append(_failed(api, group_id, error))
            continue
        described = _described(api, ctx, found)
        if request.include_authorized_operations and found.found:
            described.authorized_operations = operations_on(broker, ctx, "GROUP", group_id)
        groups.append(described)
    return api.Response(groups=groups)


def _failed(api: DescribeGroups, group_id: str, error: ErrorCode) -> Any:
    return api.DescribedGroup(
        group_id=group_id,
        error_code=int(error),
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=NOT_ASKED,
    )


def _described(api: DescribeGroups, ctx: RequestContext, found: ClassicDescription) -> Any:
    group = _failed(api, found.group_id, ErrorCode.NONE)
    group.group_state = found.state
    group.protocol_type = found.protocol_type
    group.protocol_data = found.protocol
    if not found.found and ctx.api_version >= 6:
        group.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
        group.error_message = found.message
    group.members = [
        api.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in found.members
    ]
    return group


def error_response(request: DescribeGroups.Request, code: int, _message: str | None) -> DescribeGroups.Response:
    from penstock.protocol import messages

    api = messages.api("describe_groups")
    return api.Response(groups=[_failed(api, group_id, ErrorCode(code)) for group_id in request.groups])
