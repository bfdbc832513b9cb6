"""Batches merged into Iceberg tables, without Spark: other writers, lost answers, expired snapshots."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.connectors.changes import DELETED, OFFSET, PARTITION
from penstock.pipelines.connectors.iceberg import IcebergSink, IcebergTable
from penstock.pipelines.spec import SpecError

NAME = "penstock.orders.out"
Row = tuple[str | None, int | None, bool, int]


def sink(folder: Path, **options: Any) -> IcebergTable:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return IcebergTable("out", IcebergSink.Options(catalog=catalog, table="shop.orders", **{"key": ("id",), **options}))


def batch_of(*rows: Row, **more: Any) -> Any:
    made = [{"id": key, "n": n, **more, DELETED: gone, PARTITION: 0, OFFSET: at} for key, n, gone, at in rows]
    extra = [(name, pa.string()) for name in more]
    own = [(DELETED, pa.bool_()), (PARTITION, pa.int64()), (OFFSET, pa.int64())]
    return pa.Table.from_pylist(made, schema=pa.schema([("id", pa.string()), ("n", pa.int64()), *extra, *own]))


class RestCatalog(ThreadingHTTPServer):
    """As much of Iceberg's REST catalog as a table needs, over a SQL catalog; it can lose its answer to a commit."""

    def __init__(self, inner: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.inner, self.loses_answers = inner, False


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalog

    def log_message(self, format: str, *arguments: Any) -> None:
        return

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._answer(200, {"defaults": {}, "overrides": {}})
            return
        try:
            self._answer_table(self.server.inner.load_table("shop.orders"))
        except NoSuchTableError as error:
            self._answer(404, {"error": {"message": str(error), "type": "NoSuchTableException", "code": 404}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/namespaces"):
            self.server.inner.create_namespace("shop")
            self._answer(200, {"namespace": ["shop"], "properties": {}})
        elif self.path.endswith("/tables"):
            schema = Schema.model_validate(json.loads(body)["schema"])
            self._answer_table(self.server.inner.create_table("shop.orders", schema))
        else:
            self._commit(CommitTableRequest.model_validate_json(body))

    def _commit(self, asked: Any) -> None:
        table = self.server.inner.load_table("shop.orders")
        try:
            self.server.inner.commit_table(table, asked.requirements, asked.updates)
        except CommitFailedException as error:
            self._answer(409, {"error": {"message": str(error), "type": "CommitFailedException", "code": 409}})
            return
        if self.server.loses_answers:
            self._answer(504, {"error": {"message": "too slow", "type": "GatewayTimeout", "code": 504}})
        else:
            self._answer_table(self.server.inner.load_table("shop.orders"))

    def _answer_table(self, table: Any) -> None:
        metadata = json.loads(table.metadata.model_dump_json())
        self._answer(200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(sink(tmp_path).catalog) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def put(key: str, n: int, at: int = 0) -> Row:
    return key, n, False, at


def gone(key: str, at: int = 0) -> Row:
    return key, None, True, at


def content(table: IcebergTable) -> list[tuple[Any, ...]]:
    rows = table.catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def commits(table: IcebergTable) -> int:
    return len(table.catalog.load_table("shop.orders").metadata.metadata_log)


def test_the_last_row_of_a_key_decides_and_a_batch_is_one_commit(tmp_path: Path) -> None:
    out = sink(tmp_path)
    assert out.write(batch_of(put("a", 2, 5), put("a", 1, 3), put("b", 1), put("c", 1), gone("x")), NAME, Batch("q", 0))
    assert content(out) == [("a", 2), ("b", 1), ("c", 1)]
    before = commits(out)
    assert out.write(
        batch_of(gone("a", 8), put("b", 7, 9), put("d", 1, 1), gone("d", 2), put("e", 5)), NAME, Batch("q", 1)
    )
    assert content(out) == [("b", 7), ("c", 1), ("e", 5)]
    assert commits(out) == before + 1
    assert out.write(batch_of(gone("nobody")), NAME, Batch("q", 2)) and out.has(NAME, Batch("q", 2))
    with pytest.raises(SpecError, match="a row has no 'id'"):
        out.write(batch_of((None, 1, False, 0)), NAME, Batch("q", 3))


def test_a_batch_that_comes_again_is_known_after_all_snapshots_expired(tmp_path: Path) -> None:
    out = sink(tmp_path, key=())
    rows = pa.table({"id": ["a"]})
    for number in range(3):
        assert out.write(rows, NAME, Batch("q", number))
    table = out.catalog.load_table("shop.orders")
    old = [item.snapshot_id for item in table.snapshots() if item.snapshot_id != table.current_snapshot().snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    # Somebody else's snapshot takes the place of ours, and ours expires, too.
    table.refresh().append(rows)
    table.refresh()
    ours = [item.snapshot_id for item in table.snapshots() if item.snapshot_id != table.current_snapshot().snapshot_id]
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    assert not sink(tmp_path, key=()).write(rows, NAME, Batch("q", 2))
    assert len(content(out)) == 4
    with pytest.raises(SpecError, match="it is an older copy"):
        out.write(rows, NAME, Batch("q", 1))


def test_another_checkpoint_is_refused_unless_the_pipeline_was_reset(tmp_path: Path) -> None:
    out = sink(tmp_path)
    out.write(batch_of(put("a", 1)), NAME, Batch("old", 7))
    with pytest.raises(SpecError, match="another checkpoint of this pipeline"):
        out.write(batch_of(put("a", 2)), NAME, Batch("new", 0))
    assert out.write(batch_of(put("a", 2)), NAME, Batch("new", 0, is_anew=True))
    assert out.write(batch_of(put("z", 1)), NAME, Batch("newer", 0, is_backfill=True, is_anew=True))
    assert content(out) == [("z", 1)]


def test_a_writer_in_between_makes_the_merge_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both add the key b: the one who comes second must find it."""
    out, rival = sink(tmp_path), sink(tmp_path)
    out.write(batch_of(put("a", 1)), NAME, Batch("q", 0))
    commit, tries = IcebergTable._commit, []

    def be_overtaken(self: Any, *arguments: Any) -> None:
        tries.append(self)
        if tries == [out]:
            commit(rival, rival._load(), pa.table({"id": ["b"], "n": [9]}), None, {"other": "1"}, Batch("r", 0))
        commit(self, *arguments)

    monkeypatch.setattr(IcebergTable, "_commit", be_overtaken)
    assert out.write(batch_of(put("b", 2)), NAME, Batch("q", 1))
    assert len(tries) == 2
    assert content(out) == [("a", 1), ("b", 2)]


def test_a_second_driver_of_one_batch_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rival = sink(tmp_path, key=()), sink(tmp_path, key=())
    rows = pa.table({"id": ["a"]})
    out.write(rows, NAME, Batch("q", 0))
    commit, tries = IcebergTable._commit, []

    def be_overtaken(self: Any, *arguments: Any) -> None:
        tries.append(self)
        if tries == [out]:
            rival.write(rows, NAME, Batch("q", 1))
        commit(self, *arguments)

    monkeypatch.setattr(IcebergTable, "_commit", be_overtaken)
    out.write(rows, NAME, Batch("q", 1))
    assert content(out) == [("a",), ("a",)]


@pytest.mark.parametrize("arrives", [True, False])
def test_an_answer_that_is_lost_is_looked_up(arrives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = sink(tmp_path, key=())
    rows = pa.table({"id": ["a"]})
    out.write(rows, NAME, Batch("q", 0))
    commit = out.catalog.commit_table

    def lose(*arguments: Any) -> Any:
        if arrives:
            commit(*arguments)
        raise CommitStateUnknownException("504 gateway timeout")

    with monkeypatch.context() as patched:
        patched.setattr(out.catalog, "commit_table", lose)
        if arrives:
            assert out.write(rows, NAME, Batch("q", 1))
        else:
            with pytest.raises(SpecError, match=r"batch 1 did not reach shop.orders: 504 gateway timeout"):
                out.write(rows, NAME, Batch("q", 1))
    # The pipeline starts again, and the batch comes again.
    assert out.write(rows, NAME, Batch("q", 1)) is not arrives
    assert content(out) == [("a",), ("a",)]


def test_a_rest_catalog_refuses_what_is_stale_and_may_lose_its_answer(rest: RestCatalog) -> None:
    catalog = {"type": "rest", "uri": f"http://127.0.0.1:{rest.server_port}"}
    out, rival = (
        IcebergTable("out", IcebergSink.Options(catalog=catalog, table="shop.orders", key=("id",))) for _ in range(2)
    )
    assert out.write(batch_of(put("a", 1), put("b", 1)), NAME, Batch("q", 0))
    stale = rival._load()
    rest.loses_answers = True
    assert out.write(batch_of(put("a", 2), gone("b")), NAME, Batch("q", 1))
    rest.loses_answers = False
    assert not out.write(batch_of(put("a", 2), gone("b")), NAME, Batch("q", 1))
    with pytest.raises(CommitFailedException):
        rival._commit(stale, pa.table({"id": ["a"], "n": [9]}), None, {}, Batch("r", 0))
    assert content(out) == [("a", 2)]


def test_columns_are_added_when_asked_for_and_refused_otherwise(tmp_path: Path) -> None:
    out = sink(tmp_path, new_columns=True)
    out.write(batch_of(put("a", 1), put("b", 1)), NAME, Batch("q", 0))
    wider = batch_of(put("a", 2), put("c", 3), city="Bern")
    out.write(wider, NAME, Batch("q", 1))
    assert content(out) == [("a", 2, "Bern"), ("b", 1, None), ("c", 3, "Bern")]
    strict = sink(tmp_path)
    with pytest.raises(SpecError, match="has no column 'more'"):
        strict.check([*list(wider.schema)[:3], pa.field("more", pa.string())])
    with pytest.raises(SpecError, match="the rows lack city, which a merge would empty"):
        strict.check(list(wider.schema)[:2])
    with pytest.raises(SpecError, match="column n is int64 in the table and string here"):
        strict.check([wider.schema.field("id"), pa.field("n", pa.string()), wider.schema.field("city")])


def test_a_key_of_several_columns(tmp_path: Path) -> None:
    out = sink(tmp_path, key=("a", "b"))

    def pairs(*rows: tuple[str, int, bool]) -> Any:
        made = [{"a": a, "b": b, DELETED: flag, PARTITION: 0, OFFSET: 0} for a, b, flag in rows]
        own = [(DELETED, pa.bool_()), (PARTITION, pa.int64()), (OFFSET, pa.int64())]
        return pa.Table.from_pylist(made, schema=pa.schema([("a", pa.string()), ("b", pa.int32()), *own]))

    out.write(pairs(("x", 1, False), ("x", 2, False), ("y", 1, False), ("y", 2, False)), NAME, Batch("q", 0))
    out.write(pairs(("x", 1, True), ("y", 2, False), ("z", 1, False)), NAME, Batch("q", 1))
    assert content(out) == [("x", 2), ("y", 1), ("y", 2), ("z", 1)]


def test_what_cannot_work_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no table shop.orders, and create is false"):
        sink(tmp_path, create=False).check([])
    with pytest.raises(SpecError, match="the catalog cannot be reached"):
        IcebergTable("out", IcebergSink.Options(catalog={"type": "rest", "uri": "http://127.0.0.1:1"}, table="a.b"))
    with pytest.raises(SpecError, match="d is double, which makes no key"):
        sink(tmp_path, key=("d",)).check([pa.field("d", pa.float64())])
