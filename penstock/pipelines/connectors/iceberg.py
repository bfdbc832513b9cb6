"""Iceberg tables through the package pyiceberg: appended to, or merged by a key, with deletes and new columns.

Deletes, new rows and the mark are one commit of the table. The mark is a table property (`penstock.<pipeline>.<sink>`),
because snapshots and what is noted in them expire. A commit is never repeated as it was: after a refusal the table is
read and the merge done anew, and after an answer that says neither yes nor no the table is read to learn which.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import model_validator

from penstock.pipelines.connectors import changes
from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.connectors.marks import Mark, mark_name, next_mark
from penstock.pipelines.spec import Frozen, SpecError

_ATTEMPTS: Final = 5
# Its own retries would add a key a second time that another writer has added meanwhile.
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}


class IcebergSink(Sink):
    """Exactly once. With a key, the last row of each one is upserted or deleted. Columns that begin with `_` are not
    written, unless they are the key. Rows of a batch, and files whose rows change, pass through the driver: limit large
    batches with `max_rows_per_trigger`."""

    class Options(Frozen):
        catalog: dict[str, str]  # pyiceberg's properties of it: `type` (`sql` or `rest`), `uri`, `warehouse`, …
        catalog_name: str = "default"  # by which a SQL catalog tells its tables from those of others in one database
        table: str  # `namespace.table`
        key: tuple[str, ...] = ()  # columns by which rows are merged; without it they are appended
        deleted: str | None = None  # SQL: such rows delete their key; when absent, `_tombstone` or `_deleted` say it
        new_columns: bool = False  # add columns that the rows have and the table has not, instead of refusing them
        create: bool = True  # make the table, and its namespace, if there is none

        @model_validator(mode="after")
        def _fits_together(self) -> IcebergSink.Options:
            if self.deleted is not None and not self.key:
                raise ValueError("deleted removes rows by their key: give key too")
            if "." not in self.table:
                raise ValueError("table is namespace.table")
            return self

    def check(self, columns: Any) -> None:
        changes.check_key(columns, self.options.key, self.name)
        schema, names = changes.arrow_schema(columns), changes.data_columns(columns.fieldNames(), self.options.key)
        self._table().check([schema.field(name) for name in names])

    def prepare(self, rows: Any) -> Any:
        return changes.prepared(rows, self.options.key, self.options.deleted)

    def write(self, rows: Any, batch: Batch) -> None:
        table, name = self._table(), mark_name(self.context.pipeline, self.name)
        if not table.has(name, batch):
            table.write(changes.arrow_table(rows), name, batch)

    def _table(self) -> IcebergTable:
        return IcebergTable(self.name, self.options)


class IcebergTable:
    """One table and the batches that go into it, as Arrow data."""

    def __init__(self, who: str, options: Any) -> None:
        from pyiceberg.catalog import load_catalog

        self._who, self._options = who, options
        try:
            self.catalog = load_catalog(options.catalog_name, **options.catalog)
        except Exception as error:  # each kind of catalog has its own
            raise SpecError(f"sink {who}: the catalog cannot be reached: {_line(error)}") from error

    # --- before ---

    def check(self, columns: Sequence[Any]) -> None:
        import pyarrow as pa

        for item in columns:
            if item.name in self._options.key and pa.types.is_floating(item.type):
                raise SpecError(f"sink {self._who}: {item.name} is {item.type}, which makes no key")
        table = self._load()
        if table is None:
            if not self._options.create:
                raise SpecError(f"sink {self._who}: there is no table {self._options.table}, and create is false")
            return
        there = {item.name: _kind(item.type) for item in table.schema().as_arrow()}
        here = {item.name: _kind(item.type) for item in columns}
        for name, kind in here.items():
            if name not in there and not self._options.new_columns:
                raise SpecError(f"sink {self._who}: the table {self._options.table} has no column {name!r}")
            if there.get(name, kind) != kind:
                raise SpecError(f"sink {self._who}: column {name} is {there[name]} in the table and {kind} here")
        for name in there:
            if self._options.key and name not in here:
                raise SpecError(f"sink {self._who}: the rows lack {name}, which a merge would empty in the table")

    def has(self, name: str, batch: Batch) -> bool:
        table = self._load()
        return table is not None and self._next(table, name, batch) is None

    def _next(self, table: Any, name: str, batch: Batch) -> Mark | None:
        return next_mark(Mark.parse(table.properties.get(name)), batch, self._who)

    def _load(self) -> Any:
        """The table as it is now, in a handle that commits once and says what came of it; None if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            table = self.catalog.load_table(self._options.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise SpecError(f"sink {self._who}: the catalog says: {_line(error)}") from error
        properties = {**table.metadata.properties, **_NO_RETRIES}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

    def _made(self, columns: Any) -> Any:
        table = self._load()
        if table is None:
            self.catalog.create_namespace_if_not_exists(self._options.table.rpartition(".")[0])
            self.catalog.create_table_if_not_exists(self._options.table, schema=columns)
            table = self._load()
        return table

    # --- writing ---

    def write(self, content: Any, name: str, batch: Batch) -> bool:
        """True if the batch was written now, False if the table had it or there was nothing to write."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        if content.num_rows == 0 and not batch.is_backfill:
            return False
        lost = None
        if self._options.key:
            changes.insist_on_keys(content, self._options.key, self._who)
            content, lost = changes.split(content, self._options.key)
        reason: Exception | None = None
        for _ in range(_ATTEMPTS):
            table = self._made(content.schema)
            mark = self._next(table, name, batch)
            if mark is None:
                return reason is not None
            try:
                self._commit(table, content, lost, {name: mark.text()}, batch)
                return True
            except (CommitFailedException, ValidationException) as error:
                reason = error  # another writer was faster
            except Exception as error:
                return self._was_committed(name, batch, error)
        raise SpecError(f"sink {self._who}: others keep writing to {self._options.table}: {_line(reason)}") from reason

    def _was_committed(self, name: str, batch: Batch, error: Exception) -> bool:
        table = self._load()
        if table is not None and self._next(table, name, batch) is None:
            return True
        raise SpecError(
            f"sink {self._who}: batch {batch.number} did not reach {self._options.table}: {_line(error)}"
        ) from error

    def _commit(self, table: Any, content: Any, lost: Any, mark: Mapping[str, str], batch: Batch) -> None:
        from pyiceberg.expressions import AlwaysTrue

        with warnings.catch_warnings(), table.transaction() as transaction:
            warnings.simplefilter("ignore")  # that a delete meets no rows is nothing to warn of
            if self._options.new_columns:
                with transaction.update_schema() as update:
                    update.union_by_name(content.schema)
            if table.current_snapshot() is not None:
                if batch.is_backfill:
                    transaction.delete(AlwaysTrue())
                elif lost is not None:
                    transaction.delete(_any_of(content, lost, self._options.key))
            if content.num_rows:
                transaction.append(content)
            transaction.set_properties(dict(mark))


def _any_of(content: Any, lost: Any, key: Sequence[str]) -> Any:
    """The rows of these keys: for each beginning of a key, the ends that are meant."""
    from pyiceberg.expressions import And, EqualTo, In, Or

    ends: dict[tuple[Any, ...], list[Any]] = {}
    for table in (content, lost):
        for row in zip(*[table.column(name).to_pylist() for name in key], strict=True):
            ends.setdefault(row[:-1], []).append(row[-1])
    parts = []
    for beginning, values in ends.items():
        last = In(key[-1], values)
        rest = [EqualTo(name, value) for name, value in zip(key[:-1], beginning, strict=True)]
        parts.append(And(last, *rest) if rest else last)
    return Or(*parts) if len(parts) > 1 else parts[0]


def _kind(found: Any) -> str:
    """Types that Iceberg does not tell apart have one name."""
    alike = {"large_string": "string", "large_binary": "binary", "int8": "int32", "int16": "int32", "float": "float32"}
    return alike.get(str(found), str(found))


def _line(error: Exception | None) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
