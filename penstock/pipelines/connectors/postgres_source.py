"""PostgreSQL in: a snapshot of the table, then the rows that a growing column (a serial id, an update time) brings.

The stream remembers the highest value of the column that it has read. A row that commits late with a lower value than
one already read is missed: with a column filled by concurrent transactions give `settle`, so that only values older
than that are read (for columns of time).
"""

# Method names are Spark's.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.pipelines.connectors.base import Loaded, Source
from penstock.pipelines.connectors.postgres import connect, quoted, table_name
from penstock.pipelines.durations import Duration, duration_ms
from penstock.pipelines.spec import Frozen, SpecError

_FETCH_ROWS: Final = 10_000
_TO_SPARK: Final = {
    "text": "string",
    "character varying": "string",
    "character": "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "timestamp with time zone": "timestamp",
    "timestamp without time zone": "timestamp_ntz",
    "bytea": "binary",
}


class PostgresSource(Source):
    class Options(Frozen):
        dsn: str  # `postgresql://user@host/database` or `key=value` pairs, as libpq takes them
        table: str  # its name, with `schema.` before it if need be
        column: str  # the one that grows with every change
        password: str | None = None  # a reference, such as `${env:NAME}`
        settle: Duration | None = None  # for a column of time: read only values older than this

    def identity(self) -> str:
        return f"postgres {self.options.table} by {self.options.column}"

    def load(self) -> Loaded:
        spark = self.context.spark
        if self.name in self.context.given:
            columns = _columns(self.options, self.name)
            return Loaded(spark.readStream.schema(columns).json(self.context.given[self.name]))
        columns = _columns(self.options, self.name)
        spark.dataSource.register(PostgresStream)
        options = {
            "dsn": self.options.dsn,
            "table": self.options.table,
            "column": self.options.column,
            "settlems": str(duration_ms(self.options.settle) if self.options.settle else 0),
        }
        if self.options.password is not None:
            options["password"] = self.options.password
        return Loaded(spark.readStream.format("penstock_postgres").options(**options).schema(columns).load())


def _columns(options: Any, name: str) -> Any:
    from pyspark.sql.types import StructType

    with connect(options, f"source {name}") as connection:
        found = connection.execute(
            "SELECT attname, format_type(atttypid, NULL), format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [options.table],
        ).fetchall()
    if not found:
        raise SpecError(f"source {name}: there is no table {options.table!r}")
    if options.column not in [column for column, _, _ in found]:
        raise SpecError(
            f"source {name}: the table {options.table} has no column {options.column!r};"
            f" it has {', '.join(column for column, _, _ in found)}"
        )
    parts = []
    for column, base, exact in found:
        kind = exact.replace("numeric", "decimal") if base == "numeric" and "(" in exact else _TO_SPARK.get(base)
        if base == "numeric" and "(" not in exact:
            kind = "decimal(38,10)"
        if kind is None:
            raise SpecError(f"source {name}: column {column} is {base}, which has no type in Spark; use a view")
        parts.append(f"`{column}` {kind}")
    return StructType.fromDDL(", ".join(parts))


class PostgresStream(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_postgres"

    def streamReader(self, schema: Any) -> Any:
        return PostgresStreamReader(dict(self.options), [(f.name, f.dataType.simpleString()) for f in schema.fields])


class _Range(InputPartition):
    def __init__(self, start: str | None, end: str) -> None:
        super().__init__((start, end))
        self.start, self.end = start, end


class _Dsn:
    """The options that `connect` reads."""

    def __init__(self, options: dict[str, str]) -> None:
        self.dsn, self.password = options["dsn"], options.get("password")


class PostgresStreamReader(DataSourceStreamReader):
    """Offsets are values of the column as text: PostgreSQL compares them, we only carry them."""

    def __init__(self, options: dict[str, str], columns: list[tuple[str, str]]) -> None:
        self._options = options
        self._columns = columns

    def _connect(self) -> Any:
        return connect(_Dsn(self._options), f"table {self._options['table']}")

    def initialOffset(self) -> dict[str, Any]:
        return {"after": None}

    def latestOffset(self, *arguments: Any) -> dict[str, Any]:
        column, settle_ms = quoted(self._options["column"]), int(self._options["settlems"])
        limit = f" WHERE {column} <= now() - interval '{settle_ms} milliseconds'" if settle_ms else ""
        with self._connect() as connection:
            newest = connection.execute(
                f"SELECT max({column})::text FROM {table_name(self._options['table'])}{limit}"
            ).fetchone()[0]
        if newest is None:
            return arguments[0] if arguments else {"after": None}
        return {"after": newest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if end["after"] is None or start["after"] == end["after"]:
            return []
        return [_Range(start["after"], end["after"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, _Range):
            return
        column = quoted(self._options["column"])
        names = ", ".join(f"{quoted(name)}::text" if kind == "string" else quoted(name) for name, kind in self._columns)
        table = table_name(self._options["table"])
        where, bounds = f"{column} <= %(end)s", {"end": partition.end}
        if partition.start is not None:
            where, bounds = f"{where} AND {column} > %(start)s", {**bounds, "start": partition.start}
        with self._connect() as connection, connection.cursor(name="penstock") as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(f"SELECT {names} FROM {table} WHERE {where} ORDER BY {column}", bounds)
            yield from cursor

    def commit(self, end: dict[str, Any]) -> None:
        return
