"""A topic's settings: each with its value, where that comes from and what it means; changing one."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import topics
from penstock.console.data.paging import Row
from penstock.console.page import Here
from penstock.console.widgets.dialogs import attempt, buttons, dialog
from penstock.console.widgets.pieces import panel, plain
from penstock.console.widgets.table import Column, ServerTable, fixed


async def settings_tab(here: Here, name: str) -> None:
    async def fetch_rows() -> list[dict[str, Any]]:
        return await here.viewer.ask(topics.topic_configs, name)

    rows = await fetch_rows()

    async def again() -> None:
        found = await fetch_rows()
        table.change_fetch(fixed(found, name="key"))
        await table.refresh()

    def edit(row: Row) -> None:
        current = next(one for one in rows if one["key"] == row["key"])
        if here.viewer.may("editor") and not current["read_only"]:
            _edit_dialog(here, name, current, again)

    with panel(flush=True):
        table = ServerTable(
            [
                Column("key", "Setting"),
                Column("value", "Value", text=lambda row: "hidden" if row["sensitive"] else str(row["value"] or "")),
                Column("source", "From", tone=lambda row: "accent" if row["source"] == "topic" else ""),
                Column("doc", "Meaning", text=lambda row: row["doc"] or "", sortable=False, wide=True),
            ],
            fixed(rows, name="key"),
            key="key",
            sort="key",
            search="Search settings",
            on_row=edit,
            classes="pk-wrap",
        )
    await table.refresh()


def _edit_dialog(here: Here, name: str, row: dict[str, Any], again: Any) -> None:
    with dialog(row["key"], row["doc"] or "") as made:
        value = ui.input("Value", value=row["value"] or "").props("outlined dense autofocus autocomplete=off")

        async def change(wanted: str | None) -> bool:
            good = await attempt(
                lambda: here.viewer.ask(topics.configure, name, {row["key"]: wanted}), f"{row['key']} is changed"
            )
            if good:
                await again()
            return good

        async def back() -> None:
            if await change(None):
                made.close()

        if row["source"] == "topic":
            plain("Back to the default", back)
        buttons(made, "Save", lambda: change(value.value or ""))
