"""What the stateful operators share: processors for Spark's transformWithState that keep rows as plain tuples."""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Processor(StatefulProcessor):
    """One value of state per key, `self.kept`, with the columns of `kept_columns`; optionally with a life time."""

    def __init__(self, kept_columns: Any, ttl_ms: int | None = None) -> None:
        self._kept_columns = kept_columns
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.kept = handle.getValueState("kept", self._kept_columns, self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N803
        return iter(self.rows(tuple(key), sorted(rows, key=order), timerValues))

    @abstractmethod
    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        """What comes out for the rows of a key, which are in order."""

    def close(self) -> None:
        return


def order(row: Any) -> tuple[Any, ...]:
    """Within a batch Spark gives rows of a key in any order; `_at` says which came first."""
    return fields(row["_at"])


def fields(struct: Any) -> tuple[Any, ...]:
    """The values of a struct inside a row, which Spark hands over as a dict."""
    return tuple(struct.values()) if isinstance(struct, dict) else tuple(struct)


def ordering(rows: Any) -> Any:
    """The `_at` of rows that come from a topic (time, partition, offset); other rows have no order."""
    from pyspark.sql import functions as F  # noqa: N812

    if {"_timestamp", "_partition", "_offset"} <= set(rows.columns):
        return F.struct(
            F.unix_micros("_timestamp").alias("time"),
            F.col("_partition").cast("bigint").alias("partition"),
            F.col("_offset").alias("offset"),
        )
    zero = F.lit(0).cast("bigint")
    return F.struct(zero.alias("time"), zero.alias("partition"), zero.alias("offset"))


def made(names: Sequence[str], values: Sequence[Any]) -> Row:
    return Row(**dict(zip(names, values, strict=True)))
