"""16 ListGroups, v0–5: the groups that this broker coordinates. v3: flexible · v4: by state · v5: by type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_describe_group, may_list_all_groups
from penstock.broker.api.spec import ApiSpec, RequestContext

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ListGroups

API = ApiSpec(16, "ListGroups", 0, 5)


async def handle(broker: Broker, ctx: RequestContext, request: ListGroups.Request) -> ListGroups.Response:
    from penstock.protocol import messages

    api = messages.api("list_groups")
    error, listed = broker.groups.list()
    states = {state.lower() for state in request.states_filter or []}
    types = {kind.lower() for kind in request.types_filter or []}
    sees_all = may_list_all_groups(broker, ctx)
    groups = [
        api.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.group_type,
        )
        for group in listed
        if (not states or group.state.lower() in states)
        and (not types or group.group_type.lower() in types)
        and (sees_all or may_describe_group(broker, ctx, group.group_id, audit=False))
    ]
    return api.Response(error_code=int(error), groups=groups)
