"""Topics as Spark tables and streams: the readers behind `spark.read` and `spark.readStream` `.format("penstock")`."""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.pipelines.spark.options import OptionError, SourceOptions
from penstock.pipelines.spark.source_lookup import DataLoss, NothingToRead, SourceLookup
from penstock.pipelines.spark.source_offsets import (
    OffsetRange,
    StreamOffset,
    TopicPartition,
    limit_rows,
    split_ranges,
)

log = logging.getLogger(__name__)


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns of Spark's own Kafka source."""
    included = {name.lower(): value for name, value in options.items()}.get("includeheaders", "false")
    columns = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    if included.strip().lower() == "true":
        columns.add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
    return columns


def check_schema(schema: StructType, options: Mapping[str, str]) -> None:
    """A schema given by the user must be ours: the source does not convert."""
    expected = schema_of(options)
    found = [(item.name, item.dataType.simpleString()) for item in schema.fields]
    if found != [(item.name, item.dataType.simpleString()) for item in expected.fields]:
        raise OptionError(
            f"the source gives the columns {expected.simpleString()}, not {schema.simpleString()}:"
            " leave .schema(...) out and cast or decode the value afterwards"
        )


@dataclass
class RangePartition(InputPartition):
    """One task: a range of one topic partition."""

    wanted: OffsetRange

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    from penstock.pipelines.spark.source_fetch import read_range  # loads numba: only where records are read

    if not isinstance(partition, RangePartition):  # Spark's way to say that there is nothing to read
        return iter(())
    return read_range(options, partition.wanted)


