"""AlterReplicaLogDirs (key 34), versions 1–2: move replicas of this broker to another of its log directories.

The answer says that the move has begun (DescribeLogDirs shows it as a future replica until it is done). A move to where
the replica lies already ends one that is under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import AlterReplicaLogDirs

API = ApiSpec(34, "AlterReplicaLogDirs", 1, 2)


async def handle(
    broker: Broker, ctx: RequestContext, request: AlterReplicaLogDirs.Request
) -> AlterReplicaLogDirs.Response:
    from penstock.protocol import messages

    require_on_cluster(broker, ctx, "ALTER")
    api = messages.api("alter_replica_log_dirs")
    results: dict[str, Any] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = results.setdefault(
                topic.name, api.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[])
            )
            for index in topic.partitions:
                error = broker.replicas.moves.move(topic.name, index, Path(wanted.path))
                result.partitions.append(api.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
    return api.Response(results=list(results.values()))


def error_response(
    request: AlterReplicaLogDirs.Request, code: int, message: str | None
) -> AlterReplicaLogDirs.Response:
    from penstock.protocol import messages

    api = messages.api("alter_replica_log_dirs")
    return api.Response(
        results=[
            api.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    api.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for wanted in request.dirs
            for topic in wanted.topics
        ]
    )
