"""`join-latest`: each row of a stream with the newest value of its key in a table that lives in a compacted topic.

`from: [stream, table]`. The table's rows update the state of their key (a tombstone clears it); the stream's rows are
joined with what is there. Within a batch the table's changes come first. A row of the stream that finds nothing is
dropped (`missing: drop`) or kept with nulls (`missing: keep`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from penstock.pipelines.operators.base import Operator, packed, plain_columns, struct_of
from penstock.pipelines.operators.state import Processor, fields, made, ordering
from penstock.pipelines.spec import Frozen, SpecError


class JoinLatest(Operator):
    """Reads `from: [stream, table]`; within a batch the table's changes come first."""

    class Options(Frozen):
        by: str  # the key: a column of the stream
        table_key: str = "_key"  # the key: a column of the table
        missing: Literal["drop", "keep"] = "drop"  # what to do with a row of the stream that finds nothing
        prefix: str = ""  # put before the table's column names

    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.types import StructField, StructType

        if len(inputs) != 2:
            raise SpecError(f"view {self.view}: join-latest reads two tables, from: [stream, table]")
        stream, table = inputs
        options = self.options
        self.need(stream, options.by)
        self.need(table, options.table_key)
        table_names = plain_columns(table, without=[options.table_key, options.by])
        clash = sorted({f"{options.prefix}{name}" for name in table_names} & set(stream.columns))
        if clash:
            raise SpecError(f"view {self.view}: both tables have a column {clash[0]!r}; give a prefix for the table's")
        left, right = struct_of(stream, stream.columns), struct_of(table, table_names)
        gone = F.col("_tombstone") if "_tombstone" in table.columns else F.lit(False)
        both = stream.select(
            F.col(f"`{options.by}`").cast("string").alias("_on"),
            F.lit(False).alias("_is_table"),
            F.lit(False).alias("_gone"),
            ordering(stream).alias("_at"),
            packed(stream, stream.columns).alias("_left"),
            F.lit(None).cast(right).alias("_right"),
        ).unionByName(
            table.select(
                F.col(f"`{options.table_key}`").cast("string").alias("_on"),
                F.lit(True).alias("_is_table"),
                gone.alias("_gone"),
                ordering(table).alias("_at"),
                F.lit(None).cast(left).alias("_left"),
                packed(table, table_names).alias("_right"),
            )
        )
        output = StructType(
            [*left.fields, *[StructField(f"{options.prefix}{item.name}", item.dataType) for item in right.fields]]
        )
        processor = _Join(right, output.names, len(right.names), options.missing == "keep")
        joined = both.groupBy("_on").transformWithState(processor, output, "append", "none")
        return {self.view: joined}


class _Join(Processor):
    def __init__(self, kept: Any, names: list[str], width: int, keep_missing: bool) -> None:
        super().__init__(kept)
        self._names, self._nothing, self._keep_missing = names, (None,) * width, keep_missing

    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        # A word with the state costs more than all the rest: of the table's rows the last one is told, and nothing is
        # asked that is known, or that no row of the stream is here for, as while the table is read.
        changes = [row for row in rows if row["_is_table"]]
        if changes:
            found = None if changes[-1]["_gone"] else fields(changes[-1]["_right"])
            if found is None:
                self.kept.clear()
            else:
                self.kept.update(found)
        elif rows:
            found = self.kept.get()
        if len(changes) == len(rows):
            return
        if found is None and not self._keep_missing:
            return
        for row in rows:
            if not row["_is_table"]:
                yield made(self._names, (*fields(row["_left"]), *(self._nothing if found is None else found)))
