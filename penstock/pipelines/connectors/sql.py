"""PostgreSQL, MariaDB, MySQL and SQLite through SQLAlchemy: upserts and deletes, exactly once.

The last row of a key decides, by partition and offset of its record if the rows have `_partition` and `_offset`.
Deletes, upserts and the mark of the batch (in the table `penstock_marks`) are one transaction of the database.
"""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from penstock.pipelines.connectors import changes
from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.connectors.marks import mark_name
from penstock.pipelines.spec import Frozen


class SqlSink(Sink):
    """Exactly once, with deletes. Columns that begin with `_` are not written, unless they are the key. Rows reach the
    database through the driver, one Spark partition at a time."""

    class Options(Frozen):
        url: str  # `postgresql://user@host/database`, `mariadb://…`, `mysql://…` or `sqlite:////absolute/path.db`
        table: str  # its name, with `schema.` before it if need be
        key: tuple[str, ...] = ()  # columns of a unique index, by which rows are upserted; without it they are appended
        deleted: str | None = None  # SQL: such rows delete their key; when absent, `_tombstone` or `_deleted` say it
        create: bool = True  # make the table if there is none, with the key as its primary key
        password: str | None = None  # a reference, such as `${env:NAME}`

        @model_validator(mode="after")
        def _key_to_delete_by(self) -> SqlSink.Options:
            if self.deleted is not None and not self.key:
                raise ValueError("deleted removes rows by their key: give key too")
            return self

    def check(self, columns: Any) -> None:
        changes.check_key(columns, self.options.key, self.name)
        names = changes.data_columns(columns.fieldNames(), self.options.key)
        schema = changes.arrow_schema(columns)
        self._table().check([schema.field(name) for name in names])

    def prepare(self, rows: Any) -> Any:
        return changes.prepared(rows, self.options.key, self.options.deleted)

    def write(self, rows: Any, batch: Batch) -> None:
        name = mark_name(self.context.pipeline, self.name)
        self._table().write(changes.arrow_batches(rows), changes.arrow_schema(rows.schema), name, batch)

    def _table(self) -> Any:
        from penstock.pipelines.connectors.sql_table import SqlTable

        options = self.options
        return SqlTable(
            options.url, options.table, options.key, self.name, create=options.create, password=options.password
        )
