"""10 FindCoordinator, v0–6: the broker that coordinates a group (type 0) or a transactional id (type 1).

v1: types, error messages · v3: flexible · v4: several keys at once · v5: newer transaction errors · v6: share (type 2).
The internal topic is made on first use; until it is led the answer is COORDINATOR_NOT_AVAILABLE, and clients retry.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.slices import in_slices
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import FindCoordinator

API = ApiSpec(10, "FindCoordinator", 0, 6, takes_long_lists=True)

GROUP, TRANSACTION = 0, 1
SEVERAL_KEYS = 4
logger = logging.getLogger(__name__)

Found = tuple[int, str | None, int, str, int]
"""(error, message, node id, host, port)"""


async def handle(broker: Broker, ctx: RequestContext, request: FindCoordinator.Request) -> FindCoordinator.Response:
    from penstock.protocol import messages

    api = messages.api("find_coordinator").load_all_versions()
    kind = request.key_type if ctx.api_version >= 1 else GROUP
    if ctx.api_version < SEVERAL_KEYS:
        error, message, node_id, host, port = await _find(broker, ctx, kind, request.key)
        response = api.Response(error_code=error, node_id=node_id, host=host, port=port)
        response.error_message = message or "NONE"  # what Kafka says where nothing is wrong, in these versions only
        return response
    coordinators = []
    async for key in in_slices(request.coordinator_keys):
        error, message, node_id, host, port = await _find(broker, ctx, kind, key)
        coordinator = api.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error)
        coordinator.error_message = message
        coordinators.append(coordinator)
    return api.Response(coordinators=coordinators)


async def _find(broker: Broker, ctx: RequestContext, kind: int, key: str) -> Found:
    refused = _refusal(broker, ctx, kind, key)
    if refused is not None:
        return _failed(refused)
    topic, coordinator = (
        ("__consumer_offsets", broker.groups) if kind == GROUP else ("__transaction_state", broker.transactions)
    )
    if broker.image.topic(topic) is None:
        problem = await broker.auto_create_topic(topic)
        if problem is not None:
            logger.warning("topic=%s cannot be created: %s", topic, problem)
        if broker.image.topic(topic) is None:
            return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    registration = broker.image.partition(topic, coordinator.partition_for(key))
    leader = None if registration is None else broker.image.brokers.get(registration.leader)
    endpoint = None if leader is None else leader.endpoints.get(ctx.listener_name)
    if leader is None or endpoint is None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return 0, "", leader.broker_id, endpoint.host, endpoint.port


def _refusal(broker: Broker, ctx: RequestContext, kind: int, key: str) -> ErrorCode | None:
    if kind not in (GROUP, TRANSACTION):
        return ErrorCode.INVALID_REQUEST
    if kind == GROUP and not allowed(broker, ctx, "DESCRIBE", "GROUP", key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if kind == TRANSACTION and not allowed(broker, ctx, "DESCRIBE", "TRANSACTIONAL_ID", key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _failed(error: ErrorCode) -> Found:
    return int(error), error.message, -1, "", -1


def error_response(request: FindCoordinator.Request, code: int, message: str | None) -> FindCoordinator.Response:
    from penstock.protocol import messages

    api = messages.api("find_coordinator").load_all_versions()
    coordinators = []
    for key in request.coordinator_keys or []:
        coordinator = api.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
        coordinator.error_message = message
        coordinators.append(coordinator)
    response = api.Response(error_code=code, node_id=-1, host="", port=-1, coordinators=coordinators)
    response.error_message = message
    return response
