"""What the stateful operators share: processors for Spark's transformWithState that keep rows as plain tuples."""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
        return iter(self.rows(tuple(key), in_order(rows), timerValues))

    @abstractmethod
    def rows(self, key: tuple[Any, ...], rows: Sequence[Any], timers: Any) -> Iterator[Any]:
        """What comes out for the rows of a key, which are in order."""

    def close(self) -> None:
        return


def in_order(rows: Iterable[Any]) -> list[Any]:
    """Within a batch Spark gives rows of a key in any order; `_at` says where each one stood.

    Of one partition the offsets count and nothing else: a record that was written later is newer, whatever its
    timestamp says. Only between partitions does time decide, as far as it leaves their own order alone.
    """
    placed = sorted(((fields(row["_at"]), row) for row in rows), key=lambda item: item[0][1:])
    newest: dict[tuple[Any, ...], int] = {}
    keyed = []
    for number, ((time, topic, partition, _), row) in enumerate(placed):
        lane = (topic, partition)
        newest[lane] = max(time, newest.get(lane, time))
        keyed.append((newest[lane], number, row))
    return [row for _, _, row in sorted(keyed, key=lambda item: item[:2])]


def fields(struct: Any) -> tuple[Any, ...]:
    """The values of a struct inside a row, which Spark hands over as a dict."""
    return tuple(struct.values()) if isinstance(struct, dict) else tuple(struct)


def ordering(rows: Any) -> Any:
    """The `_at` of rows that come from a topic (time, topic, partition, offset); other rows have no order."""
    from pyspark.sql import functions as F  # noqa: N812

    zero = F.lit(0).cast("bigint")
    found = set(rows.columns)
    is_placed = {"_partition", "_offset"} <= found
    return F.struct(
        (F.unix_micros("_timestamp") if is_placed and "_timestamp" in found else zero).alias("time"),
        (F.col("_topic") if is_placed and "_topic" in found else F.lit("")).alias("topic"),
        (F.col("_partition").cast("bigint") if is_placed else zero).alias("partition"),
        (F.col("_offset") if is_placed else zero).alias("offset"),
    )


def made(names: Sequence[str], values: Sequence[Any]) -> Row:
    return Row(**dict(zip(names, values, strict=True)))
