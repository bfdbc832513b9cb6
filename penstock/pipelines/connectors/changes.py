"""Rows as changes of a table: which row of a key is its last one, and which rows delete their key.

Sinks that merge share the two options `key` and `deleted`. Inside the stream `prepared` adds what they mean as columns;
on the driver the rows are Arrow data, so what a sink does with them needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.pipelines.spec import SpecError

DELETED: Final = "penstock_deleted"
PARTITION: Final = "penstock_partition"
OFFSET: Final = "penstock_offset"
OWN: Final = (DELETED, PARTITION, OFFSET)
_ROW: Final = "penstock_row"
_PACKED: Final = "packed"


def check_key(columns: Any, key: Sequence[str], sink: str) -> None:
    names = columns.fieldNames()
    missing = [name for name in key if name not in names]
    if missing:
        raise SpecError(f"sink {sink}: the key column {missing[0]!r} is not among {', '.join(names)}")
    if not data_columns(names, key):
        raise SpecError(f"sink {sink}: every column begins with _, so there is nothing to write")


def data_columns(names: Sequence[str], key: Sequence[str]) -> list[str]:
    """What is written: columns that begin with _ describe a record, unless one of them is the key."""
    return [name for name in names if not name.startswith("_") or name in key]


def prepared(rows: Any, key: Sequence[str], deleted: str | None) -> Any:
    """The columns to write; with a key also whether a row deletes it and where the row stood in its topic."""
    from pyspark.sql import functions as F  # noqa: N812

    made = [F.col(f"`{name}`") for name in data_columns(rows.columns, key)]
    if not key:
        return rows.select(*made)
    gone = F.lit(False)
    if deleted is not None:
        gone = F.coalesce(F.expr(deleted).cast("boolean"), gone)
    else:
        for column in ("_tombstone", "_deleted"):
            if column in rows.columns:
                gone = gone | F.coalesce(F.col(column), F.lit(False))
    is_placed = {"_partition", "_offset"} <= set(rows.columns)
    partition, offset = (F.col("_partition"), F.col("_offset")) if is_placed else (F.lit(0), F.lit(0))
    made += [gone.alias(DELETED), partition.cast("bigint").alias(PARTITION), offset.cast("bigint").alias(OFFSET)]
    return rows.select(*made)


def arrow_schema(columns: Any) -> Any:
    """Spark's columns as Arrow's: timestamps in UTC, everything nullable."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return _plain_schema(to_arrow_schema(columns, timezone="UTC"))


def arrow_table(rows: Any) -> Any:
    """The whole batch on the driver."""
    return plain(rows.toArrow())


def arrow_batches(rows: Any) -> Iterator[Any]:
    """The batch in pieces of at most Spark's `arrow.maxRecordsPerBatch` rows: one Spark partition at a time is here."""
    import pyarrow as pa

    for row in rows.mapInArrow(_pack, f"{_PACKED} BINARY").toLocalIterator():
        with pa.ipc.open_stream(row[0]) as reader:
            yield from plain(reader.read_all()).to_batches()


def _pack(batches: Iterable[Any]) -> Iterator[Any]:
    """Runs on the executors: each Arrow batch becomes one value."""
    import pyarrow as pa

    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([out.getvalue().to_pybytes()], pa.binary())], [_PACKED])


def plain(table: Any) -> Any:
    return table.cast(_plain_schema(table.schema))


def _plain_schema(schema: Any) -> Any:
    import pyarrow as pa

    def kind(wanted: Any) -> Any:
        is_zoned = pa.types.is_timestamp(wanted) and wanted.tz is not None
        return pa.timestamp("us", tz="UTC") if is_zoned else wanted

    return pa.schema([pa.field(item.name, kind(item.type), nullable=True) for item in schema])


def insist_on_keys(table: Any, key: Sequence[str], sink: str) -> None:
    """NULL is no key: it equals nothing, so such a row would be added again and again."""
    for name in key:
        if table.column(name).null_count:
            raise SpecError(
                f"sink {sink}: a row has no {name!r}, which is part of the key; filter such rows out in a view"
            )


def last_of_each_key(table: Any, key: Sequence[str]) -> Any:
    """One row per key: the last one by partition and offset, and of equals the one that came last."""
    import pyarrow as pa

    numbered = table.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))
    ordered = numbered.sort_by([(name, "ascending") for name in (PARTITION, OFFSET, _ROW)])
    ordered = ordered.set_column(ordered.num_columns - 1, _ROW, pa.array(range(table.num_rows), pa.int64()))
    last = ordered.group_by(list(key)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return ordered.take(last.sort()).drop_columns([_ROW])


def split(table: Any, key: Sequence[str]) -> tuple[Any, Any]:
    """(rows to have, keys to lose), one of either kind per key."""
    import pyarrow.compute as pc

    last = last_of_each_key(table, key)
    gone = last.column(DELETED)
    return last.filter(pc.invert(gone)).drop_columns(list(OWN)), last.filter(gone).select(list(key))
