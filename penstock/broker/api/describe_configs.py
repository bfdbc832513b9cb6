"""32 DescribeConfigs, v1–4: every setting of topics, brokers, groups and loggers, with where its value comes from.

v3 adds type and documentation. A broker answers about itself and about the cluster-wide defaults (empty name).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.slices import in_slices
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.base.settings.describe import ConfigRow
    from penstock.broker.broker import Broker

API = ApiSpec(32, "DescribeConfigs", 1, 4)


async def handle(broker: Broker, ctx: RequestContext, request: Any) -> Any:
    from penstock.broker.api.config_resources import ResourceType, access_problem

    api = messages.api("describe_configs")
    known = {int(kind) for kind in ResourceType}
    if any(resource.resource_type not in known for resource in request.resources):
        return error_response(request, ErrorCode.INVALID_REQUEST, "A resource has a type that does not exist.")
    results, refused = [], []
    # One that is named again is answered once: its rows cost a hundred times the bytes that ask for them.
    single = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    async for resource in in_slices(single.values()):
        problem = access_problem(broker, ctx, "DESCRIBE_CONFIGS", resource.resource_type, resource.resource_name)
        if problem is None:
            results.append(_describe(broker, request, resource))
        else:
            refused.append(_refused(resource, problem, problem.message))
    return api.Response(results=results + refused)


def error_response(request: Any, code: int, message: str | None) -> Any:
    api = messages.api("describe_configs")
    return api.Response(results=[_refused(resource, code, message) for resource in request.resources])


def _refused(resource: Any, code: int, message: str | None) -> Any:
    return messages.api("describe_configs").DescribeConfigsResult(
        error_code=int(code),
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe(broker: Broker, request: Any, resource: Any) -> Any:
    from penstock.broker.api.config_resources import BadResource, ResourceType

    api = messages.api("describe_configs")
    result = api.DescribeConfigsResult(
        error_code=0, error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    kind = ResourceType(resource.resource_type)
    try:
        rows = _rows(broker, kind, resource.resource_name, resource.configuration_keys)
    except BadResource as bad:
        result.error_code, result.error_message = int(bad.code), bad.message
        return result
    result.configs = [_result(row, request) for row in rows]
    return result


def _rows(broker: Broker, kind: Any, name: str, keys: list[str] | None) -> list[ConfigRow]:
    from penstock.base.settings.describe import describe_broker, describe_default_broker, describe_topic
    from penstock.broker.api.config_resources import ResourceType, config_key, describe_group, describe_loggers

    if kind is ResourceType.CLIENT_METRICS:
        return []
    key = config_key(broker, kind, name)
    if kind is ResourceType.TOPIC:
        return describe_topic(broker.settings, broker.image.config(*key), keys)
    if kind is ResourceType.BROKER_LOGGER:
        return describe_loggers(keys)
    if kind is ResourceType.GROUP:
        return describe_group(broker, broker.image.config(*key), keys)
    if name == "":
        return describe_default_broker(broker.image.config("broker", ""), keys)
    return describe_broker(broker.settings, keys)


def _result(row: ConfigRow, request: Any) -> Any:
    api = messages.api("describe_configs")
    synonyms = row.synonyms if request.include_synonyms else []
    return api.DescribeConfigsResourceResult(
        name=row.name,
        value=None if row.is_sensitive else row.value,
        read_only=row.read_only,
        config_source=int(row.source),
        is_sensitive=row.is_sensitive,
        synonyms=[api.DescribeConfigsSynonym(name=s.name, value=s.value, source=int(s.source)) for s in synonyms],
        config_type=row.type_code,
        documentation=row.doc if request.include_documentation else None,
    )
