"""A table of a database that takes whole batches: rows are staged beside it and merged in one transaction.

Staging is a temporary table of one connection, filled in pieces. Then, in one transaction: the mark's row is locked and
read, the last row of each key is found, keys are deleted, known rows updated, new ones inserted, and the mark is
written. Whoever asks for the same batch meanwhile waits for the lock and then finds it done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.connectors.changes import DELETED, OFFSET, OWN, PARTITION, insist_on_keys
from penstock.pipelines.connectors.marks import Mark, next_mark
from penstock.pipelines.connectors.sql_types import (
    aside,
    column_type,
    engine_for,
    insist_on_transactions,
    insist_on_unique_key,
    values,
)
from penstock.pipelines.spec import SpecError

_STAGED: Final = "penstock_incoming"
_LAST: Final = "penstock_last"
_ROW: Final = "penstock_row"
_RANK: Final = "penstock_rank"
_MARKS: Final = sa.Table(
    "penstock_marks",
    sa.MetaData(),
    sa.Column(
        "name",
        sa.String(255)
        .with_variant(mysql.VARCHAR(255, collation="utf8mb4_bin"), "mysql", "mariadb"),
        primary_key=True,
    ),
    sa.Column("mark", sa.Text, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)  # fmt: skip


class SqlTable:
    def __init__(
        self, url: str, table: str, key: Sequence[str], who: str, *, create: bool = True, password: str | None = None
    ) -> None:
        schema, _, self._name = table.rpartition(".")
        self._schema = schema or None
        self._key, self._who, self._create = tuple(key), who, create
        self._engine = engine_for(url, password, who)
        self._kind = self._engine.dialect.name

    def check(self, columns: Any) -> None:
        """Whether rows with these Arrow columns fit: the table, its columns, and its unique index."""
        wanted = [item for item in columns if item.name not in OWN]
        for item in wanted:
            self._type(item)
        with self._trouble_named(), self._engine.connect() as connection:
            inspector = sa.inspect(connection)
            if not inspector.has_table(self._name, schema=self._schema):
                if not self._create:
                    raise SpecError(f"sink {self._who}: there is no table {self._name}, and create is false")
                return
            present = [item["name"] for item in inspector.get_columns(self._name, schema=self._schema)]
            absent = [item.name for item in wanted if item.name not in present]
            if absent:
                raise SpecError(f"sink {self._who}: the table {self._name} has no column {absent[0]!r}")
            insist_on_transactions(inspector, self._name, self._schema, self._who)
            if self._key:
                insist_on_unique_key(inspector, self._name, self._schema, self._key, self._who)

    def write(self, pieces: Iterable[Any], columns: Any, name: str, batch: Batch) -> bool:
        """True if the batch was written now, False if the table had it. `name` is what its mark goes by."""
        self.check(columns)
        with self._trouble_named():
            self._make_tables(columns)
            with self._engine.connect() as connection:
                if self._next(connection, name, batch) is None:
                    return False
                connection.rollback()
                names = [item.name for item in columns if item.name not in OWN]
                staged = self._stage(connection, pieces, columns, names)
                with connection.begin():
                    mark = self._next(connection, name, batch)
                    if mark is None:
                        return False
                    self._merge(connection, staged, names, batch)
                    connection.execute(sa.update(_MARKS).where(_MARKS.c.name == name).values(mark=mark.text()))
                return True

    def _trouble_named(self) -> _Trouble:
        return _Trouble(self._who)

    def _type(self, field: Any) -> Any:
        return column_type(field, self._kind, in_key=field.name in self._key, who=self._who)

    def _make_tables(self, columns: Any) -> None:
        made: list[Any] = [
            sa.Column(item.name, self._type(item), primary_key=item.name in self._key, autoincrement=False)
            for item in columns
            if item.name not in OWN
        ]
        options: dict[str, Any] = {f"{kind}_engine": "InnoDB" for kind in ("mysql", "mariadb")}
        table = sa.Table(self._name, sa.MetaData(), *made, schema=self._schema, **options)
        with self._engine.begin() as connection:
            connection.execute(sa.schema.CreateTable(_MARKS, if_not_exists=True))
            if self._create:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))

    # --- the mark ---

    def _next(self, connection: sa.Connection, name: str, batch: Batch) -> Mark | None:
        """The mark to write, with its row locked until the transaction ends (SQLite locks the whole file)."""
        asked = sa.select(_MARKS.c.mark).where(_MARKS.c.name == name).with_for_update()
        found = connection.execute(asked).scalar()
        if found is None:
            connection.rollback()
            try:
                with connection.begin():
                    connection.execute(sa.insert(_MARKS).values(name=name, mark=""))
            except sa.exc.IntegrityError:
                pass  # another driver was faster: its row serves as well
            found = connection.execute(asked).scalar_one()
        return next_mark(Mark.parse(found), batch, self._who)

    # --- staging ---

    def _table(self, name: str, names: Sequence[str], schema: str | None = None) -> Any:
        return sa.table(name, *[sa.column(item) for item in names], schema=schema)

    def _stage(self, connection: sa.Connection, pieces: Iterable[Any], columns: Any, names: list[str]) -> Any:
        """A copy of the table's columns, types and collations included, all of them nullable, and our own."""
        target = self._table(self._name, names, self._schema)
        one = sa.select(sa.literal_column("1").label("one")).subquery("one_row")
        shape = sa.select(
            *[target.c[item] for item in names],
            sa.literal_column("0").label(DELETED),
            *[sa.cast(sa.literal_column("0"), sa.BigInteger).label(item) for item in (PARTITION, OFFSET, _ROW)]
            if self._kind not in ("mysql", "mariadb")
            else [sa.literal_column("4611686018427387904").label(item) for item in (PARTITION, OFFSET, _ROW)],
        ).select_from(one.outerjoin(target, sa.literal_column("1") == sa.literal_column("0")))
        with connection.begin():
            self._create_temporary(connection, _STAGED, shape.limit(sa.literal_column("0")))
        with aside(connection):
            # Texts go without a type to PostgreSQL, which then takes them for whatever the column is.
            loose = sa.types.NullType() if self._kind == "postgresql" else None
            typed = [sa.Column(item.name, self._bound(item, loose)) for item in columns if item.name not in OWN]
            extra = [sa.Column(item, sa.BigInteger) for item in (DELETED, PARTITION, OFFSET, _ROW)]
            staged = sa.Table(_STAGED, sa.MetaData(), *typed, *extra)
            count = 0
            for piece in pieces:
                rows = self._rows(piece, count)
                count += len(rows)
                if rows:
                    connection.execute(sa.insert(staged), rows)
        return staged

    def _bound(self, field: Any, loose: Any) -> Any:
        is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        return loose if is_text and loose is not None else self._type(field)

    def _rows(self, piece: Any, count: int) -> list[dict[str, Any]]:
        insist_on_keys(piece, self._key, self._who)
        rows = values(piece, self._kind)
        for number, row in enumerate(rows, count):
            row[_ROW] = number
            row[DELETED] = int(row.get(DELETED) or 0)
            row.setdefault(PARTITION, 0)
            row.setdefault(OFFSET, 0)
        return rows

    def _create_temporary(self, connection: sa.Connection, name: str, query: Any) -> None:
        text = query.compile(dialect=self._engine.dialect, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {name} AS {text}")

    # --- merging ---

    def _merge(self, connection: sa.Connection, staged: Any, names: list[str], batch: Batch) -> None:
        target = self._table(self._name, names, self._schema)
        if batch.is_backfill:
            connection.execute(sa.delete(target))
        if not self._key:
            connection.execute(sa.insert(target).from_select(names, sa.select(*[staged.c[item] for item in names])))
            return
        order = [staged.c[item].desc() for item in (PARTITION, OFFSET, _ROW)]
        rank = sa.func.row_number().over(partition_by=[staged.c[item] for item in self._key], order_by=order)
        ranked = sa.select(*[staged.c[item] for item in (*names, DELETED)], rank.label(_RANK)).subquery("ranked")
        wanted = [ranked.c[item] for item in (*names, DELETED)]
        self._create_temporary(connection, _LAST, sa.select(*wanted).where(ranked.c[_RANK] == sa.literal_column("1")))
        last = self._table(_LAST, (*names, DELETED))
        same = sa.and_(*[target.c[item] == last.c[item] for item in self._key])
        self._delete(connection, target, last, same)
        self._update(connection, target, last, same, names)
        new = (
            sa.select(*[last.c[item] for item in names])
            .select_from(last.outerjoin(target, same))
            .where(last.c[DELETED] == 0, target.c[self._key[0]].is_(None))
        )
        connection.execute(sa.insert(target).from_select(names, new))

    def _delete(self, connection: sa.Connection, target: Any, last: Any, same: Any) -> None:
        if self._kind != "sqlite":
            connection.execute(sa.delete(target).where(same, last.c[DELETED] == 1))
            return
        keys = sa.select(*[last.c[item] for item in self._key]).where(last.c[DELETED] == 1)
        connection.execute(sa.delete(target).where(sa.tuple_(*[target.c[item] for item in self._key]).in_(keys)))

    def _update(self, connection: sa.Connection, target: Any, last: Any, same: Any, names: list[str]) -> None:
        rest = {target.c[item]: last.c[item] for item in names if item not in self._key}
        if rest:
            connection.execute(sa.update(target).where(same, last.c[DELETED] == 0).values(rest))


class _Trouble:
    """What the database says, in one line and without the rows of the statement."""

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, sa.exc.SQLAlchemyError):
            reason = str(getattr(error, "orig", None) or error).splitlines()[0][:300]
            raise SpecError(f"sink {self._who}: the database says: {reason}") from error
