"""48 DescribeClientQuotas, v0–1: the quotas of entities that a filter finds. v1: flexible.

Each component of the filter names a part of an entity: exactly this one, its default, or any. `strict` leaves out
entities that have parts beyond these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeClientQuotas
    from penstock.security.quota_limits import Entity

API = ApiSpec(48, "DescribeClientQuotas", 0, 1)

EXACT, DEFAULT, ANY = 0, 1, 2


async def handle(
    broker: Broker, ctx: RequestContext, request: DescribeClientQuotas.Request
) -> DescribeClientQuotas.Response:
    from penstock.protocol import messages
    from penstock.security.quota_nodes import quotas_in

    require_on_cluster(broker, ctx, "DESCRIBE_CONFIGS")
    api = messages.api("describe_client_quotas")
    code, message = _problem(request.components)
    if code is not ErrorCode.NONE:
        return api.Response(error_code=int(code), error_message=message, entries=None)
    wanted = {component.entity_type: component for component in request.components}
    entries = []
    for entity, values in quotas_in(broker.image.configs):
        if not _matches(entity, wanted, request.strict):
            continue
        part, value = api.response_struct("EntityData"), api.response_struct("ValueData")
        entries.append(
            api.response_struct("EntryData")(
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[value(key=name, value=bound) for name, bound in values.items()],
            )
        )
    return api.Response(error_code=0, error_message=None, entries=entries)


def _problem(components: Any) -> tuple[ErrorCode, str | None]:
    seen: set[str] = set()
    for component in components:
        if component.entity_type not in ("user", "client-id", "ip"):
            return ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{component.entity_type}' not supported"
        if component.entity_type in seen:
            return ErrorCode.INVALID_REQUEST, f"Duplicate {component.entity_type} filter component entity type"
        seen.add(component.entity_type)
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return ErrorCode.INVALID_REQUEST, f"Unexpected match type {component.match_type}"
        if (component.match_type == EXACT) != (component.match is not None):
            return ErrorCode.INVALID_REQUEST, "A name belongs to an exact match, and to no other"
    if "ip" in seen and len(seen) > 1:
        return ErrorCode.INVALID_REQUEST, (
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component."
        )
    return ErrorCode.NONE, None


def _matches(entity: Entity, wanted: dict[str, Any], strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    for kind, component in wanted.items():
        if kind not in entity:
            return False
        if component.match_type == EXACT and entity[kind] != component.match:
            return False
        if component.match_type == DEFAULT and entity[kind] is not None:
            return False
    return True


def error_response(
    request: DescribeClientQuotas.Request, code: int, message: str | None
) -> DescribeClientQuotas.Response:
    from penstock.protocol import messages

    return messages.api("describe_client_quotas").Response(error_code=int(code), error_message=message, entries=None)
