"""How results look: tables for people, one JSON object per line for programs, progress only on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from penstock.base.printable import printable, printable_cell

Row = Mapping[str, Any]


class Output:
    """Standard output of one command. `--json` switches every command to JSON lines; a pipe switches colours off."""

    def __init__(self, as_json: bool = False, stream: IO[str] | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or sys.stdout

    @property
    def is_terminal(self) -> bool:
        return self._stream.isatty()

    def rows(
        self,
        rows: Iterable[Row],
        columns: Sequence[str],
        *,
        right: Sequence[str] = (),
        empty: str = "",
        as_named: bool = False,
    ) -> None:
        """A table of these columns; as JSON every field of a row, also those that the table leaves out.

        Titles are made of the columns' names, or are these names where somebody else chose them."""
        if self.as_json:
            for row in rows:
                self.record(row)
            return
        shown = [[_text(row.get(column)) for column in columns] for row in rows]
        if not shown:
            if empty:
                self.note(empty)
            return
        aligned = [column in right for column in columns]
        if self.is_terminal:
            self._rich_table(shown, columns if as_named else [column.replace("_", " ") for column in columns], aligned)
        else:
            named = columns if as_named else [column.upper().replace("_", "-") for column in columns]
            self._plain_table(shown, named, aligned)

    def record(self, row: Row) -> None:
        """One JSON object on one line."""
        self._stream.write(json.dumps(row, ensure_ascii=False, default=_jsonable, separators=(",", ":")) + "\n")

    def result(self, row: Row, sentence: str) -> None:
        """What an action did: a sentence for people, an object for programs."""
        if self.as_json:
            self.record(row)
        else:
            self.text(sentence)

    def text(self, line: str) -> None:
        self._stream.write(printable(line) + "\n")

    def note(self, line: str) -> None:
        """Said beside the data: to standard error, so that pipes stay clean."""
        sys.stderr.write(printable(line) + "\n")

    def _plain_table(self, shown: list[list[str]], titles: Sequence[str], right: Sequence[bool]) -> None:
        widths = [max(len(line[n]) for line in [titles, *shown]) for n in range(len(titles))]
        for line in [titles, *shown]:
            cells = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(line, widths, right, strict=True)
            ]
            self._stream.write("  ".join(cells).rstrip() + "\n")

    def _rich_table(self, shown: list[list[str]], titles: Sequence[str], right: Sequence[bool]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for title, is_right in zip(titles, right, strict=True):
            table.add_column(title, justify="right" if is_right else "left", overflow="fold")
        for line in shown:
            table.add_row(*(Text(cell) for cell in line))
        Console(file=self._stream, highlight=False).print(table)

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """A bar on standard error while it is a terminal; silent otherwise and with --json."""
        if self.as_json or not sys.stderr.isatty():
            yield Progress(None, None)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield Progress(bar, bar.add_task(label, total=total))


class Progress:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def advance(self, amount: int = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, amount)

    def update(self, completed: int, total: int | None = None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=completed, total=total)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_text(item)}" for key, item in value.items())
    return printable_cell(str(value))


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
