"""Which databases the connector `sql` writes to, how they are reached, and the column types of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from penstock.pipelines.spec import SpecError

_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
_CONNECT_SECONDS: Final = 10
_SQLITE_WAIT_SECONDS: Final = 60
_KEY_LENGTH: Final = 255  # MySQL indexes no text without a length
_ASIDE: Final = "penstock_aside"
_MYSQL: Final = ("mysql", "mariadb")
# A table of MyISAM or Aria keeps what a transaction has written when it is rolled back.
_TRANSACTIONAL: Final = ("innodb", "rocksdb", "ndbcluster")


def engine_for(url: str, password: str | None, who: str) -> sa.Engine:
    """One connection per use: its temporary tables end with it."""
    try:
        address = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise SpecError(f"sink {who}: this is no URL of a database, such as postgresql://user@host/database") from None
    kind = address.get_backend_name()
    if kind not in _DRIVERS:
        raise SpecError(
            f"sink {who}: sql knows {', '.join(_DRIVERS)}, not {kind}; jdbc writes to anything, at least once"
        )
    address = address.set(drivername=f"{kind}+{_DRIVERS[kind]}")
    if password is not None:
        address = address.set(password=password)
    settings = {"timeout": _SQLITE_WAIT_SECONDS} if kind == "sqlite" else {"connect_timeout": _CONNECT_SECONDS}
    engine = sa.create_engine(address, poolclass=sa.NullPool, connect_args=settings)
    if kind == "sqlite":
        _serialise(engine)
    elif kind in _MYSQL:
        sa.event.listen(engine, "connect", _be_strict)
    return engine


def _serialise(engine: sa.Engine) -> None:
    """Python's module begins transactions late and shared; two writers would then fail instead of waiting."""

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    def begun(connection: sa.Connection) -> None:
        is_aside = connection.get_execution_options().get(_ASIDE)
        connection.exec_driver_sql("BEGIN" if is_aside else "BEGIN IMMEDIATE")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", begun)


@contextmanager
def aside(connection: sa.Connection) -> Iterator[None]:
    """A transaction that writes to temporary tables only: it keeps nobody from SQLite's file, however long it takes."""
    connection.execution_options(**{_ASIDE: True})
    with connection.begin():
        yield
    connection.execution_options(**{_ASIDE: False})


def _be_strict(connection: Any, _: Any) -> None:
    """Whatever the server's mode: a value that does not fit is an error, and a time is UTC."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), time_zone = '+00:00'")


def column_type(field: Any, dialect: str, *, in_key: bool, who: str) -> Any:
    """The type of a new column for an Arrow field."""
    is_mysql, kind = dialect in _MYSQL, field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if is_mysql:  # its usual collations take 'a' and 'A' for one key
            return mysql.VARCHAR(_KEY_LENGTH, collation="utf8mb4_bin") if in_key else mysql.LONGTEXT(charset="utf8mb4")
        return sa.Text()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if is_mysql:
            return mysql.VARBINARY(_KEY_LENGTH) if in_key else mysql.LONGBLOB()
        return sa.LargeBinary()
    if pa.types.is_timestamp(kind):
        return mysql.DATETIME(fsp=6) if is_mysql else sa.DateTime(timezone=kind.tz is not None)
    if pa.types.is_decimal(kind):
        return sa.Text() if dialect == "sqlite" else sa.Numeric(kind.precision, kind.scale)
    simple = {
        pa.bool_(): sa.Boolean(), pa.int8(): sa.SmallInteger(), pa.int16(): sa.SmallInteger(), pa.int32(): sa.Integer(),
        pa.int64(): sa.BigInteger(), pa.float32(): sa.REAL(), pa.float64(): sa.Double(), pa.date32(): sa.Date(),
    }  # fmt: skip
    if is_mysql:
        simple[pa.float32()] = mysql.FLOAT()
    if kind not in simple:
        raise SpecError(f"sink {who}: column {field.name} is {kind}, for which there is no column type; use to_json")
    return simple[kind]


def values(piece: Any, dialect: str) -> list[dict[str, Any]]:
    """Rows as the database's driver takes them: without zones, in UTC, where it knows none; SQLite has no decimals."""
    arrays = []
    for field, array in zip(piece.schema, piece.columns, strict=True):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None and dialect != "postgresql":
            arrays.append(array.cast(pa.timestamp("us")))
        elif pa.types.is_decimal(field.type) and dialect == "sqlite":
            arrays.append(array.cast(pa.string()))
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, piece.schema.names).to_pylist()


def insist_on_unique_key(inspector: sa.Inspector, name: str, schema: str | None, key: Sequence[str], who: str) -> None:
    """Without a unique index on exactly the key a merge could not tell one row from two."""
    unique: list[Any] = [inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]]
    unique += [item["column_names"] for item in inspector.get_unique_constraints(name, schema=schema)]
    unique += [
        item["column_names"]
        for item in inspector.get_indexes(name, schema=schema)
        if item["unique"] and not _is_partial(item)
    ]
    if not any(sorted(map(str, columns)) == sorted(key) for columns in unique if columns):
        raise SpecError(
            f"sink {who}: the table {name} has no unique index on ({', '.join(key)}): make one, or let the key be"
            " what is unique there"
        )


def _is_partial(index: Any) -> bool:
    """Unique only among some rows, or only by the first letters."""
    return any(
        index.get("dialect_options", {}).get(option)
        for option in ("postgresql_where", "sqlite_where", "mysql_length", "mariadb_length")
    )


def insist_on_transactions(inspector: sa.Inspector, name: str, schema: str | None, who: str) -> None:
    if inspector.dialect.name not in _MYSQL:
        return
    options: Any = inspector.get_table_options(name, schema=schema)
    engine = str(options.get(f"{inspector.dialect.name}_engine", options.get("mysql_engine", "InnoDB")))
    if engine.lower() not in _TRANSACTIONAL:
        raise SpecError(
            f"sink {who}: the table {name} is of the engine {engine}, which knows no transactions; use InnoDB"
        )
