"""`penstock top`: topics, groups and brokers of a cluster in the terminal, live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.typed import command, new_app

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.console.snapshot import Snapshot

app = new_app("Watch topics, groups and brokers live in the terminal.", no_args_is_help=False)

HIDDEN = "__"


@command(app)
def top(
    session: Session,
    every: Annotated[float, typer.Option("--every", min=0.5, metavar="SECONDS", help="How often to look.")] = 2.0,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Topics and groups to show.")] = 12,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after so many looks; 0: never.")] = 0,
) -> None:
    """Busiest topics, groups that are furthest behind, and brokers. Ctrl-C ends it."""
    from penstock.console.snapshot import look

    before = look(session, None)
    looks = 0
    if session.output.as_json or not session.output.is_terminal:
        while not count or looks < count:
            time.sleep(every)
            before = look(session, before)
            looks += 1
            session.output.record(_figures(before, rows))
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        live.update(_screen(before, rows), refresh=True)
        while not count or looks < count:
            time.sleep(every)
            before = look(session, before)
            looks += 1
            live.update(_screen(before, rows), refresh=True)


def _figures(seen: Snapshot, rows: int) -> dict[str, Any]:
    return {
        "at": seen.at_ms,
        "brokers": _brokers(seen),
        "topics": [
            {"topic": t.name, "rate": t.rate, "records": t.records, "bytes": t.bytes, "missing": t.under_replicated}
            for t in _busiest(seen)[:rows]
        ],
        "groups": [{"group": g.name, "state": g.state, "lag": g.lag, "rate": g.rate} for g in _behind(seen)[:rows]],
    }


def _busiest(seen: Snapshot) -> list[Any]:
    shown = [topic for topic in seen.topics.values() if not topic.name.startswith(HIDDEN)]
    return sorted(shown, key=lambda t: (-(t.rate or 0), -(t.records or 0), t.name))


def _behind(seen: Snapshot) -> list[Any]:
    shown = [group for group in seen.groups.values() if not group.name.startswith(HIDDEN)]
    return sorted(shown, key=lambda g: (-g.lag, g.name))


def _brokers(seen: Snapshot) -> list[dict[str, Any]]:
    partitions = [p for topic in seen.view.topics.values() for p in topic.partitions.values()]
    return [
        {
            "broker": node,
            "address": f"{address.host}:{address.port}",
            "leads": sum(p.leader_id == node for p in partitions),
            "replicas": sum(node in p.replicas for p in partitions),
            "controller": node == seen.view.controller_id,
        }
        for node, address in sorted(seen.view.brokers.items())
    ]


def _screen(seen: Snapshot, rows: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    troubled = sum(topic.offline for topic in seen.topics.values())
    missing = sum(topic.under_replicated for topic in seen.topics.values())
    state = f"{troubled} partitions without a leader" if troubled else f"{missing} under-replicated" if missing else ""
    moment = time.strftime("%H:%M:%S", time.localtime(seen.at_ms / 1000))
    head = f"{moment}   {len(seen.view.brokers)} brokers   {len(seen.topics)} topics   {len(seen.groups)} groups"
    title = Text(f"{head}   {state or 'all partitions are whole'}", style="bold red" if state else "bold green")
    topics = _table(
        ["topic", "records/s", "records", "bytes", "partitions"],
        [[t.name, _number(t.rate), _number(t.records), _bytes(t.bytes), str(t.partitions)] for t in _busiest(seen)],
        rows,
    )
    groups = _table(
        ["group", "state", "lag", "records/s"],
        [[g.name, g.state, _number(g.lag), _number(g.rate)] for g in _behind(seen)],
        rows,
    )
    brokers = _table(
        ["broker", "address", "leads", "replicas", "controller"],
        [[str(b["broker"]), b["address"], str(b["leads"]), str(b["replicas"]), "yes" if b["controller"] else ""]
         for b in _brokers(seen)],
        rows,
    )  # fmt: skip
    return Group(title, topics, groups, brokers)


def _table(titles: list[str], lines: list[list[str]], rows: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, expand=True)
    for position, title in enumerate(titles):
        table.add_column(title, justify="left" if position == 0 or title in ("state", "address") else "right")
    for line in lines[:rows]:
        table.add_row(*(Text(cell) for cell in line))
    if len(lines) > rows:
        table.caption = f"and {len(lines) - rows} more (--rows)"
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    size, units = float(value), iter(("B", "KB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1000 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
