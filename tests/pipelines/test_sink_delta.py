"""Batches merged into Delta tables, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.pipelines.connectors import delta
from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.connectors.changes import DELETED, OFFSET, PARTITION
from penstock.pipelines.connectors.delta import DeltaSink, DeltaTableSink
from penstock.pipelines.spec import SpecError

Row = tuple[str | None, int | None, bool, int]


def sink(folder: Path, pipeline: str = "p", **options: Any) -> DeltaTableSink:
    return DeltaTableSink("out", DeltaSink.Options(path=str(folder / "t"), **{"key": ("id",), **options}), pipeline)


def batch_of(*rows: Row, **more: Any) -> Any:
    made = [{"id": key, "n": n, **more, DELETED: gone, PARTITION: 0, OFFSET: at} for key, n, gone, at in rows]
    extra = [(name, pa.string()) for name in more]
    own = [(DELETED, pa.bool_()), (PARTITION, pa.int64()), (OFFSET, pa.int64())]
    return pa.Table.from_pylist(made, schema=pa.schema([("id", pa.string()), ("n", pa.int64()), *extra, *own]))


def content(folder: Path) -> list[tuple[Any, ...]]:
    rows = DeltaTable(folder / "t").to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def test_the_last_row_of_a_key_decides_and_deletes_count(tmp_path: Path) -> None:
    out = sink(tmp_path)
    first = batch_of(
        ("a", 2, False, 5), ("a", 1, False, 3), ("b", 1, False, 0), ("c", 1, False, 0), ("x", None, True, 9)
    )
    assert out.write(first, Batch("q", 0))
    assert content(tmp_path) == [("a", 2), ("b", 1), ("c", 1)]
    second = batch_of(
        ("a", None, True, 8), ("b", 7, False, 9), ("d", 1, False, 1), ("d", None, True, 2), ("e", 5, False, 0)
    )
    assert out.write(second, Batch("q", 1))
    assert content(tmp_path) == [("b", 7), ("c", 1), ("e", 5)]
    with pytest.raises(SpecError, match="a row has no 'id'"):
        out.write(batch_of((None, 1, False, 0)), Batch("q", 2))


def test_a_batch_that_comes_again_does_nothing_and_an_older_checkpoint_is_seen(tmp_path: Path) -> None:
    out = sink(tmp_path)
    out.write(batch_of(("a", 1, False, 0)), Batch("q", 3))
    version = DeltaTable(tmp_path / "t").version()
    assert out.has(Batch("q", 3)) and not out.write(batch_of(("a", 1, False, 0)), Batch("q", 3))
    assert DeltaTable(tmp_path / "t").version() == version
    with pytest.raises(SpecError, match="it is an older copy"):
        out.write(batch_of(("a", 1, False, 0)), Batch("q", 2))


def test_columns_are_added_when_asked_for(tmp_path: Path) -> None:
    out = sink(tmp_path, new_columns=True)
    out.write(batch_of(("a", 1, False, 0), ("b", 1, False, 0)), Batch("q", 0))
    out.write(batch_of(("a", 2, False, 0), ("c", 3, False, 0), ("b", None, True, 0), city="Bern"), Batch("q", 1))
    assert content(tmp_path) == [("a", 2, "Bern"), ("c", 3, "Bern")]
    # Rows of before, without the column: it stays.
    out.write(batch_of(("a", 4, False, 0)), Batch("q", 2))
    assert content(tmp_path) == [("a", 4, "Bern"), ("c", 3, "Bern")]


def test_a_writer_in_between_makes_the_merge_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = sink(tmp_path)
    out.write(batch_of(("a", 1, False, 0)), Batch("q", 0))
    opened, interfered = delta._open, []

    def open_and_be_overtaken(options: Any) -> Any:
        table = opened(options)
        if not interfered:
            interfered.append(True)
            rival = sink(tmp_path, "another")
            with monkeypatch.context() as inner:
                inner.setattr(delta, "_open", opened)
                rival.write(batch_of(("b", 9, False, 0)), Batch("other", 0))
        return table

    monkeypatch.setattr(delta, "_open", open_and_be_overtaken)
    assert out.write(batch_of(("b", 2, False, 0)), Batch("q", 1))
    assert content(tmp_path) == [("a", 1), ("b", 2)]


def test_a_second_driver_of_one_batch_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a key, where a late append would fit anywhere."""
    out = sink(tmp_path, key=())
    rows = pa.table({"id": ["a"]})
    out.write(rows, Batch("q", 0))
    opened, interfered = delta._open, []

    def open_and_be_overtaken(options: Any) -> Any:
        table = opened(options)
        if not interfered:
            interfered.append(True)
            out.write(rows, Batch("q", 1))
        return table

    monkeypatch.setattr(delta, "_open", open_and_be_overtaken)
    assert not out.write(rows, Batch("q", 1))
    assert content(tmp_path) == [("a",), ("a",)]


