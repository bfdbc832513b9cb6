"""27 WriteTxnMarkers, v1–2: end a transaction in partitions that this broker leads.

Sent by transaction coordinators (proven brokers), and by Kafka's transactions tool to abort a hanging transaction by
hand: that needs CLUSTER_ACTION or ALTER on the cluster, and is open to all where there is no authorizer.
v2: the transaction.version of the coordinator, which decides how strictly the producer's epoch is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.large_messages import MOST_ELEMENTS, count_elements
from penstock.protocol.errors import ErrorCode
from penstock.protocol.message_compiler import MalformedMessage

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import WriteTxnMarkers

API = ApiSpec(27, "WriteTxnMarkers", 1, 2, takes_long_lists=True)


async def handle(broker: Broker, ctx: RequestContext, request: WriteTxnMarkers.Request) -> WriteTxnMarkers.Response:
    from penstock.broker.transaction_links import write_markers_here
    from penstock.coordinator.transaction.marker_sender import MarkerWrite

    if ctx.broker_id < 0 and count_elements(request, MOST_ELEMENTS) > MOST_ELEMENTS:
        raise MalformedMessage(f"more than {MOST_ELEMENTS} elements, and not from a broker")
    if (
        ctx.broker_id < 0
        and not allowed_on_cluster(broker, ctx, "ALTER", audit=False)
        and not allowed_on_cluster(broker, ctx, "CLUSTER_ACTION")
    ):
        return error_response(request, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None)
    if any(marker.producer_id < 0 or marker.producer_epoch < 0 for marker in request.markers):
        return error_response(request, int(ErrorCode.UNKNOWN_SERVER_ERROR), None)  # Kafka's word: nobody's marker
    markers = [
        MarkerWrite(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
            tuple((topic.name, index) for topic in marker.topics for index in topic.partition_indexes),
        )
        for marker in request.markers
    ]
    return _response(request, await write_markers_here(broker, markers))


def _response(request: WriteTxnMarkers.Request, answers: list[dict[tuple[str, int], int]]) -> WriteTxnMarkers.Response:
    from penstock.protocol import messages

    api = messages.api("write_txn_markers")
    return api.Response(
        markers=[
            api.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    api.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            api.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=codes[(topic.name, index)]
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, codes in zip(request.markers, answers, strict=True)
        ]
    )


def error_response(request: WriteTxnMarkers.Request, code: int, message: str | None) -> WriteTxnMarkers.Response:
    return _response(
        request,
        [
            {(topic.name, index): code for topic in marker.topics for index in topic.partition_indexes}
            for marker in request.markers
        ],
    )
