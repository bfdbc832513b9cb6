"""43 ElectLeaders, v0–2: preferred elections, and unclean ones (from v1 on). Only the controller answers.

Without a list all partitions are meant, and only those are answered where something happened or went wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.admin_support import explained, show_controller_state
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import ElectLeaders

API = ApiSpec(43, "ElectLeaders", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: ElectLeaders.Request) -> ElectLeaders.Response:
    from penstock.cluster.controller_driver import NotController
    from penstock.cluster.events import ElectionKind, ElectLeaders

    require_on_cluster(broker, ctx, "ALTER")
    if request.election_type not in {int(kind) for kind in ElectionKind}:
        return error_response(
            request, ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}."
        )
    asked = None
    if request.topic_partitions is not None:
        asked = tuple((entry.topic, index) for entry in request.topic_partitions for index in entry.partitions)
    try:
        answers = await broker.controller.elect_leaders(ElectLeaders(ElectionKind(request.election_type), asked))
    except NotController:
        return error_response(request, ErrorCode.NOT_CONTROLLER, None)
    await show_controller_state(broker)
    api = messages.api("elect_leaders")
    by_topic: dict[str, list[Any]] = {}
    for where in asked if asked is not None else answers:
        answer = answers[where]
        by_topic.setdefault(where[0], []).append(
            api.PartitionResult(
                partition_id=where[1],
                error_code=int(answer.error_code),
                error_message=explained(answer.error_code, answer.message),
            )
        )
    return api.Response(
        replica_election_results=[
            api.ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in by_topic.items()
        ]
    )


def error_response(request: ElectLeaders.Request, code: int, message: str | None) -> ElectLeaders.Response:
    api = messages.api("elect_leaders")
    return api.Response(
        error_code=int(code),
        replica_election_results=[
            api.ReplicaElectionResult(
                topic=entry.topic,
                partition_result=[
                    api.PartitionResult(
                        partition_id=index, error_code=int(code), error_message=explained(code, message)
                    )
                    for index in entry.partitions
                ],
            )
            for entry in request.topic_partitions or ()
        ],
    )
