"""Batches into real databases, without Spark: what is merged, what is remembered, and what is refused."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.connectors.changes import DELETED, OFFSET, PARTITION
from penstock.pipelines.connectors.sql_table import SqlTable
from penstock.pipelines.connectors.sql_types import engine_for
from penstock.pipelines.spec import SpecError
from penstock.testing.databases import NotInstalled, mariadb_server, postgres_server

NAME = "penstock.orders.table"
COLUMNS = pa.schema(
    [("id", pa.string()), ("n", pa.int64()), (DELETED, pa.bool_()), (PARTITION, pa.int64()), (OFFSET, pa.int64())]
)


@pytest.fixture(scope="module", params=["postgresql", "mariadb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/tests.db"
        return
    try:
        with postgres_server() if request.param == "postgresql" else mariadb_server() as address:
            yield address
    except NotInstalled as missing:
        pytest.skip(f"not installed: {missing}")


@pytest.fixture
def ask(url: str) -> Callable[..., Any]:
    def run(text: str) -> Any:
        with engine_for(url, None, "test").begin() as connection:
            found = connection.exec_driver_sql(text)
            return [tuple(row) for row in found] if found.returns_rows else None

    return run


@pytest.fixture
def table(url: str, ask: Callable[..., Any]) -> SqlTable:
    for name in ("orders", "penstock_marks"):
        ask(f"DROP TABLE IF EXISTS {name}")
    return SqlTable(url, "orders", ["id"], "table")


def pieces(*rows: tuple[str | None, int | None, bool, int, int]) -> list[Any]:
    """One piece per row: what is staged comes in several."""
    return [pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True))], schema=COLUMNS) for row in rows]


def put(n: int, key: str = "a", partition: int = 0, offset: int = 0) -> tuple[str, int, bool, int, int]:
    return key, n, False, partition, offset


def gone(key: str = "a", partition: int = 0, offset: int = 0) -> tuple[str, None, bool, int, int]:
    return key, None, True, partition, offset


def test_the_last_row_of_a_key_decides_and_deletes_count(table: SqlTable, ask: Callable[..., Any]) -> None:
    first = pieces(put(5, offset=5), put(3, offset=3), put(1, "b"), put(9, "c", 1, 0), gone("c", 0, 7), put(4, "d"))
    assert table.write(first, COLUMNS, NAME, Batch("q", 0))
    assert ask("SELECT id, n FROM orders ORDER BY id") == [("a", 5), ("b", 1), ("c", 9), ("d", 4)]
    second = pieces(put(6, offset=6), gone("a", offset=8), gone("b"), put(2, "b", offset=1), gone("x"), put(7, "e"))
    assert table.write(second, COLUMNS, NAME, Batch("q", 1))
    assert ask("SELECT id, n FROM orders ORDER BY id") == [("b", 2), ("c", 9), ("d", 4), ("e", 7)]


def test_a_batch_that_comes_again_does_nothing_and_an_older_checkpoint_is_seen(
    table: SqlTable, ask: Callable[..., Any]
) -> None:
    table.write(pieces(put(1)), COLUMNS, NAME, Batch("q", 4))
    ask("DELETE FROM orders")
    assert not table.write(pieces(put(1)), COLUMNS, NAME, Batch("q", 4))
    assert ask("SELECT count(*) FROM orders") == [(0,)]
    with pytest.raises(SpecError, match="it is an older copy"):
        table.write(pieces(put(1)), COLUMNS, NAME, Batch("q", 3))


def test_killed_before_the_commit_nothing_is_there_and_the_batch_is_written_later(
    table: SqlTable, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(pieces(put(1)), COLUMNS, NAME, Batch("q", 0))

    class Killed(BaseException):
        pass

    def dies(*arguments: Any) -> None:
        merge(table, *arguments)
        raise Killed

    merge = SqlTable._merge
    with monkeypatch.context() as patched:
        patched.setattr(table, "_merge", dies)
        with pytest.raises(Killed):
            table.write(pieces(put(2), put(3, "b")), COLUMNS, NAME, Batch("q", 1))
    assert ask("SELECT id, n FROM orders") == [("a", 1)]
    assert table.write(pieces(put(2), put(3, "b")), COLUMNS, NAME, Batch("q", 1))
    assert ask("SELECT id, n FROM orders ORDER BY id") == [("a", 2), ("b", 3)]


def test_another_checkpoint_is_refused_unless_the_pipeline_was_reset(table: SqlTable, ask: Callable[..., Any]) -> None:
    table.write(pieces(put(1)), COLUMNS, NAME, Batch("old", 7))
    with pytest.raises(SpecError, match=r"another checkpoint of this pipeline \(old, up to batch 7\).*--reset"):
        table.write(pieces(put(2)), COLUMNS, NAME, Batch("new", 0))
    assert table.write(pieces(put(2)), COLUMNS, NAME, Batch("new", 0, is_anew=True))
    # The driver that the reset has replaced is still alive.
    with pytest.raises(SpecError, match="another checkpoint"):
        table.write(pieces(put(9)), COLUMNS, NAME, Batch("old", 8, is_anew=True))
    assert ask("SELECT id, n FROM orders") == [("a", 2)]
    # A backfill replaces what is there.
    assert table.write(pieces(put(1, "z")), COLUMNS, NAME, Batch("newer", 0, is_backfill=True, is_anew=True))
    assert ask("SELECT id, n FROM orders") == [("z", 1)]


def test_two_drivers_of_one_batch_write_it_once(url: str, table: SqlTable, ask: Callable[..., Any]) -> None:
    columns = pa.schema([("id", pa.string())])
    append = [SqlTable(url, "orders", [], "table") for _ in range(2)]
    append[0].write([], columns, NAME, Batch("q", 0))
    meet, written = threading.Barrier(2), []

    def rows() -> Iterator[Any]:
        meet.wait(60)  # both have asked for the mark, and neither has found it
        yield pa.RecordBatch.from_pylist([{"id": "a"}], schema=columns)

    def drive(one: SqlTable) -> None:
        written.append(one.write(rows(), columns, NAME, Batch("q", 1)))

    threads = [threading.Thread(target=drive, args=(one,)) for one in append]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(written) == [False, True]
    assert ask("SELECT count(*) FROM orders") == [(1,)]


def test_a_large_batch_is_here_one_piece_at_a_time(table: SqlTable, ask: Callable[..., Any]) -> None:
    held: list[weakref.ref[Any]] = []

    def rows() -> Iterator[Any]:
        for number in range(20):
            assert sum(piece() is not None for piece in held) <= 1
            made = [dict(zip(COLUMNS.names, put(1, f"{number}-{index}"), strict=True)) for index in range(100)]
            piece = pa.RecordBatch.from_pylist(made, schema=COLUMNS)
            held.append(weakref.ref(piece))
            yield piece
            del piece

    assert table.write(rows(), COLUMNS, NAME, Batch("q", 0))
    assert ask("SELECT count(*), sum(n) FROM orders") == [(2000, 2000)]


def test_a_key_without_a_unique_index_is_refused(table: SqlTable, ask: Callable[..., Any]) -> None:
    ask("CREATE TABLE orders (id varchar(20), n bigint, UNIQUE (id, n))")
    with pytest.raises(SpecError, match=r"orders has no unique index on \(id\)"):
        table.check(COLUMNS)
    ask("CREATE UNIQUE INDEX by_id ON orders (id)")
    table.check(COLUMNS)
    with pytest.raises(SpecError, match="a row has no 'id', which is part of the key"):
        table.write(pieces(put(1), (None, 1, False, 0, 0)), COLUMNS, NAME, Batch("q", 0))
    assert ask("SELECT count(*) FROM orders") == [(0,)]
    with pytest.raises(SpecError, match="has no column 'more'"):
        table.check(pa.schema([("id", pa.string()), ("more", pa.string())]))


def test_columns_that_take_no_null_take_deletes(table: SqlTable, ask: Callable[..., Any]) -> None:
    ask("CREATE TABLE orders (id varchar(20) PRIMARY KEY, n bigint NOT NULL)")
    table.write(pieces(put(1), put(1, "b")), COLUMNS, NAME, Batch("q", 0))
    table.write(pieces(gone()), COLUMNS, NAME, Batch("q", 1))
    assert ask("SELECT id FROM orders") == [("b",)]
    with pytest.raises(SpecError, match=r"(?i)the database says: .*(null|constraint)"):
        table.write(pieces(("b", None, False, 0, 0)), COLUMNS, NAME, Batch("q", 2))
    assert ask("SELECT id FROM orders") == [("b",)]


def test_every_type_comes_back_as_it_was(url: str, table: SqlTable, ask: Callable[..., Any]) -> None:
    row = {
        "id": "ä'\"\\ 😀", "b": True, "i8": -1, "i16": 2, "i32": 3, "i64": 2**62, "f": 0.5, "d": 0.1,
        "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5, 678901), "raw": b"\x00\xff", "money": Decimal("12345678901234567890.12"),
        "long": "x" * 100_000, "none": None,
    }  # fmt: skip
    columns = pa.schema(
        [
            ("id", pa.string()), ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()),
            ("i64", pa.int64()), ("f", pa.float32()), ("d", pa.float64()), ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("raw", pa.binary()),
            ("money", pa.decimal128(22, 2)), ("long", pa.string()), ("none", pa.string()),
        ]
    )  # fmt: skip
    table.write([pa.RecordBatch.from_pylist([row], schema=columns)], columns, NAME, Batch("q", 0))
    engine = engine_for(url, None, "test")
    reflected = sa.Table("orders", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = dict(connection.execute(sa.select(reflected)).mappings().one())
    if engine.dialect.name != "postgresql":
        found["at"] = found["at"].replace(tzinfo=UTC)
    if engine.dialect.name == "sqlite":
        found["money"] = Decimal(found["money"])
    found["d"] = float(found["d"])  # MariaDB's doubles are reflected as decimals
    assert found == row
    strange = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(SpecError, match=r"column tags is list<.*use to_json"):
        table.check(strange)


def test_a_key_of_several_columns_and_nothing_else(url: str, table: SqlTable, ask: Callable[..., Any]) -> None:
    columns = pa.schema([("a", pa.string()), ("b", pa.int32()), (DELETED, pa.bool_())])
    pairs = SqlTable(url, "orders", ["a", "b"], "table")

    def batch(*rows: tuple[str, int, bool]) -> list[Any]:
        return [pa.RecordBatch.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], columns)]

    pairs.write(batch(("A", 1, False), ("a", 1, False), ("a", 2, False)), columns, NAME, Batch("q", 0))
    pairs.write(batch(("a", 1, True), ("a", 2, False)), columns, NAME, Batch("q", 1))
    assert sorted(ask("SELECT a, b FROM orders")) == [("A", 1), ("a", 2)]


def test_what_cannot_work_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="jdbc writes to anything, at least once"):
        SqlTable("oracle://host/x", "t", [], "out")
    with pytest.raises(SpecError, match="no URL of a database"):
        SqlTable("nonsense", "t", [], "out")
    with pytest.raises(SpecError, match="the database says: "):
        SqlTable("mariadb://root@127.0.0.1:1/x", "t", [], "out").check(COLUMNS)
    with pytest.raises(SpecError, match="there is no table t, and create is false"):
        SqlTable(f"sqlite:///{tmp_path}/x.db", "t", [], "out", create=False).check(COLUMNS)


def test_a_table_without_transactions_is_refused(url: str, table: SqlTable, ask: Callable[..., Any]) -> None:
    if not url.startswith("mariadb"):
        pytest.skip("only MariaDB has such tables")
    ask("CREATE TABLE orders (id varchar(20) PRIMARY KEY, n bigint) ENGINE=MyISAM")
    with pytest.raises(SpecError, match="engine MyISAM, which knows no transactions; use InnoDB"):
        table.check(COLUMNS)
