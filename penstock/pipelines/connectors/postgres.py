"""PostgreSQL out: idempotent upserts, exactly once.

Rows of a batch are copied into a temporary table, upserted from there, and the batch's number is stored in
`penstock_batches`, all in one transaction. A batch that comes again finds its number and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.spec import Frozen, SpecError

_BATCHES: Final = "penstock_batches"
_TYPES: Final = {
    "string": "text",
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
}


class PostgresSink(Sink):
    class Options(Frozen):
        dsn: str  # `postgresql://user@host/database` or `key=value` pairs, as libpq takes them
        table: str  # its name, with `schema.` before it if need be
        key: tuple[str, ...] = ()  # columns of a unique key, by which rows are upserted; without it they are appended
        create: bool = True  # make the table if there is none
        password: str | None = None  # a reference, such as `${env:NAME}`

    def check(self, columns: Any) -> None:
        missing = [name for name in self.options.key if name not in columns.fieldNames()]
        if missing:
            raise SpecError(f"sink {self.name}: the key column {missing[0]!r} is not among {', '.join(columns.names)}")
        with self._connect() as connection:
            present = self._present(connection)
            if not present:
                return
        wanted = {item.name: postgres_type(item, self.name) for item in columns.fields}
        absent = [name for name in wanted if name not in present]
        if absent:
            raise SpecError(f"sink {self.name}: the table {self.options.table} has no column {absent[0]!r}")

    def _connect(self) -> Any:
        return connect(self.options, f"sink {self.name}")

    def _present(self, connection: Any) -> dict[str, str]:
        """Columns of the table; empty if there is no table."""
        found = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.options.table],
        )
        return dict(found.fetchall())

    def write(self, rows: Any, batch: Batch) -> None:
        from psycopg import errors

        application = f"{batch.query}-{self.name}"
        with self._connect() as connection:
            try:
                self._prepare(connection, rows.schema)
                # Two drivers of one batch: the second waits here, and then finds the batch done.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [application])
                done = connection.execute(f"SELECT batch FROM {_BATCHES} WHERE query = %s", [application]).fetchone()
                if batch.is_done(None if done is None else done[0], self.name):
                    return
                self._upsert(connection, rows, batch)
                connection.execute(
                    f"INSERT INTO {_BATCHES} VALUES (%s, %s) ON CONFLICT (query) DO UPDATE SET batch = excluded.batch",
                    [application, batch.number],
                )
            except errors.Error as error:
                connection.rollback()
                raise SpecError(f"sink {self.name}: {str(error).splitlines()[0]}") from error

    def _prepare(self, connection: Any, columns: Any) -> None:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_BATCHES} (query text PRIMARY KEY, batch bigint NOT NULL)")
        if self.options.create and not self._present(connection):
            fields = [f"{quoted(item.name)} {postgres_type(item, self.name)}" for item in columns.fields]
            if self.options.key:
                fields.append(f"PRIMARY KEY ({', '.join(map(quoted, self.options.key))})")
            connection.execute(f"CREATE TABLE {table_name(self.options.table)} ({', '.join(fields)})")
        connection.commit()

    def _upsert(self, connection: Any, rows: Any, batch: Batch) -> None:
        names = rows.columns
        table = table_name(self.options.table)
        columns = ", ".join(map(quoted, names))
        if batch.is_backfill:
            connection.execute(f"DELETE FROM {table}")
        connection.execute(
            f"CREATE TEMP TABLE penstock_incoming ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA"
        )
        connection.execute("ALTER TABLE penstock_incoming ADD COLUMN penstock_row bigserial")
        with connection.cursor().copy(f"COPY penstock_incoming ({columns}) FROM STDIN") as copy:
            for row in local_rows(rows):
                copy.write_row(row)
        if not self.options.key:
            connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM penstock_incoming")
            return
        key = ", ".join(map(quoted, self.options.key))
        # Of several rows with one key the last one counts; PostgreSQL refuses to update a row twice in a statement.
        last = f"SELECT DISTINCT ON ({key}) {columns} FROM penstock_incoming ORDER BY {key}, penstock_row DESC"
        changed = [f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in self.options.key]
        action = f"DO UPDATE SET {', '.join(changed)}" if changed else "DO NOTHING"
        connection.execute(f"INSERT INTO {table} ({columns}) {last} ON CONFLICT ({key}) {action}")


def local_rows(rows: Any) -> Iterator[tuple[Any, ...]]:
    """The rows on the driver, partition by partition; timestamps keep their zone."""
    import datetime

    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield tuple(
            value.astimezone(datetime.UTC)
            if isinstance(value, datetime.datetime) and field.dataType.simpleString() == "timestamp"
            else value
            for value, field in zip(row, rows.schema.fields, strict=True)
        )


def connect(options: Any, who: str) -> Any:
    import psycopg

    try:
        return psycopg.connect(options.dsn, password=options.password, connect_timeout=10)
    except psycopg.Error as error:
        raise SpecError(f"{who}: PostgreSQL cannot be reached: {str(error).splitlines()[0]}") from None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table_name(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))


def postgres_type(field: Any, who: str) -> str:
    kind = field.dataType.simpleString()
    if kind.startswith("decimal"):
        return kind.replace("decimal", "numeric")
    if kind not in _TYPES:
        raise SpecError(f"sink {who}: column {field.name} is {kind}, for which there is no column type; use to_json")
    return _TYPES[kind]
