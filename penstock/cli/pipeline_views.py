"""How pipelines look in the terminal: the live view of `run`, the rows of `list` and `status`, lines of `logs`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Output

if TYPE_CHECKING:
    pass

STATUS_COLUMNS = [
    "pipeline", "state", "query", "batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows", "late",
    "watermark", "error",
]  # fmt: skip
STATUS_NUMBERS = ["batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows", "late"]


@contextlib.contextmanager
def live_view(output: Output, name: str) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """A table that follows the queries on a terminal; one line per batch with rows elsewhere."""
    from penstock.pipelines.progress import summary

    newest: dict[str, dict[str, Any]] = {}
    if output.as_json or not output.is_terminal:

        def tell(query: str, progress: Mapping[str, Any]) -> None:
            row = {"pipeline": name, **summary(query, progress)}
            if output.as_json:
                output.record(row)
            elif row["rows"]:
                output.text(
                    f"{query}: batch {row['batch']}, {row['rows']} rows, {row['rows_per_second']:.0f}/s,"
                    f" lag {row['lag'] if row['lag'] is not None else '-'}, {row['batch_ms']} ms"
                )

        yield tell
        return
    from rich.live import Live
    from rich.table import Table

    def table() -> Table:
        made = Table(title=name, title_justify="left", box=None)
        columns = ["query", "batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows", "late", "watermark"]
        for column in columns:
            made.add_column(column.replace("_", " "), justify="left" if column == "query" else "right")
        for row in newest.values():
            made.add_row(*("-" if row[column] is None else str(row[column]) for column in columns))
        return made

    with Live(table(), refresh_per_second=4) as live:

        def show(query: str, progress: Mapping[str, Any]) -> None:
            newest[query] = summary(query, progress)
            live.update(table())

        yield show
