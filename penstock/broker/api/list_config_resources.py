"""74 ListConfigResources, v0–1: which resources have configs. v0 asks for client metrics only, of which there are
none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.cluster.znodes import desanitize
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ListConfigResources

API = ApiSpec(74, "ListConfigResources", 0, 1)


async def handle(
    broker: Broker, ctx: RequestContext, request: ListConfigResources.Request
) -> ListConfigResources.Response:
    from penstock.broker.api.config_resources import ResourceType

    require_on_cluster(broker, ctx, "DESCRIBE_CONFIGS")
    api = messages.api("list_config_resources")
    known = {int(kind) for kind in ResourceType}
    if ctx.api_version == 0:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or known
    if not wanted <= known:
        return api.Response(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    image = broker.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    names = {
        ResourceType.GROUP: sorted(desanitize(name) for kind, name in image.configs if kind == "group"),
        ResourceType.CLIENT_METRICS: [],
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.BROKER: brokers,
        ResourceType.TOPIC: sorted(image.topics),
    }
    return api.Response(
        config_resources=[
            api.ConfigResource(resource_name=name, resource_type=int(kind))
            for kind, found in names.items()
            if int(kind) in wanted
            for name in found
        ]
    )
