"""What pipelines keep: tables that take each batch once and survive a crash at any step, checkpoints that must fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.checkpoint import DoesNotFit, PipelineState
from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.connectors.table_files import TableFiles
from penstock.pipelines.progress import summary
from penstock.pipelines.storage import LocalStorage


class Rows:
    """Stands for a DataFrame: writes its text as the files of a Spark write."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.write = self

    def format(self, kind: str) -> Rows:
        return self

    def options(self, **options: str) -> Rows:
        return self

    def mode(self, mode: str) -> Rows:
        return self

    def save(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        for index, text in enumerate(self._texts):
            Path(path, f"part-{index:05d}-x.c000.json").write_text(text)
        Path(path, "_SUCCESS").write_text("")

    def coalesce(self, count: int) -> Rows:
        return Rows("".join(self._texts))


class Spark:
    """Reads such files again."""

    def __init__(self) -> None:
        self.read = self

    def format(self, kind: str) -> Spark:
        return self

    def load(self, paths: list[str]) -> Rows:
        return Rows(*[Path(path).read_text() for path in paths])


def content(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.iterdir() if not path.name.startswith(("_", ".")))


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    return TableFiles(LocalStorage(str(tmp_path)), "json")


def test_a_batch_is_written_once(table: TableFiles, tmp_path: Path) -> None:
    assert table.write(Rows("a", "b"), Batch("q", 0))
    assert not table.write(Rows("other"), Batch("q", 0))
    assert table.write(Rows("c"), Batch("q", 1))
    assert content(tmp_path) == ["a", "b", "c"]


@pytest.mark.parametrize("moves_before_the_crash", [0, 1, 2])
def test_a_crash_between_files_leaves_nothing_twice(
    table: TableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_before_the_crash: int
) -> None:
    table.write(Rows("before"), Batch("q", 0))
    with monkeypatch.context() as patched:
        _crash_after(patched, table.folder, "move", moves_before_the_crash)
        if moves_before_the_crash == 2:
            _crash_after(patched, table.folder, "write_text", 0)
        with pytest.raises(InterruptedError):
            table.write(Rows("a", "b"), Batch("q", 1))
    assert table.write(Rows("a2", "b2"), Batch("q", 1))
    assert content(tmp_path) == ["a2", "b2", "before"]


@pytest.mark.parametrize(
    ("operation", "count"), [("write_text", 0), ("delete", 0), ("delete", 1), ("move", 0), ("delete", 3)]
)
def test_a_crash_in_a_compaction_loses_nothing(
    table: TableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, count: int
) -> None:
    for number in range(3):
        table.write(Rows(str(number)), Batch("q", number))
    with monkeypatch.context() as patched:
        _crash_after(patched, table.folder, operation, count)
        with pytest.raises(InterruptedError):
            table.compact(Spark(), small_bytes=1000, at_least=2)
    table.write(Rows("3"), Batch("q", 3))
    assert sorted("".join(content(tmp_path))) == ["0", "1", "2", "3"]
    table.compact(Spark(), small_bytes=1000, at_least=2)
    assert len(content(tmp_path)) == 1


def test_a_backfill_replaces_the_table(table: TableFiles, tmp_path: Path) -> None:
    table.write(Rows("old"), Batch("q", 0))
    table.write(Rows("new"), Batch("r", 0, is_backfill=True))
    table.write(Rows("newer"), Batch("r", 1))
    assert content(tmp_path) == ["new", "newer"]


def _crash_after(patched: pytest.MonkeyPatch, folder: Any, operation: str, count: int) -> None:
    real = getattr(folder, operation)
    left = [count]

    def crashing(*arguments: Any) -> Any:
        if left[0] == 0:
            raise InterruptedError("the machine stops here")
        left[0] -= 1
        return real(*arguments)

    patched.setattr(folder, operation, crashing)


def test_a_changed_pipeline_is_refused_with_the_way_out(tmp_path: Path) -> None:
    state = PipelineState(LocalStorage(str(tmp_path / "p")), "p")
    before = {"version": 2, "sources": ["penstock orders"], "stateful": ["Aggregate by a"], "sinks": ["out"]}
    first = state.open("out", before)
    assert state.open("out", before) == first
    with pytest.raises(DoesNotFit, match=r"stateful operations have changed.*new name.*--reset.*--backfill"):
        state.open("out", {**before, "stateful": ["Aggregate by b"]})
    state.reset(backfill=True)
    again = state.open("out", {**before, "stateful": []})
    assert again.is_backfill and again.identity != first.identity


def test_progress_in_few_numbers() -> None:
    told = summary(
        "out",
        {
            "batchId": 3,
            "timestamp": "2026-01-01T00:00:00Z",
            "numInputRows": 10,
            "processedRowsPerSecond": 5.04,
            "durationMs": {"triggerExecution": 2000},
            "stateOperators": [{"numRowsTotal": 4, "memoryUsedBytes": 100}],
            "eventTime": {"watermark": "2026-01-01T00:00:00Z"},
            "sources": [
                {"latestOffset": '{"t":{"0":12,"1":5},"#ids":{"t":"x"}}', "endOffset": {"t": {"0": 10, "1": 5}}},
                {"latestOffset": None, "endOffset": {"count": 3}},
            ],
        },
    )
    assert (told["lag"], told["rows"], told["state_rows"], told["batch_ms"]) == (2, 10, 4, 2000)
