"""How pipelines look in the terminal: the live view of `run`, the rows of `list` and `status`, lines of `logs`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.pipelines.control.store import Applied

STATUS_COLUMNS = [
    "pipeline", "state", "query", "batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows", "watermark",
    "error",
]  # fmt: skip
STATUS_NUMBERS = ["batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows"]
SILENT_MS = 30_000  # a driver speaks every few seconds; one that does not is gone


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
        columns = ["query", "batch", "rows", "rows_per_second", "lag", "batch_ms", "state_rows", "watermark"]
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


def _state(applied: Applied, known: Mapping[str, Any] | None) -> tuple[str, str | None]:
    """(state, error) as a user should read it."""
    if known is None:
        return ("stopped" if applied.desired == "stopped" else "waiting for a runner"), None
    state = known["state"]
    silent = time.time() * 1000 - known.get("seen_at_ms", 0) > SILENT_MS
    if state in ("running", "starting") and silent:
        return "lost", "its driver is silent; is a runner up?"
    if applied.desired == "stopped" and state in ("running", "starting"):
        return "stopping", None
    return state, known.get("error")


def list_row(applied: Applied, known: Mapping[str, Any] | None) -> dict[str, Any]:
    state, error = _state(applied, known)
    return {
        "name": applied.name,
        "desired": applied.desired,
        "state": state,
        "generation": applied.generation,
        "changed_at_ms": applied.changed_at_ms,
        "error": error,
    }


def status_rows(applied: Applied, known: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    state, error = _state(applied, known)
    common = {"pipeline": applied.name, "state": state, "error": error}
    queries = (known or {}).get("queries", {})
    if not queries:
        return [common]
    return [{**query, **common} for _, query in sorted(queries.items())]


def log_line(event: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if event["kind"] == "state":
        return f"{at} {event['state']}" + (f": {event['error']}" if event.get("error") else "")
    if event["kind"] == "progress":
        return f"{at} {event['query']}: batch {event['batch']}, {event['rows']} rows, {event['batch_ms']} ms"
    return f"{at} {event['line']}"
