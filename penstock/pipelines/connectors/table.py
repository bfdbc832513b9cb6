"""Parquet tables: exactly once, small files compacted, readable by everything that reads a folder of Parquet."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.connectors.table_files import TableFiles
from penstock.pipelines.spec import Frozen, SpecError
from penstock.pipelines.storage import storage


class TableSource(Source):
    """The whole table, read anew for each batch: something to join with."""

    class Options(Frozen):
        path: str  # the table's folder

    def identity(self) -> str:
        return f"parquet {self.options.path}"

    def load(self) -> Loaded:
        from pyspark.errors import AnalysisException

        try:
            return Loaded(self.context.spark.read.parquet(self.options.path))
        except AnalysisException as error:
            raise SpecError(f"source {self.name}: {str(error).splitlines()[0]}") from None


class TableSink(Sink):
    class Options(Frozen):
        path: str  # the table's folder
        files_per_batch: int = Field(default=1, gt=0)  # at most so many
        compact_after_files: int = Field(default=32, ge=2)  # every so many batches, as many small files become one
        small_file_bytes: int = Field(default=32 * 1024 * 1024, gt=0)  # a smaller file is small

    def check(self, columns: Any) -> None:
        """A table keeps its schema: rows of another one are refused before anything runs."""
        from pyspark.errors import AnalysisException

        spark = self.context.spark
        folder = storage(self.options.path, spark)
        files = TableFiles(folder, "parquet").files()
        if not files:
            return
        try:
            present = spark.read.parquet(folder.at(files[0])).schema
        except AnalysisException as error:
            raise SpecError(f"sink {self.name}: {self.options.path} holds no Parquet: {str(error)[:200]}") from None
        difference = schema_difference(present, columns)
        if difference:
            raise SpecError(f"sink {self.name}: the table at {self.options.path} has another schema: {difference}")

    def write(self, rows: Any, batch: Batch) -> None:
        table = TableFiles(storage(self.options.path, self.context.spark), "parquet")
        table.write(rows.coalesce(self.options.files_per_batch), batch)
        if batch.number % self.options.compact_after_files == self.options.compact_after_files - 1:
            table.compact(rows.sparkSession, self.options.small_file_bytes, self.options.compact_after_files)


def schema_difference(present: Any, wanted: Any) -> str:
    """In words: what a table has and what the rows have; empty when they agree."""
    old = {item.name: item.dataType.simpleString() for item in present.fields}
    new = {item.name: item.dataType.simpleString() for item in wanted.fields}
    parts = [
        f"{name} is {old[name]} there and {new[name]} here" for name in old if name in new and old[name] != new[name]
    ]
    parts += [f"{name} is missing here" for name in old if name not in new]
    parts += [f"{name} is not there" for name in new if name not in old]
    return "; ".join(parts)
