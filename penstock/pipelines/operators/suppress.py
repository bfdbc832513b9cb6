"""`suppress`: hold the updates of a window back until it closes, then give the last one.

For streams of intermediate results, such as a topic of running totals. `window_end` is the column with the window's
end; a window closes when the watermark has passed that.
"""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from penstock.pipelines.durations import Duration, spark_interval
from penstock.pipelines.operators.base import Operator, packed, struct_of
from penstock.pipelines.operators.state import Processor, fields, made, ordering
from penstock.pipelines.spec import Frozen


class Suppress(Operator):
    class Options(Frozen):
        key: tuple[str, ...] = Field(min_length=1)  # columns that together are the key, beside the window
        window_end: str  # the column with the window's end
        time: str  # the column with the update's time, which moves the watermark
        lateness: Duration = "0 seconds"  # how late an update may be

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812

        rows, options = self.one(inputs), self.options
        self.need(rows, *options.key, options.window_end, options.time)
        names = [name for name in rows.columns if not name.startswith("_")]
        columns = struct_of(rows, names)
        shaped = rows.withWatermark(options.time, spark_interval(options.lateness)).select(
            *[F.col(f"`{name}`").alias(f"_key{index}") for index, name in enumerate(options.key)],
            F.col(f"`{options.window_end}`").alias("_end"),
            F.col(f"`{options.time}`").alias("_time"),
            F.unix_millis(options.window_end).alias("_end_ms"),
            ordering(rows).alias("_at"),
            packed(rows, names).alias("_row"),
        )
        keys = [f"_key{index}" for index in range(len(options.key))]
        closed = shaped.groupBy(*keys, "_end").transformWithState(_Hold(columns), columns, "append", "eventTime")
        return {self.view: closed}


class _Hold(Processor):
    def __init__(self, columns: Any) -> None:
        super().__init__(columns)
        self._names = columns.names

    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        end_ms = rows[-1]["_end_ms"]
        if end_ms > timers.getCurrentWatermarkInMs():
            if not self.kept.exists():
                self.handle.registerTimer(end_ms)
            self.kept.update(fields(rows[-1]["_row"]))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N803
        held = self.kept.get()
        self.kept.clear()
        if held is not None:
            yield made(self._names, held)
