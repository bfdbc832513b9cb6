"""Pipelines: all that are applied, with state, rows per second and lag; a new one is written here."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import pipelines
from penstock.console.data.paging import Page as Rows
from penstock.console.data.paging import Query, page_of
from penstock.console.page import Here, Page, segment
from penstock.console.pages.pipeline_editor import EXAMPLE, SpecEditor
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import dialog
from penstock.console.widgets.pieces import panel, plain, primary, state_tone, title_row
from penstock.console.widgets.table import Column, ServerTable

REFRESH_SECONDS = 5.0


async def build(here: Here) -> None:
    async def fetch(query: Query) -> Rows:
        return page_of(await here.viewer.ask(pipelines.summaries), query)

    with title_row("Pipelines", "what reads, changes and writes records by itself"):
        if here.viewer.may("editor"):
            primary("New pipeline", lambda: _new(here), icon="add")
    with panel(flush=True):
        table = ServerTable(
            [
                Column("name", "Name", link=lambda row: here.link(f"/pipelines/{segment(row['name'])}")),
                Column("state", "State", tone=lambda row: state_tone(row["state"])),
                Column(
                    "rows_per_second",
                    "Reads",
                    text=lambda row: numbers.rate_text(row["rows_per_second"], "rows/s"),
                    right=True,
                ),
                Column("lag", "Lag", text=lambda row: numbers.rate_text(row["lag"], "records"), right=True),
                Column("batch_ms", "Batch", text=lambda row: _batch(row), right=True, wide=True),
                Column("queries", "Queries", right=True, wide=True),
                Column("error", "Error", text=lambda row: (row["error"] or "")[:120], wide=True),
            ],
            fetch,
            sort="name",
            search="Search pipelines",
            empty=(
                "account_tree",
                "No pipelines applied",
                "Write one with New pipeline, or `penstock pipeline apply FILE`.",
            ),
        )
    await table.refresh()
    here.every(REFRESH_SECONDS, table.refresh)


def _batch(row: Any) -> str:
    return numbers.duration(row["batch_ms"]) if row["batch_ms"] is not None else numbers.NOTHING


def _new(here: Here) -> None:
    with dialog("New pipeline", "In YAML: where rows come from, what is made of them, where they go.") as made:
        made.props("persistent")

        def applied(name: str) -> None:
            made.close()
            here.go(f"/pipelines/{segment(name)}")

        SpecEditor(here, EXAMPLE, 0, applied)
        with ui.element("div").classes("pk-row").style("justify-content: flex-end"):
            plain("Close", made.close)


PAGE = Page("/pipelines", "Pipelines", build, label="Pipelines", icon="account_tree")
