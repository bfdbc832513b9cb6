"""Settings of a topic or a broker: each with its value, where that comes from and what it means; changing one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from penstock.console.data.paging import Page as Rows
from penstock.console.data.paging import Query, Row, page_of
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, buttons, dialog
from penstock.console.widgets.pieces import panel, plain
from penstock.console.widgets.table import Column, ServerTable

Fetch = Callable[[], Awaitable[list[dict[str, Any]]]]
Change = Callable[[dict[str, str | None]], Awaitable[Any]]


async def settings_table(fetch: Fetch, change: Change | None, own: str) -> None:
    """`own` is the source that this thing itself is; without `change` the table is only read."""
    rows = {row["key"]: row for row in await fetch()}
    only_changed = {"chosen": False}

    async def shown(query: Query) -> Rows:
        wanted = [row for row in rows.values() if not only_changed["chosen"] or row["source"] != "default"]
        return page_of(wanted, query, name="key")

    async def again() -> None:
        rows.clear()
        rows.update({row["key"]: row for row in await fetch()})
        await table.refresh()

    async def choose(event: object) -> None:
        only_changed["chosen"] = bool(getattr(event, "value", False))
        await table.refresh()

    def edit(row: Row) -> None:
        current = rows[row["key"]]
        if change is not None and not current["read_only"]:
            _edit_dialog(current, change, own, again)

    with panel(flush=True):
        with ui.element("div").classes("pk-row").style("padding: 10px 20px 0"):
            ui.checkbox("Only what differs from the default", on_change=choose)
            if change is not None:
                ui.label("Click a setting to change it.").classes("pk-sub")
        table = ServerTable(
            [
                Column("key", "Setting"),
                Column("value", "Value", text=_value),
                Column("source", "From", tone=lambda row: "accent" if row["source"] == own else ""),
                Column("doc", "Meaning", text=_meaning, sortable=False, wide=True),
            ],
            shown,
            key="key",
            sort="key",
            search="Search settings",
            on_row=edit,
            classes="pk-wrap pk-settings",
        )
    await table.refresh()


def _value(row: Row) -> str:
    """As it is set, and in units that people read."""
    if row["sensitive"]:
        return "hidden"
    if row["value"] in (None, ""):
        return "not set"
    return numbers.setting(row["key"], str(row["value"]))


def _meaning(row: Row) -> str:
    return (row["doc"] or "").replace("`", "")


def _edit_dialog(row: dict[str, Any], change: Change, own: str, again: Callable[[], Awaitable[None]]) -> None:
    with dialog(row["key"], row["doc"] or "") as made:
        value = ui.input("Value", value=row["value"] or "").props("outlined dense autofocus autocomplete=off")

        async def do(wanted: str | None) -> bool:
            good = await attempt(lambda: change({row["key"]: wanted}), f"{row['key']} is changed")
            if good:
                await again()
            return good

        async def back() -> None:
            if await do(None):
                made.close()

        if row["source"] == own:
            plain("Back to the default", back)
        buttons(made, "Save", lambda: do(value.value or ""))