class TopicReader(DataSourceReader):
    """`spark.read`: everything between two offsets, fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:  # type: ignore[override,unused-ignore]
        lookup = SourceLookup(self._options)
        keys = [(topic, index) for topic, (_, indexes) in lookup.existing().items() for index in indexes]
        starts = lookup.resolve(self._options.start, keys, is_end=False)
        ends = lookup.resolve(self._options.end, keys, is_end=True)
        first, last = lookup.earliest(keys), lookup.latest(keys)
        ranges = []
        for key in keys:
            start, end = self._inside(key, starts[key], ends[key], first[key], last[key])
            ranges.append(OffsetRange(*key, start, end))
        pieces = split_ranges(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]

    def _inside(self, key: TopicPartition, start: int, end: int, first: int, last: int) -> tuple[int, int]:
        """Offsets given by the user may lie outside the log."""
        if self._options.fail_on_data_loss and (start < first or end > last):
            raise DataLoss(
                f"{key[0]}-{key[1]} holds offsets {first} to {last}, but {start} to {end} are asked for;"
                " failOnDataLoss=false would read what is there"
            )
        start = min(max(start, first), last)
        return start, max(start, min(end, last))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. Planning happens in one process beside the driver, `read` in the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lookup = SourceLookup(options)
        self._target: dict[TopicPartition, int] | None = None  # AvailableNow: read up to here, then end
        self._last_batch_at = time.monotonic()
        self._committed: Mapping[TopicPartition, int] | None = None
        self._newest: StreamOffset | None = None

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        topics = self._lookup.existing()
        keys = _keys(topics)
        return StreamOffset(
            offsets=self._lookup.resolve(self._options.start, keys, is_end=False),
            topic_ids={topic: topic_id for topic, (topic_id, _) in topics.items()},
            group_id=self._options.group_id or self._new_group_id(list(topics)),
            is_initial=True,
        ).to_json()

    def _new_group_id(self, topics: list[str]) -> str:
        subject = topics[0] if len(topics) == 1 else f"{len(topics)}-topics"
        return f"{self._options.group_id_prefix}-{subject}-{uuid.uuid4().hex[:8]}"

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._lookup.latest(_keys(self._lookup.partitions()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = StreamOffset.from_json(start)
        self._show_progress(begin)
        position, topic_ids, fresh = self._current(begin)
        ends = self._lookup.latest(position) if self._target is None else self._targets(position)
        ends = {key: max(offset, position[key]) for key, offset in ends.items()}
        self._newest = StreamOffset(ends, topic_ids, begin.group_id)
        if isinstance(limit, ReadMaxRows) and not (self._options.whole_first_batch and begin.is_initial):
            ends = limit_rows(position, ends, limit.max_rows)
        rows = sum(ends[key] - position[key] for key in ends)
        is_unchanged = ends == dict(begin.offsets) and topic_ids == dict(begin.topic_ids)
        if is_unchanged or (not isinstance(limit, ReadAllAvailable) and self._waits_for_more(rows)):
            return start
        self._last_batch_at = time.monotonic()
        began_at = position if begin.is_initial else {key: position[key] for key in fresh}
        return StreamOffset(ends, topic_ids, begin.group_id, began_at=began_at or None).to_json()

    def _waits_for_more(self, rows: int) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or rows >= minimum or self._target is not None:
            return False
        return (time.monotonic() - self._last_batch_at) * 1000 < self._options.max_trigger_delay_ms

    def _targets(self, position: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert self._target is not None
        return {key: self._target.get(key, offset) for key, offset in position.items()}

    def _current(self, begin: StreamOffset) -> tuple[dict[TopicPartition, int], dict[str, str], list[TopicPartition]]:
        """Where the next batch starts in what exists now, and which partitions are new, after judging what changed."""
        topics = self._lookup.partitions()
        keys = _keys(topics)
        topic_ids = {topic: topic_id for topic, (topic_id, _) in topics.items()}
        gone = sorted(key for key in set(begin.offsets) - set(keys) if key[0] not in self._options.extra_topics)
        if gone:
            self._lost(f"{gone[0][0]}-{gone[0][1]} was deleted; {len(gone)} partition(s) are gone")
        another = {topic for topic, topic_id in topic_ids.items() if begin.topic_ids.get(topic, topic_id) != topic_id}
        for topic in sorted(another - set(self._options.extra_topics)):
            self._lost(f"topic {topic!r} was deleted and created anew: its offsets start again")
        fresh = [key for key in keys if key not in begin.offsets or key[0] in another]
        position = {key: begin.offsets[key] for key in keys if key not in fresh}
        if fresh and not gone and not another:
            log.info("new partitions are read from their beginning: %s", fresh)
        position.update(self._lookup.earliest(fresh))
        return self._still_there(position), topic_ids, fresh

    def _still_there(self, position: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        first, last = self._lookup.earliest(position), self._lookup.latest(position)
        for key, offset in position.items():
            if offset < first[key]:
                self._lost(f"{key[0]}-{key[1]}: offset {offset} was deleted, the log begins at {first[key]} now")
                position[key] = first[key]
            elif offset > last[key] and offset > self._high_watermark(key):
                self._lost(f"{key[0]}-{key[1]}: the log ends at {last[key]}, before offset {offset}: it was truncated")
                position[key] = last[key]
        return position

    def _high_watermark(self, key: TopicPartition) -> int:
        """Under read_committed an open transaction moves the readable end back below what another trigger saw."""
        client = self._lookup.client
        return client.list_offsets({key: -1}, read_committed=False)[key].offset

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. Records may have been lost; failOnDataLoss=false goes on without them")
        log.warning("%s; going on, as failOnDataLoss=false says", what)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._newest.to_json() if self._newest is not None else None

    # --- tasks ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # type: ignore[override,unused-ignore]
        finish = StreamOffset.from_json(end)
        begin = StreamOffset.from_json(start).start_for(finish)
        fresh = [
            key
            for key in finish.offsets
            if key not in begin.offsets
            or begin.topic_ids.get(key[0], finish.topic_ids.get(key[0])) != finish.topic_ids.get(key[0])
        ]
        first = self._lookup.earliest(fresh)
        ranges = []
        for key, last in finish.offsets.items():
            begins = first[key] if key in first else begin.offsets[key]
            ranges.append(OffsetRange(*key, begins, max(begins, last)))
        pieces = split_ranges(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)

    # --- progress ---

    def commit(self, end: dict[str, Any]) -> None:
        self._show_progress(StreamOffset.from_json(end))

    def _show_progress(self, done: StreamOffset) -> None:
        group_id = self._options.group_id or done.group_id
        if group_id is None or not done.offsets or self._committed == done.offsets:
            return
        self._lookup.commit_group(group_id, done.offsets)
        self._committed = done.offsets

    def stop(self) -> None:
        pass


def _keys(topics: Mapping[str, tuple[str, list[int]]]) -> list[TopicPartition]:
    return [(topic, index) for topic, (_, indexes) in topics.items() for index in indexes]


__all__ = ["DataLoss", "NothingToRead", "TopicReader", "TopicStreamReader", "check_schema", "schema_of"]
