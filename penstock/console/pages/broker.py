"""Broker: its load over time, its log folders, its settings."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import brokers, overview
from penstock.console.page import Here, Page
from penstock.console.pages.settings_table import settings_table
from penstock.console.widgets import numbers
from penstock.console.widgets.chart import TimeChart
from penstock.console.widgets.pieces import Tile, panel, pill, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed
from penstock.operate.errors import not_found

REFRESH_SECONDS = 5.0
SPAN_SECONDS = 3600


async def build(here: Here) -> None:
    given = here.arguments["node"]
    if not given.isdigit():
        raise not_found("broker", given)
    node = int(given)
    broker = await here.viewer.ask(brokers.broker, node)
    with title_row(f"Broker {node}", broker["address"]):
        if broker["controller"]:
            pill("controller", "accent")
        if broker["rack"]:
            pill(f"rack {broker['rack']}")
    tiles = _Tiles()
    tiles.show(broker)
    with ui.tabs(value="load").props("align=left no-caps inline-label") as tabs:
        ui.tab("load", "Load")
        ui.tab("folders", "Log folders")
        ui.tab("settings", "Settings")
    with ui.tab_panels(tabs, value="load", animated=False).style("width: 100%"):
        with ui.tab_panel("load"), ui.element("div").classes("pk-grid"):
            with panel("Takes in", sub="records per second, as leader"):
                records = TimeChart(["in"], unit="rec/s", label="Records per second that the broker takes in as leader")
            with panel("Writes", sub="bytes per second, also as follower"):
                written = TimeChart(["in"], unit="B/s", label="Bytes per second that the broker writes")
        with ui.tab_panel("folders"):
            folders = _folders(broker)
        with ui.tab_panel("settings"):
            may_change = here.viewer.may("admin")
            await settings_table(
                lambda: here.viewer.ask(brokers.broker_configs, node),
                (lambda changes: here.viewer.ask(brokers.configure, node, changes)) if may_change else None,
                "broker",
            )

    async def refresh() -> None:
        now = await here.viewer.ask(brokers.broker, node)
        tiles.show(now)
        if tabs.value == "load":
            names = [f"broker:{node}:in", f"broker:{node}:in_bytes"]
            figures = await here.viewer.ask(overview.figures, names, SPAN_SECONDS)
            records.show({"in": figures[names[0]]})
            written.show({"in": figures[names[1]]})
        if tabs.value == "folders":
            folders.change_fetch(fixed(now["folders"], name="folder"))
            await folders.refresh()

    tabs.on_value_change(refresh)
    await refresh()
    here.every(REFRESH_SECONDS, refresh)


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._leads = Tile("Leads")
            self._replicas = Tile("Holds")
            self._rate = Tile("Takes in")
            self._disk = Tile("On disk")
            self._free = Tile("Free")

    def show(self, broker: dict[str, Any]) -> None:
        self._leads.show(numbers.count(broker["leads"]), "partitions")
        self._replicas.show(numbers.count(broker["replicas"]), "replicas")
        hint = f"writes {numbers.byte_rate_text(broker['bytes_per_second'])}"
        self._rate.show(numbers.count(broker["records_per_second"]), "rec/s", hint=hint)
        broken = sum(bool(folder["error_code"]) for folder in broker["folders"])
        hint = f"{broken} off line" if broken else f"in {numbers.plural(len(broker['folders']), 'folder')}"
        self._disk.show(*numbers.size(broker["bytes"]), tone="problem" if broken else "", hint=hint)
        total = sum(folder["total_bytes"] or 0 for folder in broker["folders"])
        share = broker["free_bytes"] / total if total and broker["free_bytes"] is not None else None
        tone = "warning" if share is not None and share < 0.1 else ""
        hint = f"{share:.0%} of the disk" if share is not None else "this cluster does not tell"
        self._free.show(*numbers.size(broker["free_bytes"]), tone=tone, hint=hint)


def _folders(broker: dict[str, Any]) -> ServerTable:
    with panel(flush=True):
        return ServerTable(
            [
                Column("folder", "Folder"),
                Column(
                    "error_code",
                    "State",
                    text=lambda row: "off line" if row["error_code"] else "works",
                    tone=lambda row: "problem" if row["error_code"] else "ok",
                ),
                Column("replicas", "Replicas", right=True),
                Column("bytes", "Holds", text=lambda row: numbers.size_text(row["bytes"]), right=True),
                Column("free_bytes", "Free", text=lambda row: numbers.size_text(row["free_bytes"]), right=True),
                Column(
                    "total_bytes",
                    "Disk",
                    text=lambda row: numbers.size_text(row["total_bytes"]),
                    right=True,
                    wide=True,
                ),
            ],
            fixed(broker["folders"], name="folder"),
            key="folder",
            sort="folder",
            classes="pk-wrap",
        )


PAGE = Page("/brokers/{node}", "Broker {node}", build)
