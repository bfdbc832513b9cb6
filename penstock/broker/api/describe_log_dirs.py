"""DescribeLogDirs (key 35), versions 1–5: which replicas lie in which folder, and how full its disk is.

v3: top-level error · v4: total and usable bytes of the volume · v5: whether the folder is cordoned (never here).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeLogDirs

API = ApiSpec(35, "DescribeLogDirs", 1, 5)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeLogDirs.Request) -> DescribeLogDirs.Response:
    from penstock.protocol import messages

    require_on_cluster(broker, ctx, "DESCRIBE")
    api = messages.api("describe_log_dirs")
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_directory: dict[Path, dict[str, list[Any]]] = {path: {} for path in broker.log_manager.directories}
    for log in broker.log_manager.logs():
        if wanted is not None and (log.topic, log.partition) not in wanted:
            continue
        partition = broker.replicas.find(log.topic, log.partition)
        lag = 0 if partition is None else max(partition.log.high_watermark - log.log_end_offset, 0)
        row = api.DescribeLogDirsPartition(
            partition_index=log.partition, partition_size=log.size_bytes(), offset_lag=lag, is_future_key=False
        )
        by_directory.setdefault(log.directory.parent, {}).setdefault(log.topic, []).append(row)
    for (topic, index), future in broker.replicas.moves.futures.items():
        partition = broker.replicas.find(topic, index)
        if partition is None or (wanted is not None and (topic, index) not in wanted):
            continue
        row = api.DescribeLogDirsPartition(
            partition_index=index,
            partition_size=future.size_bytes(),
            offset_lag=max(partition.log.log_end_offset - future.log_end_offset, 0),
            is_future_key=True,
        )
        by_directory.setdefault(future.directory.parent, {}).setdefault(topic, []).append(row)
    failed = set(broker.log_manager.failed_directories)
    results = []
    for path, topics in by_directory.items():
        if path in failed:
            results.append(
                api.DescribeLogDirsResult(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=str(path), topics=[])
            )
            continue
        total, usable = _volume(path)
        results.append(
            api.DescribeLogDirsResult(
                error_code=0,
                log_dir=str(path),
                topics=[
                    api.DescribeLogDirsTopic(name=name, partitions=sorted(rows, key=lambda row: row.partition_index))
                    for name, rows in sorted(topics.items())
                ],
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    return api.Response(error_code=0, results=results)


def _volume(path: Path) -> tuple[int, int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
