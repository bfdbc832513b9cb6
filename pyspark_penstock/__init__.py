"""What makes `format("penstock")` work without registration: Spark imports every installed `pyspark_…` module and takes
its `DefaultSource`. Importing this must stay cheap; readers and writers are loaded when they are asked for.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics of Penstock, or of any other Kafka cluster, as Spark tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> Any:
        from penstock.pipelines.spark.source import schema_of

        return schema_of(self.options)

    def reader(self, schema: Any) -> Any:
        from penstock.pipelines.spark.options import SourceOptions
        from penstock.pipelines.spark.source import TopicReader, check_schema

        check_schema(schema, self.options)
        return TopicReader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        from penstock.pipelines.spark.options import SourceOptions
        from penstock.pipelines.spark.source import TopicStreamReader, check_schema

        check_schema(schema, self.options)
        return TopicStreamReader(SourceOptions.parse(self.options, streaming=True))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from penstock.pipelines.spark.sink import BatchSink

        return BatchSink.make(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        from penstock.pipelines.spark.sink import StreamSink

        return StreamSink.make(self.options, schema, overwrite)
