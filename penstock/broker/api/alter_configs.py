"""33 AlterConfigs, v0–2: replaces all overrides of a topic or a broker. Newer clients use IncrementalAlterConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AlterConfigs

API = ApiSpec(33, "AlterConfigs", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: AlterConfigs.Request) -> AlterConfigs.Response:
    from penstock.broker.api.admin_support import config_admin
    from penstock.broker.api.config_changes import alter_each
    from penstock.broker.api.config_resources import ResourceType, access_problem, config_key
    from penstock.cluster.topics import Refusal

    async def alter(resource: Any) -> None:
        if resource.resource_type not in (ResourceType.TOPIC, ResourceType.BROKER):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} cannot be altered so.")
        problem = access_problem(broker, ctx, "ALTER_CONFIGS", resource.resource_type, resource.resource_name)
        if problem is not None:
            raise Refusal(problem, problem.message)
        key = config_key(broker, ResourceType(resource.resource_type), resource.resource_name)
        overrides = {config.name: config.value for config in resource.configs}
        if len(overrides) != len(resource.configs):
            raise Refusal(ErrorCode.INVALID_REQUEST, "A setting is given more than once.")
        await config_admin(broker).replace(key, overrides, validate_only=request.validate_only)

    answer: AlterConfigs.Response = await alter_each("alter_configs", request.resources, alter)
    return answer


def error_response(request: AlterConfigs.Request, code: int, message: str | None) -> AlterConfigs.Response:
    from penstock.broker.api.config_changes import refuse_each

    answer: AlterConfigs.Response = refuse_each("alter_configs", request.resources, code, message)
    return answer
