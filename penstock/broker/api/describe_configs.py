"""32 DescribeConfigs, v1–4: every setting of topics, brokers, groups and loggers, with where its value comes from.

v3 adds type and documentation. A broker answers about itself and about the cluster-wide defaults (empty name).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.base.settings.describe import ConfigRow
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeConfigs

API = ApiSpec(32, "DescribeConfigs", 1, 4, takes_long_lists=True)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeConfigs.Request) -> DescribeConfigs.Response:
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
            results.append(await _describe(broker, request, resource))
        else:
            refused.append(_refused(resource, problem, problem.message))
    return api.Response(results=results + refused)


def error_response(request: DescribeConfigs.Request, code: int, message: str | None) -> DescribeConfigs.Response:
    api = messages.api("describe_configs")
    return api.Response(results=[_refused(resource, code, message) for resource in request.resources])


def _refused(
    resource: DescribeConfigs.DescribeConfigsResource, code: int, message: str | None
) -> DescribeConfigs.DescribeConfigsResult:
    return messages.api("describe_configs").DescribeConfigsResult(
        error_code=int(code),
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _describe(
    broker: Broker, request: DescribeConfigs.Request, resource: DescribeConfigs.DescribeConfigsResource
) -> DescribeConfigs.DescribeConfigsResult:
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
    result.configs = [_result(api, row, request) async for row in in_slices(rows)]
    return result


def _rows(broker: Broker, kind: Any, name: str, keys: list[str] | None) -> list[ConfigRow]:
    from penstock.base.settings.describe import describe_broker, describe_default_broker, describe_topic
    from penstock.broker.api.config_resources import (
        BadResource,
        ResourceType,
        config_key,
        describe_group,
        describe_loggers,
    )

    if kind is ResourceType.CLIENT_METRICS:
        return []
    key = config_key(broker, kind, name)
    if kind is ResourceType.TOPIC:
        if name not in broker.image.topics:
            raise BadResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return describe_topic(broker.settings, broker.image.config(*key), keys)
    if kind is ResourceType.BROKER_LOGGER:
        return describe_loggers(keys)
    if kind is ResourceType.GROUP:
        return describe_group(broker, broker.image.config(*key), keys)
    if name == "":
        return describe_default_broker(broker.image.config("broker", ""), keys)
    return describe_broker(broker.settings, keys)


def _result(
    api: Any, row: ConfigRow, request: DescribeConfigs.Request
) -> DescribeConfigs.DescribeConfigsResourceResult:
    synonyms = row.synonyms if request.include_synonyms else []
    result: DescribeConfigs.DescribeConfigsResourceResult = api.DescribeConfigsResourceResult(
        name=row.name,
        value=None if row.is_sensitive else row.value,
        read_only=row.read_only,
        config_source=int(row.source),
        is_sensitive=row.is_sensitive,
        synonyms=[api.DescribeConfigsSynonym(name=s.name, value=s.value, source=int(s.source)) for s in synonyms],
        config_type=row.type_code,
        documentation=row.doc if request.include_documentation else None,
    )
    return result
