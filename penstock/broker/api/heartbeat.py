"""12 Heartbeat, v0–4: a classic member lives; answered at once, the hand-written way.

v3: instance ids · v4: flexible. REBALANCE_IN_PROGRESS tells the member to join again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.group_support import may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

API = ApiSpec(12, "Heartbeat", 0, 4)


async def handle(broker: Broker, ctx: RequestContext, request: Any) -> Any:
    from penstock.protocol import messages

    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if may_read_group(broker, ctx, request.group_id):
        error = broker.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    return messages.api("heartbeat").Response(error_code=int(error))
