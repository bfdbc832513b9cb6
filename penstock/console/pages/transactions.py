"""Transactions: which are open, and those on partitions that nobody will end."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import transactions
from penstock.console.data.paging import Page as Rows
from penstock.console.data.paging import Query
from penstock.console.page import Here, Page
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, confirm_typed
from penstock.console.widgets.pieces import empty_state, panel, plain, state_tone, text, title_row
from penstock.console.widgets.table import Column, ServerTable

REFRESH_SECONDS = 5.0
HANGING_SECONDS = 900


async def build(here: Here) -> None:
    only_open = {"chosen": True}

    async def fetch(query: Query) -> Rows:
        return await here.viewer.ask(transactions.transaction_page, query, only_open=only_open["chosen"])

    async def choose(event: object) -> None:
        only_open["chosen"] = bool(getattr(event, "value", False))
        await table.refresh()

    with title_row("Transactions", "an open one hides what comes after it from read-committed consumers"):
        ui.checkbox("Only open ones", value=True, on_change=choose)
    with panel(flush=True):
        table = ServerTable(
            [
                Column("id", "Transactional id", link=lambda row: here.link("/transaction", id=row["id"])),
                Column("state", "State", tone=lambda row: state_tone(row["state"])),
                Column(
                    "age_seconds",
                    "Open for",
                    text=lambda row: numbers.seconds(row["age_seconds"]),
                    right=True,
                    sortable=False,
                ),
                Column(
                    "partitions",
                    "Has written to",
                    text=lambda row: ", ".join(row["partitions"][:3]) + (" …" if len(row["partitions"]) > 3 else ""),
                    sortable=False,
                    wide=True,
                ),
                Column("producer_id", "Producer", right=True, wide=True),
            ],
            fetch,
            key="id",
            sort="id",
            search="Search transactional ids",
            empty=("task_alt", "No open transactions", "Nothing is held back."),
        )
    await table.refresh()
    with panel("Left on partitions", sub="open there, and no coordinator will end them"):
        found = ui.element("div").style("width: 100%")
        with found:
            ui.label(
                "Each partition has to be asked, which takes a while on a large cluster. What is open for more than"
                " 15 minutes is found."
            ).classes("pk-sub")
        with ui.element("div").classes("pk-row"):
            plain("Look for them", lambda: _look(here, found), icon="search")
    here.every(REFRESH_SECONDS, table.refresh)


async def _look(here: Here, box: ui.element) -> None:
    rows: list[dict[str, Any]] = []

    async def work() -> None:
        rows.extend(await here.viewer.ask(transactions.hanging, HANGING_SECONDS))

    box.clear()
    with box:
        if not await attempt(work):
            return
        if not rows:
            empty_state("task_alt", "Nothing hangs", "Every open transaction has a coordinator that will end it.")
            return
        with ui.element("ul").classes("pk-list"):
            for row in rows:
                with ui.element("li"):
                    text("span", f"{row['topic']}-{row['partition']}", "pk-grow")
                    ui.label(f"producer {row['producer_id']}").classes("pk-sub pk-num")
                    ui.label(f"open for {numbers.seconds(row['age_seconds'])}").classes("pk-num")
                    if here.viewer.may("admin"):
                        plain("End…", lambda row=row: _end_hanging(here, row, box))


def _end_hanging(here: Here, row: dict[str, Any], box: ui.element) -> None:
    place = f"{row['topic']}-{row['partition']}"

    async def work() -> bool:
        good = await attempt(
            lambda: here.viewer.ask(
                transactions.abort_hanging, row["topic"], int(row["partition"]), int(row["producer_id"])
            ),
            f"what hung on {place} is aborted",
        )
        if good:
            await _look(here, box)
        return good

    confirm_typed(
        f"Abort what producer {row['producer_id']} left on {place}?",
        "A marker is written to the partition: its records are gone for read-committed consumers.",
        place,
        "Abort",
        work,
    )


PAGE = Page("/transactions", "Transactions", build, label="Transactions", icon="receipt_long")
