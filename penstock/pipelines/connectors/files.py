"""Files in a folder: new ones are read as they appear; written ones appear whole, once per batch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.connectors.table_files import TableFiles
from penstock.pipelines.formats.base import parse_ddl
from penstock.pipelines.spec import Frozen, SpecError
from penstock.pipelines.storage import storage

Kind = Literal["csv", "json", "parquet", "text"]


class FilesSource(Source):
    """Watches a folder; every file that is there or comes later is read once. Add files by renaming them into it."""

    class Options(Frozen):
        path: str  # the folder
        format: Kind  # of the files
        schema_: str | None = Field(default=None, alias="schema")  # `id STRING, amount DOUBLE`; csv and json need it
        spark_options: dict[str, str] = Field(default_factory=dict)  # Spark's own options of the format: header, sep, …
        max_files_per_trigger: int | None = Field(default=None, gt=0)  # at most so many files per batch
        glob: str | None = None  # only files whose names match, such as `*.csv`
        on_bad_record: Literal["drop", "fail"] = "fail"  # what to do with a record of csv or json that does not parse

        @model_validator(mode="after")
        def _schema_where_needed(self) -> FilesSource.Options:
            if self.schema_ is None and self.format in ("csv", "json"):
                raise ValueError(f"{self.format} files need a schema, for example: id STRING, amount DOUBLE")
            return self

    def identity(self) -> str:
        return f"files {self.options.path}"

    def load(self) -> Loaded:
        options = self.options
        spark = self.context.spark
        folder = self.context.given.get(self.name) or options.path
        reader = spark.readStream.format(options.format if self.name not in self.context.given else "json")
        columns = self._columns(folder)
        if columns is not None:
            reader = reader.schema(columns)
        if options.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", options.max_files_per_trigger)
        if options.glob is not None:
            reader = reader.option("pathGlobFilter", options.glob)
        if options.format in ("csv", "json"):
            reader = reader.option("mode", "DROPMALFORMED" if options.on_bad_record == "drop" else "FAILFAST")
        return Loaded(reader.options(**options.spark_options).load(folder))

    def _columns(self, folder: str) -> Any:
        from pyspark.errors import AnalysisException

        if self.options.schema_ is not None:
            return parse_ddl(self.options.schema_, self.context.spark)
        if self.options.format == "text":
            return None
        try:
            return self.context.spark.read.format(self.options.format).load(folder).schema
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise SpecError(f"source {self.name}: the schema cannot be read from {folder}: {reason}") from None


class FilesSink(Sink):
    """One or more files per batch under `path`. A batch that comes again after a crash replaces its own files."""

    class Options(Frozen):
        path: str  # the folder
        format: Kind  # of the files
        spark_options: dict[str, str] = Field(default_factory=dict)  # Spark's own options of the format: header, sep, …
        files_per_batch: int = Field(default=1, gt=0)  # at most so many

    def check(self, columns: Any) -> None:
        if self.options.format == "text" and [item.dataType.simpleString() for item in columns] != ["string"]:
            raise SpecError(f"sink {self.name}: text files take exactly one column of type string")

    def write(self, rows: Any, batch: Batch) -> None:
        table = TableFiles(
            storage(self.options.path, self.context.spark), self.options.format, self.options.spark_options
        )
        table.write(rows.coalesce(self.options.files_per_batch), batch)
