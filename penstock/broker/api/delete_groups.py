"""42 DeleteGroups, v0–2: forget empty groups with their offsets. v2: flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_delete_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DeleteGroups

API = ApiSpec(42, "DeleteGroups", 0, 2, takes_long_lists=True)


async def handle(broker: Broker, ctx: RequestContext, request: DeleteGroups.Request) -> DeleteGroups.Response:
    from penstock.protocol import messages

    api = messages.api("delete_groups")
    results = []
    async for group_id in in_slices(dict.fromkeys(request.groups_names)):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if may_delete_group(broker, ctx, group_id):
            error = await broker.groups.delete(group_id)
        results.append(api.DeletableGroupResult(group_id=group_id, error_code=int(error)))
    return api.Response(results=results)


def error_response(request: DeleteGroups.Request, code: int, _message: str | None) -> DeleteGroups.Response:
    from penstock.protocol import messages

    api = messages.api("delete_groups")
    results = [api.DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    return api.Response(results=results)
