"""Spreading replicas over brokers: say which, see the plan, start it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data import brokers
from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, described, dialog
from penstock.console.widgets.pieces import plain, primary, text
from penstock.console.widgets.table import Column, ServerTable, fixed
from penstock.operate.errors import UserError, usage_error


def spread_dialog(here: Here, nodes: list[int]) -> None:
    with dialog(
        "Spread replicas",
        "Every broker holds and leads nearly as much as any other, with as few moves as possible. A broker that is left"
        " out gives away all that it holds.",
    ) as made:
        made.props("persistent")
        ui.label("Onto these brokers").classes("pk-sub")
        with ui.element("div").classes("pk-row").props('role=group aria-label="Onto these brokers"'):
            chosen = {node: ui.checkbox(f"Broker {node}", value=True) for node in nodes}
        names = ui.input("Topics").props(
            'outlined dense autocomplete=off hint="names with commas between; empty for all"'
        )
        plan = ui.element("div").style("width: 100%")

        async def preview() -> None:
            plan.clear()
            wanted = [name.strip() for name in (names.value or "").split(",") if name.strip()]
            onto = [node for node, box in chosen.items() if box.value]
            with plan:
                try:
                    if not onto:
                        raise usage_error("no broker is chosen", "choose as many as there are replicas")
                    rows = await here.viewer.ask(brokers.plan, wanted or None, onto)
                except (UserError, ClientError) as error:
                    with ui.element("div").classes("pk-note pk-problem").props("role=alert"):
                        ui.label(described(error))
                    return
                await _show(here, rows, made)

        with ui.element("div").classes("pk-row").style("justify-content: flex-end"):
            plain("Close", made.close)
            primary("Preview", preview, icon="visibility")


async def _show(here: Here, rows: list[dict[str, Any]], made: ui.dialog) -> None:
    if not rows:
        with ui.element("div").classes("pk-note"):
            ui.label("Nothing to move: the replicas are spread evenly over these brokers already.")
        return
    copies = sum(len(set(row["to"]) - set(row["from"])) for row in rows)
    size = await here.viewer.ask(brokers.bytes_to_copy, rows)
    text("h2", "The plan")
    ui.label(
        f"{numbers.plural(len(rows), 'partition')} would change, {numbers.plural(copies, 'replica')} "
        f"({numbers.size_text(size)}) be copied."
    )
    named = [{**row, "place": f"{row['topic']}-{row['partition']}"} for row in rows]
    with ui.element("div").classes("pk-plan"):
        table = ServerTable(
            [
                Column("place", "Partition"),
                Column("from", "Now on", text=lambda row: ", ".join(map(str, row["from"]))),
                Column("to", "Then on", text=lambda row: ", ".join(map(str, row["to"]))),
            ],
            fixed(named, name="place"),
            key="place",
            sort="place",
        )
        await table.refresh()

    async def start() -> None:
        moves = [{key: row[key] for key in ("topic", "partition", "to")} for row in rows]
        if await attempt(lambda: here.viewer.ask(brokers.reassign, moves), "the replicas move"):
            made.close()

    primary(f"Move {numbers.plural(len(rows), 'partition')}", start, icon="play_arrow")
