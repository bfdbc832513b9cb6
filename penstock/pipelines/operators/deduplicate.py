"""`deduplicate`: the first row of each key; a key may come again once `within` has passed in event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from penstock.pipelines.durations import Duration, spark_interval
from penstock.pipelines.operators.base import Operator
from penstock.pipelines.spec import Frozen


class Deduplicate(Operator):
    class Options(Frozen):
        key: tuple[str, ...] = Field(min_length=1)  # columns that together are the key
        time: str  # the column with the event's time
        within: Duration  # how long a key is remembered, and how late a row may be

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        rows = self.one(inputs)
        self.need(rows, *self.options.key, self.options.time)
        # Spark has this one itself: state of a key lives until the watermark has passed its time plus the delay.
        watched = rows.withWatermark(self.options.time, spark_interval(self.options.within))
        return {self.view: watched.dropDuplicatesWithinWatermark(list(self.options.key))}
