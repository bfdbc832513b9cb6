"""Delta tables through the package deltalake: appended to, or merged by a key, with deletes and new columns.

The batch number is an application transaction of the table's own log, under a name that holds the checkpoint's id. So
is whose turn it is: a checkpoint that follows another one after a reset counts the pipeline's turns up, and whoever had
an earlier turn may write no more. The log does not refuse numbers that it has, so they are read before anything is
written, and each commit stands on the version that was read: a merge, or an append of the same sink, that comes too
late is refused and done anew on what is there then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field, model_validator

from penstock.pipelines.connectors import changes
from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.connectors.marks import mark_name
from penstock.pipelines.connectors.table import schema_difference
from penstock.pipelines.spec import Frozen, SpecError

_ATTEMPTS: Final = 5


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
    """Exactly once. With a key, the last row of each one is upserted or deleted. Rows of a batch pass through the
    driver: limit large ones with `max_rows_per_trigger`."""

    class Options(Frozen):
        path: str  # the table's folder or address; made if there is none
        storage: dict[str, str] = Field(default_factory=dict)  # deltalake's storage options
        key: tuple[str, ...] = ()  # columns by which rows are merged; without it they are appended
        deleted: str | None = None  # SQL: such rows delete their key; when absent, `_tombstone` or `_deleted` say it
        new_columns: bool = False  # add columns that the rows have and the table has not, instead of refusing them
        partition_by: tuple[str, ...] = ()  # columns that partition the table
        compact_after_batches: int = Field(default=32, ge=2)  # every so many batches small files become large ones

        @model_validator(mode="after")
        def _key_to_delete_by(self) -> DeltaSink.Options:
            if self.deleted is not None and not self.key:
                raise ValueError("deleted removes rows by their key: give key too")
            return self

    def check(self, columns: Any) -> None:
        from pyspark.sql.types import StructType

        if self.options.key:
            changes.check_key(columns, self.options.key, self.name)
            names = changes.data_columns(columns.fieldNames(), self.options.key)
            columns = StructType([columns[name] for name in names])
        table = _open(self.options)
        if table is None:
            return
        present = self.context.spark.createDataFrame(_arrow_schema(table).empty_table()).schema
        if self.options.new_columns:
            columns = StructType([item for item in columns.fields if item.name in present.names])
            present = StructType([item for item in present.fields if item.name in columns.names])
        difference = schema_difference(present, columns)
        if difference:
            raise SpecError(f"sink {self.name}: the table at {self.options.path} has another schema: {difference}")

    def prepare(self, rows: Any) -> Any:
        return changes.prepared(rows, self.options.key, self.options.deleted) if self.options.key else rows

    def write(self, rows: Any, batch: Batch) -> None:
        table = DeltaTableSink(self.name, self.options, self.context.pipeline)
        if not table.has(batch):
            table.write(changes.arrow_table(rows), batch)


class DeltaTableSink:
    """One table and the batches that go into it, as Arrow data."""

    def __init__(self, name: str, options: Any, pipeline: str) -> None:
        self._name, self._options, self._pipeline = name, options, pipeline

    def has(self, batch: Batch) -> bool:
        table = _open(self._options)
        return table is not None and self._next(table, batch) is None

    def _next(self, table: Any, batch: Batch) -> int | None:
        """The turn to write the batch with; None if the table has it."""
        done = table.transaction_version(self._application(batch))
        newest, own = (table.transaction_version(name) for name in (self._turns, self._turn_of(batch)))
        if newest is None:
            turn = 1  # also of a table that was written before turns were noted
        elif own == newest:
            turn = own
        elif own is None and done is None and batch.is_anew:
            turn = newest + 1
        else:
            raise SpecError(
                f"sink {self._name}: the table was written by another checkpoint of this pipeline; this one"
                f" ({batch.query}) would write it again. Run the pipeline where its checkpoint is, give this one"
                " another name, or use --reset (the sink gets everything again) or --backfill"
            )
        return None if batch.is_done(done, self._name) else turn

    def _application(self, batch: Batch) -> str:
        return f"{batch.query}-{self._name}"

    @property
    def _turns(self) -> str:
        return mark_name(self._pipeline, self._name)

    def _turn_of(self, batch: Batch) -> str:
        return f"{self._application(batch)}-turn"

    def write(self, content: Any, batch: Batch) -> bool:
        """True if the batch was written now, False if the table had it or there was nothing to write."""
        from deltalake.exceptions import CommitFailedError

        if content.num_rows == 0 and not batch.is_backfill:
            return False  # nothing to remember either: it would be as empty the next time, or written then
        for attempt in range(_ATTEMPTS):
            table = self._made(content)
            turn = self._next(table, batch)
            if turn is None:
                return False
            try:
                self._commit(table, content, batch, turn)
                break
            except CommitFailedError as error:
                # Somebody else was faster, or the answer was lost: the table is read again, and says which.
                if attempt == _ATTEMPTS - 1:
                    raise SpecError(
                        f"sink {self._name}: others keep writing to {self._options.path}: {error}"
                    ) from error
        if batch.number % self._options.compact_after_batches == self._options.compact_after_batches - 1:
            fresh = _open(self._options)
            if fresh is not None:
                fresh.optimize.compact()
        return True

    def _made(self, content: Any) -> Any:
        """Made empty, if need be: rows go into a table that was read, so that of two drivers one comes too late."""
        from deltalake import DeltaTable

        table = _open(self._options)
        if table is None:
            DeltaTable.create(
                self._options.path,
                content.drop_columns([name for name in changes.OWN if self._options.key]).schema,
                mode="ignore",
                partition_by=list(self._options.partition_by) or None,
                storage_options=self._options.storage or None,
            )
            table = _open(self._options)
        return table

    def _commit(self, table: Any, content: Any, batch: Batch, turn: int) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        noted = {self._application(batch): batch.number, self._turns: turn, self._turn_of(batch): turn}
        mark = CommitProperties(app_transactions=[Transaction(name, number) for name, number in noted.items()])
        lost = None
        if self._options.key:
            changes.insist_on_keys(content, self._options.key, self._name)
            content, lost = changes.split(content, self._options.key)
        if self._options.key and not batch.is_backfill:
            # Without retries: a merge that was planned on an older version would add a key a second time.
            mark.max_commit_retries = 0
            self._merge(table, content, lost, mark)
            return
        write_deltalake(
            table,
            content,
            mode="overwrite" if batch.is_backfill else "append",
            schema_mode="merge" if self._options.new_columns else None,
            partition_by=list(self._options.partition_by) or None,
            commit_properties=mark,
        )

    def _merge(self, table: Any, content: Any, lost: Any, mark: Any) -> None:
        import pyarrow as pa

        names = content.schema.names
        gone = pa.table({name: pa.array([], content.schema.field(name).type) for name in names}).schema.empty_table()
        if lost.num_rows:
            empty = {name: pa.nulls(lost.num_rows, content.schema.field(name).type) for name in names}
            gone = pa.table({**empty, **{name: lost.column(name) for name in self._options.key}}, schema=content.schema)
        flags = [pa.array([False] * content.num_rows, pa.bool_()), pa.array([True] * gone.num_rows, pa.bool_())]
        source = pa.concat_tables(
            [item.append_column(changes.DELETED, flag) for item, flag in zip((content, gone), flags, strict=True)]
        )
        values = {_quoted(name): f"source.{_quoted(name)}" for name in names}
        (
            table.merge(
                source, _same(self._options.key), source_alias="source", target_alias="target",
                merge_schema=self._options.new_columns, commit_properties=mark,
            )
            .when_matched_delete(f"source.{changes.DELETED}")
            .when_matched_update(values, f"NOT source.{changes.DELETED}")
            .when_not_matched_insert(values, f"NOT source.{changes.DELETED}")
            .execute()
        )  # fmt: skip


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
