"""25 AddOffsetsToTxn, v0–4: a transaction shall span the offsets of a group, that is the group's partition of
`__consumer_offsets`. Clients of transaction.version 2 skip it.

v2: PRODUCER_FENCED · v3: flexible · v4: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.api.transaction_support import fenced_for_version, may_use_transactional_id
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AddOffsetsToTxn

API = ApiSpec(25, "AddOffsetsToTxn", 0, 4)


async def handle(broker: Broker, ctx: RequestContext, request: AddOffsetsToTxn.Request) -> AddOffsetsToTxn.Response:
    from penstock.protocol import messages

    api = messages.api("add_offsets_to_txn")
    if not may_use_transactional_id(broker, ctx, request.transactional_id):
        return api.Response(error_code=int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not allowed(broker, ctx, "READ", "GROUP", request.group_id):
        return api.Response(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    offsets = ("__consumer_offsets", broker.groups.partition_for(request.group_id))
    codes = await broker.transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, [offsets], 0
    )
    error = codes[offsets]
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # the first group of the cluster, not yet in our image
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return api.Response(error_code=fenced_for_version(error, ctx.api_version >= 2))
