"""Topics: decoded on the way in, encoded on the way out, exactly once through transactions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from penstock.client.records import EARLIEST, LATEST
from penstock.pipelines.checkpoint import POSITIONS
from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.connectors.topic_sample import first_values
from penstock.pipelines.formats import BytesFormat, FormatOption, JsonFormat, StringFormat
from penstock.pipelines.formats.base import CORRUPT, Format, FormatContext
from penstock.pipelines.formats.dead_letters import RETRY_SOURCE, dead_letters
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.options import SourceOptions
from penstock.pipelines.spark.source_lookup import NothingToRead, SourceLookup
from penstock.pipelines.spark.source_offsets import TopicPartition
from penstock.pipelines.spec import Frozen, SpecError

RAW_COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_DECODED: Final = "_decoded"


class TopicSource(Source):
    """Rows: the value's columns, and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_tombstone`."""

    class Options(Frozen):
        topic: str | None = None  # one topic; give exactly one of `topic`, `topics` and `pattern`
        topics: tuple[str, ...] = ()  # several topics
        pattern: str | None = None  # a regular expression for whole names of topics
        format: FormatOption = JsonFormat()  # how values are written
        key_format: Literal["string", "bytes"] = "string"  # what the column `_key` is
        starting: Literal["earliest", "latest"] | int | datetime = "earliest"  # or a time: ISO (UTC), or ms since 1970
        max_rows_per_trigger: int | None = Field(default=None, gt=0)  # at most so many records per batch
        headers: bool = False  # also a column `_headers`
        on_bad_record: Literal["dead-letter", "drop", "fail"] = "dead-letter"  # what to do if one does not decode
        fail_on_data_loss: bool = True  # stop if records are gone before they are read; `false` logs it and goes on

        @model_validator(mode="after")
        def _one_subscription(self) -> TopicSource.Options:
            given = [name for name in ("topic", "topics", "pattern") if getattr(self, name)]
            if len(given) != 1:
                raise ValueError("give exactly one of topic, topics and pattern")
            return self

        @property
        def subscription(self) -> tuple[str, str]:
            if self.pattern:
                return "subscribePattern", self.pattern
            return "subscribe", ",".join(self.topics or (str(self.topic),))

    def identity(self) -> str:
        return "topic " + self.options.subscription[1]

    def load(self) -> Loaded:
        from pyspark.sql import functions as F  # noqa: N812

        fmt: Format = self.options.format
        context = self._format_context()
        decoded = self._raw().withColumn(_DECODED, fmt.decode(F.col("value"), columns := fmt.columns(context), context))
        is_bad = F.col(f"{_DECODED}.{CORRUPT}").isNotNull()
        if self.options.on_bad_record == "fail":
            good = decoded.where(F.when(~is_bad, F.lit(True)).otherwise(F.raise_error(self._complaint())))
        else:
            good = decoded.where(~is_bad)
        bad = None
        if self.options.on_bad_record == "dead-letter" and not isinstance(fmt, BytesFormat):
            bad = dead_letters(decoded.where(is_bad), fmt, f"{_DECODED}.{CORRUPT}", self.context.pipeline, self.name)
        return Loaded(good.select(*self._columns(columns)), bad)

    def _complaint(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        kind = self.options.format.type
        return F.format_string(
            f"record %s-%d at offset %d does not decode as {kind}: %s",
            "topic", "partition", "offset", F.substring(F.col(f"{_DECODED}.{CORRUPT}"), 1, 300),
        )  # fmt: skip

    def _columns(self, columns: Any) -> list[Any]:
        from pyspark.sql import functions as F  # noqa: N812

        key = F.col("key") if self.options.key_format == "bytes" else F.col("key").cast("string")
        made = [F.col(f"{_DECODED}.`{item.name}`").alias(item.name) for item in columns.fields]
        made += [key.alias("_key")]
        made += [F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")]
        made += [F.col("value").isNull().alias("_tombstone")]
        return made + ([F.col("headers").alias("_headers")] if self.options.headers else [])

    def _raw(self) -> Any:
        spark = self.context.spark
        folder = self.context.given.get(self.name)
        if folder is not None:
            return spark.readStream.schema(RAW_COLUMNS).parquet(folder)
        if self.context.ranges is not None:
            return self._mine(self._range(self.context.ranges.get(self.name, ({}, {}))))
        kind, wanted = self.options.subscription
        retry = self.context.retry_topic
        options = {
            **self.context.spark_options,
            kind: wanted,
            "alsoSubscribe": retry,
            **self._start(),
            "includeHeaders": "true",
            "failOnDataLoss": str(self.options.fail_on_data_loss).lower(),
            "kafka.group.id": f"penstock.{self.context.pipeline}",
        }
        if self.options.fail_on_data_loss:
            self._insist_on_topics(options)
        limit = self.options.max_rows_per_trigger or self.context.max_rows_per_trigger
        if limit is not None:
            options["maxOffsetsPerTrigger"] = str(limit)
            options["wholeFirstBatch"] = str(self.name in self.context.lookups).lower()
        return self._mine(spark.readStream.format("penstock").options(**options).load())

    def _mine(self, rows: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        is_own = F.col("topic") != self.context.retry_topic
        return rows.where(is_own | (F.coalesce(self._retried_for(), F.lit("")) == self.name))

    def _range(self, ends: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]) -> Any:
        """Exactly these records, as a table."""
        begin, end = (_by_topic(offsets) for offsets in ends)
        if not end:
            return self.context.spark.createDataFrame([], RAW_COLUMNS)
        options = {
            **self.context.spark_options,
            "assign": json.dumps({topic: [int(index) for index in offsets] for topic, offsets in end.items()}),
            "startingOffsets": json.dumps(begin),
            "endingOffsets": json.dumps(end),
            "includeHeaders": "true",
            "failOnDataLoss": str(self.options.fail_on_data_loss).lower(),
        }
        rows = self.context.spark.read.format("penstock").options(**options).load()
        if self.context.between_ms is None:
            return rows
        since_ms, until_ms = self.context.between_ms
        return rows.where(f"unix_millis(timestamp) >= {since_ms} AND unix_millis(timestamp) < {until_ms}")

    def _retried_for(self) -> Any:
        """Which source of the pipeline a record of its retry topic is for."""
        from pyspark.sql import functions as F  # noqa: N812

        named = F.filter("headers", lambda header: header["key"] == RETRY_SOURCE)
        return F.coalesce(
            F.try_element_at(named, F.lit(1))["value"].cast("string"), F.lit(self.context.unnamed_retries)
        )

    def _insist_on_topics(self, options: dict[str, str]) -> None:
        """Spark asks for topics when the query runs; a dry run should know before."""
        try:
            SourceLookup(SourceOptions.parse(options, streaming=True)).existing()
        except NothingToRead as error:
            raise SpecError(f"source {self.name}: {error}") from None

    def _start(self) -> dict[str, str]:
        """`latest` is looked up once for the whole pipeline: its queries must begin at the same place."""
        if self.context.from_beginning:
            return {"startingOffsets": "earliest"}
        if (positions := self._kept_positions()) is not None:
            return {"startingOffsets": json.dumps(positions)}
        begin = self.options.starting
        if isinstance(begin, datetime):
            begin = int((begin if begin.tzinfo else begin.replace(tzinfo=UTC)).timestamp() * 1000)
        if isinstance(begin, int):
            return {"startingTimestamp": str(begin), "startingOffsetsByTimestampStrategy": "latest"}
        if self.options.starting == "earliest" or self.options.pattern:
            return {"startingOffsets": self.options.starting}
        kept = self.context.state.read_text(f"starts/{self.name}.json")
        if kept is None:
            kept = json.dumps(self._latest())
            self.context.state.write_text(f"starts/{self.name}.json", kept)
        return {"startingOffsets": kept}

    def _kept_positions(self) -> dict[str, dict[str, int]] | None:
        """Where a pipeline goes on that has kept its offsets, but not its state; of the topics that this one reads."""
        kept = json.loads(self.context.state.read_text(POSITIONS) or "{}")
        found = {
            topic: offsets
            for topic, offsets in kept.items()
            if topic in (*self.options.topics, self.options.topic)
            or (self.options.pattern and re.fullmatch(self.options.pattern, topic))
        }
        if not found:
            return None
        retry = self.context.retry_topic
        return {**found, retry: kept[retry]} if retry in kept else found

    def _latest(self) -> dict[str, dict[str, int]]:
        client = client_for(self.context.properties)
        names = self.options.topics or (self.options.topic,)
        view = client.metadata(list(names))
        wanted = {(topic, index): LATEST for topic in names for index in view.topics[topic].partitions}
        made: dict[str, dict[str, int]] = {}
        for (topic, index), answer in client.list_offsets(wanted, read_committed=True).items():
            made.setdefault(topic, {})[str(index)] = answer.offset
        return made

    def _format_context(self) -> FormatContext:
        name = f"schemas/{self.name}.json"
        state = self.context.state
        return FormatContext(
            self.context.spark,
            subject=self.options.topic or self.name,
            recall=lambda: state.read_text(name),
            keep=lambda text: state.write_text(name, text),
            sample=self._sample,
        )

    def _sample(self) -> list[bytes]:
        folder = self.context.given.get(self.name)
        if folder is not None:
            rows = self.context.spark.read.schema(RAW_COLUMNS).parquet(folder).select("value").limit(1000).collect()
            return [bytes(row.value) for row in rows if row.value is not None]
        client = client_for(self.context.properties)
        names = list(self.options.topics) or ([self.options.topic] if self.options.topic else [])
        if not names:
            raise SpecError(f"source {self.name}: the schema of a pattern cannot be inferred; give one")
        return first_values(client, names, start=EARLIEST)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        made.setdefault(topic, {})[str(partition)] = offset
    return made


class TopicSink(Sink):
    """Writes the columns that do not begin with `_`, encoded; `key`, `headers` and the like are SQL expressions."""

    class Options(Frozen):
        topic: str | None = None  # one topic for all rows; give either `topic` or `topic_column`
        topic_column: str | None = None  # SQL: the topic of each row
        key: str | None = None  # SQL: the record's key, written as text
        format: FormatOption = JsonFormat()  # how values are written
        headers: dict[str, str] = Field(default_factory=dict)  # name → SQL, written as text
        partition: str | None = None  # SQL: the partition's number; the key decides when absent
        tombstone: str | None = None  # a condition in SQL: rows for which it holds delete their key
        compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"  # of record batches
        delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"  # at-least-once: no transactions

        @model_validator(mode="after")
        def _some_topic(self) -> TopicSink.Options:
            if (self.topic is None) == (self.topic_column is None):
                raise ValueError("give either topic or topic_column")
            if self.tombstone is not None and self.key is None:
                raise ValueError("a tombstone deletes a key: give key too")
            return self

    def check(self, columns: Any) -> None:
        if not [item for item in columns.fieldNames() if not item.startswith("_")]:
            raise SpecError(f"sink {self.name}: every column begins with _, so there is nothing to write")

    def prepare(self, rows: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        options = self.options
        names = [name for name in rows.columns if not name.startswith("_")]
        # A format of one column: with a column named value, that one is it.
        if isinstance(options.format, StringFormat | BytesFormat) and "value" in names:
            names = ["value"]
        context = FormatContext(self.context.spark, subject=options.topic or self.name)
        value = options.format.encode(rows, names, context)
        if options.tombstone is not None:
            value = F.when(~F.coalesce(F.expr(options.tombstone), F.lit(False)), value)
        made = [value.alias("value")]
        if options.key is not None:
            key = F.expr(options.key)
            made.append(key.cast("string").alias("key"))
        if options.headers:
            entries = [
                F.struct(F.lit(name).alias("key"), F.expr(text).cast("string").cast("binary").alias("value"))
                for name, text in options.headers.items()
            ]
            made.append(F.array(*entries).alias("headers"))
        if options.topic_column is not None:
            made.append(F.expr(options.topic_column).alias("topic"))
        if options.partition is not None:
            made.append(F.expr(options.partition).cast("int").alias("partition"))
        return rows.select(*made)

    def _options(self) -> dict[str, str]:
        made = {**self.context.spark_options, "deliveryGuarantee": self.options.delivery}
        if self.options.topic is not None:
            made["topic"] = self.options.topic
        if self.options.compression != "none":
            made["kafka.compression.type"] = self.options.compression
        return made

    def native(self) -> tuple[str, dict[str, str]] | None:
        return "penstock", self._options()

    def opens_transactions(self) -> bool:
        return bool(self.options.delivery == "exactly-once")

    def write(self, rows: Any, batch: Batch) -> None:
        named = {"txnAppId": batch.name_for(self.name), "txnVersion": str(batch.number)}
        if self.options.delivery != "exactly-once":
            named = {}
        rows.write.format("penstock").options(**self._options(), **named).mode("append").save()
