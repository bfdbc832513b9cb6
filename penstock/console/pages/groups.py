"""Groups: all of them by the page, with how far behind each is."""

from __future__ import annotations

from nicegui import ui

from penstock.console.data import groups
from penstock.console.data.paging import Page as Rows
from penstock.console.data.paging import Query
from penstock.console.page import Here, Page
from penstock.console.widgets import numbers
from penstock.console.widgets.pieces import panel, state_tone, title_row
from penstock.console.widgets.table import Column, ServerTable

REFRESH_SECONDS = 5.0


async def build(here: Here) -> None:
    internal = {"shown": False}

    async def fetch(query: Query) -> Rows:
        return await here.viewer.ask(groups.group_page, query, internal=internal["shown"])

    async def show_internal(event: object) -> None:
        internal["shown"] = bool(getattr(event, "value", False))
        await table.refresh()

    with title_row("Groups", "consumers that share their work"):
        ui.checkbox("Internal groups", on_change=show_internal)
    with panel(flush=True):
        table = ServerTable(
            [
                Column("name", "Name", link=lambda row: here.link("/group", name=row["name"])),
                Column("state", "State", tone=lambda row: state_tone(row["state"])),
                Column("type", "Protocol", wide=True),
                Column("topics", "Topics", right=True, wide=True),
                Column("lag", "Lag", text=lambda row: numbers.rate_text(row["lag"], "records"), right=True),
                Column("lag_seconds", "Behind by", text=lambda row: numbers.seconds(row["lag_seconds"]), right=True),
                Column(
                    "records_per_second",
                    "Consumes",
                    text=lambda row: numbers.rate_text(row["records_per_second"]),
                    right=True,
                    wide=True,
                ),
            ],
            fetch,
            sort="lag",
            descending=True,
            search="Search groups",
            empty=("group_work", "No groups", "A consumer with a group.id appears here: `penstock consume T -g NAME`."),
        )
    await table.refresh()
    here.every(REFRESH_SECONDS, table.refresh)


PAGE = Page("/groups", "Groups", build, label="Groups", icon="group_work")
