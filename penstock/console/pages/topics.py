"""Topics: all of them by the page, and a new one."""

from __future__ import annotations

from nicegui import ui

from penstock.console.data import topics
from penstock.console.data.paging import Page as Rows
from penstock.console.data.paging import Query
from penstock.console.page import Here, Page, segment
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, buttons, dialog
from penstock.console.widgets.pieces import panel, primary, title_row
from penstock.console.widgets.table import Column, ServerTable

REFRESH_SECONDS = 5.0


async def build(here: Here) -> None:
    internal = {"shown": False}

    async def fetch(query: Query) -> Rows:
        return await here.viewer.ask(topics.topic_page, query, internal=internal["shown"])

    async def show_internal(event: object) -> None:
        internal["shown"] = bool(getattr(event, "value", False))
        await table.refresh()

    with title_row("Topics"):
        ui.checkbox("Internal topics", on_change=show_internal)
        if here.viewer.may("editor"):
            primary("New topic", lambda: create_dialog(here), icon="add")
    with panel(flush=True):
        table = ServerTable(
            [
                Column("name", "Name", link=lambda row: here.link(f"/topics/{segment(row['name'])}")),
                Column("partitions", "Partitions", right=True),
                Column("replicas", "Replicas", right=True, wide=True),
                Column(
                    "under_replicated",
                    "Health",
                    text=lambda row: _health(row["offline"], row["under_replicated"]),
                    tone=lambda row: "problem" if row["offline"] else "warning" if row["under_replicated"] else "ok",
                ),
                Column("records", "Records", text=lambda row: numbers.count(row["records"]), right=True),
                Column("bytes", "Size", text=lambda row: numbers.size_text(row["bytes"]), right=True, wide=True),
                Column(
                    "records_per_second",
                    "Rate",
                    text=lambda row: numbers.rate_text(row["records_per_second"]),
                    right=True,
                    wide=True,
                ),
            ],
            fetch,
            sort="name",
            search="Search topics",
            empty=("topic", "No topics", "“New topic” makes one, or `penstock topic create NAME`."),
        )
    await table.refresh()
    here.every(REFRESH_SECONDS, table.refresh)


def _health(offline: int, under_replicated: int) -> str:
    if offline:
        return f"{offline} off line"
    return f"{under_replicated} under-replicated" if under_replicated else "in sync"


def create_dialog(here: Here) -> None:
    with dialog("New topic", "What is left empty is decided by the brokers.") as made:
        name = ui.input("Name").props("outlined dense autofocus autocomplete=off")
        partitions = ui.number("Partitions", min=1, max=10_000, precision=0).props("outlined dense")
        replicas = ui.number("Replicas", min=1, max=100, precision=0).props("outlined dense")
        retention = ui.select(
            {
                "": "as the brokers say",
                "3600000": "1 hour",
                "86400000": "1 day",
                "604800000": "7 days",
                "-1": "for ever",
            },
            value="",
            label="Keep records",
        ).props("outlined dense")
        compact = ui.checkbox("Keep only the newest record of each key (compaction)")

        async def create() -> bool:
            settings = {"retention.ms": str(retention.value)} if retention.value else {}
            if compact.value:
                settings["cleanup.policy"] = "compact"
            wanted = (name.value or "").strip()
            good = await attempt(
                lambda: here.viewer.ask(
                    topics.create_topic, wanted, int(partitions.value or -1), int(replicas.value or -1), settings
                ),
                f"{wanted} is there",
            )
            if good:
                here.go(f"/topics/{segment(wanted)}")
            return good

        buttons(made, "Create", create)


PAGE = Page("/topics", "Topics", build, label="Topics", icon="topic")
