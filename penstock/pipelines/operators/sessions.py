"""`sessions`: events of a key that follow each other within a gap, as one row when the session is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from penstock.pipelines.durations import Duration, spark_interval
from penstock.pipelines.operators.base import Operator
from penstock.pipelines.spec import Frozen


class Sessions(Operator):
    """Columns: the key, session_start, session_end (of the last event), events, and the aggregates."""

    class Options(Frozen):
        key: tuple[str, ...] = Field(min_length=1)  # columns that together are the key
        time: str  # the column with the event's time
        gap: Duration  # a session is over when nothing follows within this
        lateness: Duration = "0 seconds"  # how late an event may be
        aggregates: dict[str, str] = Field(default_factory=dict)  # column → SQL, such as `{total: sum(amount)}`

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812

        rows, options = self.one(inputs), self.options
        self.need(rows, *options.key, options.time)
        watched = rows.withWatermark(options.time, spark_interval(options.lateness))
        grouped = watched.groupBy(*options.key, F.session_window(options.time, spark_interval(options.gap)))
        found = grouped.agg(
            F.max(options.time).alias("session_end"),
            F.count(F.lit(1)).alias("events"),
            *[F.expr(text).alias(name) for name, text in options.aggregates.items()],
        )
        columns = [
            *[F.col(f"`{name}`") for name in options.key],
            F.col("session_window.start").alias("session_start"),
            F.col("session_end"),
            F.col("events"),
            *[F.col(f"`{name}`") for name in options.aggregates],
        ]
        return {self.view: found.select(*columns)}
