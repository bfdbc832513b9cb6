"""44 IncrementalAlterConfigs, v0–1: set, delete, append to and subtract from settings of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import IncrementalAlterConfigs

API = ApiSpec(44, "IncrementalAlterConfigs", 0, 1)


async def handle(
    broker: Broker, ctx: RequestContext, request: IncrementalAlterConfigs.Request
) -> IncrementalAlterConfigs.Response:
    from penstock.broker.api.config_changes import alter_each, alter_resource
    from penstock.broker.api.config_resources import access_problem
    from penstock.cluster.configs import Alteration, AlterKind
    from penstock.cluster.topics import Refusal

    async def alter(resource: Any) -> None:
        problem = access_problem(broker, ctx, "ALTER_CONFIGS", resource.resource_type, resource.resource_name)
        if problem is not None:
            raise Refusal(problem, problem.message)
        kinds = {int(kind) for kind in AlterKind}
        for config in resource.configs:
            if config.config_operation not in kinds:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}.")
        alterations = [Alteration(c.name, AlterKind(c.config_operation), c.value) for c in resource.configs]
        await alter_resource(broker, resource.resource_type, resource.resource_name, alterations, request.validate_only)

    answer: IncrementalAlterConfigs.Response = await alter_each("incremental_alter_configs", request.resources, alter)
    return answer


def error_response(
    request: IncrementalAlterConfigs.Request, code: int, message: str | None
) -> IncrementalAlterConfigs.Response:
    from penstock.broker.api.config_changes import refuse_each

    answer: IncrementalAlterConfigs.Response = refuse_each(
        "incremental_alter_configs", request.resources, code, message
    )
    return answer
