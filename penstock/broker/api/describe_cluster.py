"""60 DescribeCluster, v0–2: the brokers and the controller, as this listener's clients reach them.

v1 asks for a kind of endpoint: only brokers are here. v2 may include fenced brokers: registered, but out of the
controller's reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeCluster

API = ApiSpec(60, "DescribeCluster", 0, 2)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
NOT_ASKED = -(2**31)
ALL_CLUSTER_OPERATIONS = 8096
"""Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite as bits."""


async def handle(broker: Broker, ctx: RequestContext, request: DescribeCluster.Request) -> DescribeCluster.Response:
    from penstock.broker.metadata.leader_hints import broker_address

    api = messages.api("describe_cluster")
    if request.endpoint_type != BROKER_ENDPOINTS:
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker, not a controller endpoint."
        else:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"There is no endpoint of type {request.endpoint_type}."
        return api.Response(error_code=int(code), error_message=message, controller_id=-1)
    brokers = []
    for broker_id, registration in sorted(broker.image.brokers.items()):
        if registration.fenced and not request.include_fenced_brokers:
            continue
        address = broker_address(broker, ctx.connection, broker_id) if ctx.connection is not None else None
        if address is not None:
            brokers.append(
                api.DescribeClusterBroker(
                    broker_id=broker_id,
                    host=address[0],
                    port=address[1],
                    rack=registration.rack,
                    is_fenced=registration.fenced,
                )
            )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        authorizer = broker.authorizer
        operations = ALL_CLUSTER_OPERATIONS if authorizer is None else authorizer.cluster_operations(ctx.connection)
    return api.Response(
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=broker.cluster_id,
        controller_id=broker.image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
