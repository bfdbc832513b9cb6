"""`remember`: each row with the one of its key before it, forgotten after `ttl` (state with a time to live).

Adds `previous`, the row before as a struct, or null if there was none or it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.pipelines.durations import Duration, duration_ms
from penstock.pipelines.operators.base import Operator, packed, plain_columns, struct_of
from penstock.pipelines.operators.state import Processor, fields, made, ordering
from penstock.pipelines.spec import Frozen, SpecError


class Remember(Operator):
    """Adds the column `previous`, a struct, or null if nothing is remembered."""

    class Options(Frozen):
        key: str  # the column with the key
        ttl: Duration  # how long a row is remembered, by the clock

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StructField, StructType

        rows = self.one(inputs)
        self.need(rows, self.options.key)
        names = plain_columns(rows)
        if "previous" in names:
            raise SpecError(f"view {self.view}: the rows have a column named previous already")
        columns = struct_of(rows, names)
        shaped = rows.select(
            F.col(f"`{self.options.key}`").alias("_id"), ordering(rows).alias("_at"), packed(rows, names).alias("_row")
        )
        output = StructType([*columns.fields, StructField("previous", columns)])
        processor = _Previous(columns, duration_ms(self.options.ttl))
        made_view = shaped.groupBy("_id").transformWithState(processor, output, "append", "processingTime")
        return {self.view: made_view}


class _Previous(Processor):
    def __init__(self, columns: Any, ttl_ms: int) -> None:
        super().__init__(columns, ttl_ms)
        self._columns, self._names = columns.names, [*columns.names, "previous"]

    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        before = self.kept.get()
        for row in rows:
            values = fields(row["_row"])
            yield made(self._names, (*values, None if before is None else made(self._columns, before)))
            before = values
        self.kept.update(before)