@pytest.mark.parametrize("key", [(), ("id",)])
def test_another_checkpoint_is_refused_unless_the_pipeline_was_reset(key: tuple[str, ...], tmp_path: Path) -> None:
    out, rows = sink(tmp_path, key=key), batch_of(("a", 1, False, 0))
    out.write(rows, Batch("q", 0))
    with pytest.raises(SpecError, match="another checkpoint of this pipeline"):
        out.write(rows, Batch("moved", 0))
    assert out.write(rows, Batch("new", 0, is_anew=True)) and out.write(rows, Batch("new", 1, is_anew=True))
    version = DeltaTable(tmp_path / "t").version()
    for replaced in (Batch("q", 1), Batch("q", 1, is_anew=True)):
        with pytest.raises(SpecError, match="another checkpoint of this pipeline"):
            out.write(rows, replaced)
    assert DeltaTable(tmp_path / "t").version() == version
    assert sink(tmp_path, "another", key=key).write(rows, Batch("beside", 0)), "other pipelines may write to it, too"


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_driver_that_a_reset_overtakes_in_its_batch_writes_nothing(
    key: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = sink(tmp_path, key=key)
    out.write(batch_of(("a", 1, False, 0)), Batch("q", 0))
    opened, interfered = delta._open, []

    def open_and_be_overtaken(options: Any) -> Any:
        table = opened(options)
        if not interfered:
            interfered.append(True)
            out.write(batch_of(("a", 3, False, 0)), Batch("new", 0, is_anew=True))
        return table

    monkeypatch.setattr(delta, "_open", open_and_be_overtaken)
    with pytest.raises(SpecError, match="another checkpoint of this pipeline"):
        out.write(batch_of(("a", 2, False, 0)), Batch("q", 1))
    assert ("a", 3) in {row[:2] for row in content(tmp_path)}
    assert ("a", 2) not in {row[:2] for row in content(tmp_path)}


@pytest.mark.parametrize("key", [(), ("id",)])
def test_two_drivers_that_make_the_table_write_its_first_batch_once(
    key: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = sink(tmp_path, key=key)
    opened, interfered = delta._open, []

    def open_and_be_overtaken(options: Any) -> Any:
        table = opened(options)
        if not interfered:
            interfered.append(True)
            assert out.write(batch_of(("a", 1, False, 0)), Batch("q", 0))
        return table

    monkeypatch.setattr(delta, "_open", open_and_be_overtaken)
    assert not out.write(batch_of(("a", 1, False, 0)), Batch("q", 0))
    assert len(content(tmp_path)) == 1


def test_a_table_of_before_its_pipelines_were_noted_is_gone_on_with(tmp_path: Path) -> None:
    mark = CommitProperties(app_transactions=[Transaction("q-out", 4)])
    write_deltalake(tmp_path / "t", pa.table({"id": ["a"], "n": pa.array([1], pa.int64())}), commit_properties=mark)
    out = sink(tmp_path)
    assert not out.write(batch_of(("a", 1, False, 0)), Batch("q", 4))
    assert out.write(batch_of(("a", 2, False, 0)), Batch("q", 5))
    assert content(tmp_path) == [("a", 2)]
    assert out.write(batch_of(("a", 3, False, 0)), Batch("new", 0, is_anew=True))
    with pytest.raises(SpecError, match="another checkpoint of this pipeline"):
        out.write(batch_of(("a", 2, False, 0)), Batch("q", 6))


def test_an_answer_lost_after_the_commit_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake.exceptions import CommitFailedError

    out = sink(tmp_path)
    out.write(batch_of(("a", 1, False, 0)), Batch("q", 0))
    commit = DeltaTableSink._commit

    def lose(self: Any, *arguments: Any) -> None:
        commit(self, *arguments)
        raise CommitFailedError("the answer was lost")

    monkeypatch.setattr(DeltaTableSink, "_commit", lose)
    assert not out.write(batch_of(("b", 2, False, 0)), Batch("q", 1))
    assert content(tmp_path) == [("a", 1), ("b", 2)]


def test_a_backfill_replaces_what_is_there(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": ["old"], "n": pa.array([1], pa.int64())}))
    assert sink(tmp_path).write(batch_of(("a", 1, False, 0), ("a", 2, False, 1)), Batch("q", 0, is_backfill=True))
    assert content(tmp_path) == [("a", 2)]
