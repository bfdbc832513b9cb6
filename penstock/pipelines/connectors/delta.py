"""Delta tables through the package deltalake. The batch number is an application transaction of the table's own log, so
a batch that comes again is seen to be there and is not written twice.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.connectors.table import schema_difference
from penstock.pipelines.spec import Frozen, SpecError


class DeltaSource(Source):
    """The table as it is when the pipeline starts: something to join with."""

    class Options(Frozen):
        path: str  # the table's folder or address
        storage: dict[str, str] = Field(default_factory=dict)  # deltalake's storage options

    def identity(self) -> str:
        return f"delta {self.options.path}"

    def load(self) -> Loaded:
        table = _open(self.options)
        if table is None:
            raise SpecError(f"source {self.name}: there is no Delta table at {self.options.path}")
        return Loaded(self.context.spark.createDataFrame(table.to_pyarrow_table()))


class DeltaSink(Sink):
    """Exactly once. Rows of a batch pass through the driver: limit large ones with `max_rows_per_trigger`."""

    class Options(Frozen):
        path: str  # the table's folder or address; made if there is none
        storage: dict[str, str] = Field(default_factory=dict)  # deltalake's storage options
        partition_by: tuple[str, ...] = ()  # columns that partition the table
        compact_after_batches: int = Field(default=32, ge=2)  # every so many batches small files become large ones

    def check(self, columns: Any) -> None:
        table = _open(self.options)
        if table is None:
            return
        present = self.context.spark.createDataFrame(_arrow_schema(table).empty_table()).schema
        difference = schema_difference(present, columns)
        if difference:
            raise SpecError(f"sink {self.name}: the table at {self.options.path} has another schema: {difference}")

    def write(self, rows: Any, batch: Batch) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        application = f"{batch.query}-{self.name}"
        table = _open(self.options)
        if table is not None and batch.is_done(table.transaction_version(application), self.name):
            return
        content = rows.toArrow()
        if content.num_rows == 0 and not batch.is_backfill:
            return  # nothing to remember either: it would be as empty the next time, or written then
        write_deltalake(
            self.options.path if table is None else table,
            content,
            mode="overwrite" if batch.is_backfill else "append",
            partition_by=list(self.options.partition_by) or None,
            storage_options=self.options.storage or None if table is None else None,
            commit_properties=CommitProperties(app_transactions=[Transaction(application, batch.number)]),
        )
        if batch.number % self.options.compact_after_batches == self.options.compact_after_batches - 1:
            fresh = _open(self.options)
            if fresh is not None:
                fresh.optimize.compact()


def _open(options: Any) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(options.path, storage_options=options.storage or None)
    except TableNotFoundError:
        return None


def _arrow_schema(table: Any) -> Any:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())
