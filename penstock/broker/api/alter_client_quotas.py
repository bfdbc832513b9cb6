"""49 AlterClientQuotas, v0–1: limits of users, client ids, both, addresses and their defaults. v1: flexible.

Each entity succeeds or fails by itself. Kept where Kafka keeps them; every broker takes them from its image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AlterClientQuotas

API = ApiSpec(49, "AlterClientQuotas", 0, 1)


async def handle(broker: Broker, ctx: RequestContext, request: AlterClientQuotas.Request) -> AlterClientQuotas.Response:
    from penstock.broker.api.quota_entities import BadEntity
    from penstock.cluster.topics import Refusal
    from penstock.protocol import messages

    require_on_cluster(broker, ctx, "ALTER_CONFIGS")
    api = messages.api("alter_client_quotas")
    entries = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            await _alter(broker, entry, request.validate_only)
        except BadEntity as bad:
            code, message = ErrorCode.INVALID_REQUEST, str(bad)
        except Refusal as refusal:
            code, message = refusal.code, refusal.message
        entries.append(_result(api, entry, code, message))
    return api.Response(entries=entries)


async def _alter(broker: Broker, entry: Any, validate_only: bool) -> None:
    from penstock.broker.api.admin_support import config_admin
    from penstock.broker.api.quota_entities import BadEntity, entity_of_request
    from penstock.security.quota_limits import quota_problem, rendered
    from penstock.security.quota_nodes import config_key_of

    entity = entity_of_request(entry.entity)
    changes: dict[str, str | None] = {}
    for operation in entry.ops:
        if operation.key in changes:
            raise BadEntity(f"Duplicate quota key {operation.key}")
        problem = None if operation.remove else quota_problem(entity, operation.key, operation.value)
        if problem is not None:
            raise BadEntity(problem)
        changes[operation.key] = None if operation.remove else rendered(operation.key, operation.value)
    if not validate_only:
        await config_admin(broker).amend(config_key_of(entity), changes)


def _result(api: AlterClientQuotas, entry: Any, code: int, message: str | None) -> Any:
    entity = api.response_struct("EntityData")
    return api.response_struct("EntryData")(
        error_code=int(code),
        error_message=message,
        entity=[entity(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity],
    )


def error_response(request: AlterClientQuotas.Request, code: int, message: str | None) -> AlterClientQuotas.Response:
    from penstock.protocol import messages

    api = messages.api("alter_client_quotas")
    return api.Response(entries=[_result(api, entry, code, message) for entry in request.entries])
