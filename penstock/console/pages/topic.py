"""Topic: what it holds and how it does, in tabs: messages, partitions, consumers, settings."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import overview, topics
from penstock.console.page import Here, Page
from penstock.console.pages.settings_table import settings_table
from penstock.console.pages.topic_messages import MessagesTab
from penstock.console.widgets import numbers
from penstock.console.widgets.chart import TimeChart
from penstock.console.widgets.dialogs import attempt, buttons, confirm_typed, dialog
from penstock.console.widgets.pieces import Tile, panel, pill, plain, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed

REFRESH_SECONDS = 5.0
TABS = {
    "messages": "Messages",
    "activity": "Activity",
    "partitions": "Partitions",
    "consumers": "Consumers",
    "settings": "Settings",
}

AFTERWARDS = {
    "delete": "then deleted",
    "compact": "the newest of each",
    "compact,delete": "newest of each key, then deleted",
}


async def build(here: Here) -> None:
    name = here.arguments["name"]
    topic = await here.viewer.ask(topics.topic, name)
    with title_row(name):
        if topic["internal"]:
            pill("internal")
        if here.viewer.may("editor"):
            _actions(here, name, topic)
    tiles = _Tiles()
    tiles.show(topic)
    chosen = here.arguments.get("tab", "messages")
    with ui.tabs(value=chosen if chosen in TABS else "messages").props("align=left no-caps inline-label") as tabs:
        for key, label in TABS.items():
            ui.tab(key, label)
    with ui.tab_panels(tabs, value=tabs.value, animated=False).style("width: 100%"):
        with ui.tab_panel("messages"):
            await MessagesTab(here, topic).build()
        with ui.tab_panel("activity"), ui.element("div").classes("pk-grid"):
            with panel("Records written", sub="per second, the last hour"):
                records = TimeChart(["in"], unit="rec/s", label="Records written per second")
            with panel("Bytes written", sub="per second, all replicas"):
                written = TimeChart(["in"], unit="B/s", label="Bytes written per second")
        with ui.tab_panel("partitions"):
            partitions = await _partitions(topic)
        with ui.tab_panel("consumers"):
            consumers = await _consumers(here, topic)
        with ui.tab_panel("settings"):
            may_change = here.viewer.may("editor")
            await settings_table(
                lambda: here.viewer.ask(topics.topic_configs, name),
                (lambda changes: here.viewer.ask(topics.configure, name, changes)) if may_change else None,
                "topic",
            )

    async def refresh() -> None:
        now = await here.viewer.ask(topics.topic, name)
        tiles.show(now)
        if tabs.value == "activity":
            names = [f"topic:{name}:in", f"topic:{name}:in_bytes"]
            figures = await here.viewer.ask(overview.figures, names, 3600)
            records.show({"in": figures[names[0]]})
            written.show({"in": figures[names[1]]})
        if tabs.value == "partitions":
            partitions.change_fetch(fixed(now["partitions"], name="partition"))
            await partitions.refresh()
        if tabs.value == "consumers":
            consumers.change_fetch(fixed(now["consumers"], name="group"))
            await consumers.refresh()

    tabs.on_value_change(refresh)
    await refresh()
    here.every(REFRESH_SECONDS, refresh)


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._records = Tile("Records")
            self._rate = Tile("Written")
            self._size = Tile("On disk")
            self._partitions = Tile("Partitions")
            self._kept = Tile("Kept")

    def show(self, topic: dict[str, Any]) -> None:
        rows = topic["partitions"]
        held = [row["records"] for row in rows if row["records"] is not None]
        self._records.show(numbers.count(sum(held)), hint="in all partitions")
        self._rate.show(
            numbers.count(topic["records_per_second"]), "rec/s", hint=numbers.byte_rate_text(topic["bytes_per_second"])
        )
        self._size.show(*numbers.size(topic["bytes"]), hint="all replicas")
        short = sum(len(row["isr"]) < len(row["replicas"]) for row in rows)
        offline = sum(row["leader"] is None for row in rows)
        tone = "problem" if offline else "warning" if short else ""
        hint = (
            f"{offline} without a leader"
            if offline
            else f"{short} under-replicated"
            if short
            else "all replicas in sync"
        )
        self._partitions.show(str(len(rows)), tone=tone, hint=hint)
        configs = topic["configs"]
        kept = numbers.duration(float(configs["retention.ms"])) if configs.get("retention.ms") else numbers.NOTHING
        policy = configs.get("cleanup.policy", "")
        self._kept.show("by key" if policy == "compact" else kept, hint=AFTERWARDS.get(policy, policy))


async def _partitions(topic: dict[str, Any]) -> ServerTable:
    with panel(flush=True):
        table = ServerTable(
            [
                Column("partition", "Partition", right=True),
                Column(
                    "leader",
                    "Leader",
                    text=lambda row: "none" if row["leader"] is None else str(row["leader"]),
                    right=True,
                ),
                Column("replicas", "Replicas", text=lambda row: ", ".join(map(str, row["replicas"])), wide=True),
                Column(
                    "isr",
                    "In sync",
                    text=lambda row: ", ".join(map(str, row["isr"])),
                    tone=lambda row: "ok" if len(row["isr"]) == len(row["replicas"]) else "warning",
                ),
                Column("start", "First offset", text=lambda row: numbers.count(row["start"]), right=True, wide=True),
                Column("end", "Next offset", text=lambda row: numbers.count(row["end"]), right=True),
                Column("records", "Records", text=lambda row: numbers.count(row["records"]), right=True),
            ],
            fixed(topic["partitions"], name="partition"),
            key="partition",
            sort="partition",
        )
    await table.refresh()
    return table


async def _consumers(here: Here, topic: dict[str, Any]) -> ServerTable:
    with panel(flush=True):
        table = ServerTable(
            [
                Column("group", "Group", link=lambda row: here.link("/group", name=row["group"])),
                Column("state", "State", tone=lambda row: "ok" if row["state"] == "Stable" else ""),
                Column("lag", "Lag", text=lambda row: f"{numbers.count(row['lag'])} records", right=True),
                Column(
                    "records_per_second",
                    "Rate",
                    text=lambda row: numbers.rate_text(row["records_per_second"]),
                    right=True,
                ),
            ],
            fixed(topic["consumers"], name="group"),
            key="group",
            sort="lag",
            descending=True,
            empty=("group_work", "Nobody consumes this topic", "A group that commits offsets of it appears here."),
        )
    await table.refresh()
    return table


def _actions(here: Here, name: str, topic: dict[str, Any]) -> None:
    viewer = here.viewer

    async def emptied() -> bool:
        return await attempt(lambda: viewer.ask(topics.empty, name), f"{name} is empty now")

    async def deleted() -> bool:
        good = await attempt(lambda: viewer.ask(topics.delete_topic, name), f"{name} is deleted")
        if good:
            here.go("/topics")
        return good

    with plain("Manage", lambda: None, icon="tune"), ui.menu():
        ui.menu_item("Add partitions…", lambda: _grow_dialog(here, name, len(topic["partitions"])))
        ui.menu_item(
            "Empty…",
            lambda: confirm_typed(
                f"Empty {name}?", "All records are dropped; the topic stays.", name, "Empty", emptied
            ),
        )
        ui.menu_item(
            "Delete…",
            lambda: confirm_typed(f"Delete {name}?", "The topic goes with all its records.", name, "Delete", deleted),
        )


def _grow_dialog(here: Here, name: str, current: int) -> None:
    with dialog(
        f"Add partitions to {name}", "Records with keys may land elsewhere from then on; partitions stay."
    ) as made:
        total = ui.number("Partitions in all", value=current + 1, min=current + 1, precision=0).props("outlined dense")

        async def grow() -> bool:
            wanted = int(total.value or 0)
            return await attempt(lambda: here.viewer.ask(topics.grow, name, wanted), f"{name} has {wanted} partitions")

        buttons(made, "Add", grow)


PAGE = Page("/topics/{name}", "{name}", build)
