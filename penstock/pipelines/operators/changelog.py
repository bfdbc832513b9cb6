"""Changelogs and tables. A changelog has one record per change, a table one row per key.

`changelog-to-table`: the newest value per key and batch, only when it differs from what was there; `_deleted` marks
keys that a tombstone removed. `table-to-changelog`: each change as `op` (create, update, delete) with the row `before`
and `after` it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.pipelines.operators.base import Operator, packed, plain_columns, struct_of
from penstock.pipelines.operators.state import Processor, fields, made, ordering
from penstock.pipelines.spec import Frozen


class _Keyed(Operator):
    class Options(Frozen):
        key: str = "_key"  # the column with the key
        deleted: str | None = None  # a condition in SQL; what `_tombstone` or `_deleted` says when absent

    def _input(self, rows: Any) -> tuple[Any, list[str]]:
        from pyspark.sql import functions as F  # noqa: N812

        self.need(rows, self.options.key)
        names = plain_columns(rows, without=[self.options.key])
        gone = F.lit(False)
        if self.options.deleted is not None:
            gone = F.coalesce(F.expr(self.options.deleted).cast("boolean"), F.lit(False))
        else:
            for column in ("_tombstone", "_deleted"):
                if column in rows.columns:
                    gone = gone | F.coalesce(F.col(column), F.lit(False))
        shaped = rows.select(
            F.col(f"`{self.options.key}`").alias("_id"),
            gone.alias("_gone"),
            ordering(rows).alias("_at"),
            packed(rows, names).alias("_row"),
        )
        return shaped, names


class ChangelogToTable(_Keyed):
    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql.types import BooleanType, StructField, StructType

        rows = self.one(inputs)
        shaped, names = self._input(rows)
        kept = struct_of(rows, names)
        key = rows.schema[self.options.key]
        output = StructType([key, *kept.fields, StructField("_deleted", BooleanType())])
        table = shaped.groupBy("_id").transformWithState(_Latest(kept, output.names), output, "update", "none")
        return {self.view: table}


class _Latest(Processor):
    def __init__(self, kept: Any, names: list[str]) -> None:
        super().__init__(kept)
        self._names, self._nothing = names, (None,) * len(kept.names)

    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        last = rows[-1]
        before = self.kept.get()
        if last["_gone"]:
            if before is not None:
                self.kept.clear()
                yield made(self._names, (*key, *self._nothing, True))
        elif before is None or tuple(before) != fields(last["_row"]):
            self.kept.update(fields(last["_row"]))
            yield made(self._names, (*key, *fields(last["_row"]), False))


class TableToChangelog(_Keyed):
    def apply(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        from pyspark.sql.types import StringType, StructField, StructType

        rows = self.one(inputs)
        shaped, names = self._input(rows)
        kept = struct_of(rows, names)
        key = rows.schema[self.options.key]
        output = StructType(
            [key, StructField("op", StringType()), StructField("before", kept), StructField("after", kept)]
        )
        changes = shaped.groupBy("_id").transformWithState(_Changes(kept, output.names), output, "append", "none")
        return {self.view: changes}


class _Changes(Processor):
    def __init__(self, kept: Any, names: list[str]) -> None:
        super().__init__(kept)
        self._names, self._columns = names, kept.names

    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        before = self.kept.get()
        for row in rows:
            after = None if row["_gone"] else fields(row["_row"])
            if after == (None if before is None else tuple(before)):
                continue
            op = "delete" if after is None else "create" if before is None else "update"
            yield made(self._names, (*key, op, self._row(before), self._row(after)))
            before = after
        if before is None:
            self.kept.clear()
        else:
            self.kept.update(before)

    def _row(self, values: Any) -> Any:
        return None if values is None else made(self._columns, values)
