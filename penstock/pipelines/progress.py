"""How a query does, in the few numbers that people watch, made of what Spark reports per batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

IDLE_BATCHES: Final = 3


def summary(query: str, progress: Mapping[str, Any]) -> dict[str, Any]:
    """rows, rows_per_second, lag (None if unknown), batch_ms, state, watermark, rows per second of each topic.

    `late`: rows that came too late so far; None if the pipeline does not ask for them.
    """
    operators = progress.get("stateOperators") or []
    return {
        "query": query,
        "batch": progress["batchId"],
        "rows": progress.get("numInputRows", 0),
        "rows_per_second": round(float(progress.get("processedRowsPerSecond") or 0.0), 1),
        "lag": _lag(progress.get("sources") or []),
        "batch_ms": (progress.get("durationMs") or {}).get("triggerExecution", 0),
        "state_rows": sum(item.get("numRowsTotal", 0) for item in operators),
        "state_bytes": sum(item.get("memoryUsedBytes", 0) for item in operators),
        "late": progress.get("late"),
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "topics": _rates(progress.get("sources") or []),
        "at": progress["timestamp"],
    }


def _rates(sources: list[Mapping[str, Any]]) -> dict[str, float]:
    """Rows per second that were read of each topic; of sources that hold several, for the first by name."""
    found: dict[str, float] = {}
    for source in sources:
        names = sorted({topic for topic, _ in _offsets(source.get("endOffset"))})
        if names:
            rate = float(source.get("processedRowsPerSecond") or 0.0)
            found[names[0]] = round(found.get(names[0], 0.0) + rate, 1)
    return found


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    total = None
    for source in sources:
        newest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if newest and end:
            total = (total or 0) + sum(max(0, offset - end.get(key, 0)) for key, offset in newest.items())
    return total


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    """`{"orders": {"0": 17}, "#ids": …}`, as text or parsed; anything else has no offsets."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in value.items()
        if isinstance(partitions, Mapping) and not topic.startswith("#")
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


def is_idle(query: Any) -> bool:
    """Caught up, but not ending: state with a time to live makes Spark run empty batches for ever.

    What counts is that no source moves. Batches without rows may as well be on their way through stretches of aborted
    or compacted records.
    """
    last = query.recentProgress[-IDLE_BATCHES:]
    return len({item["batchId"] for item in last}) == IDLE_BATCHES and not any(_has_moved(item) for item in last)


def _has_moved(progress: Mapping[str, Any]) -> bool:
    return bool(progress["numInputRows"]) or any(
        source["startOffset"] != source["endOffset"] for source in progress["sources"]
    )
