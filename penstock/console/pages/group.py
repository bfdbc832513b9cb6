"""Group: how far behind, who owns what, why it rebalanced; in tabs, with its reset."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import groups, overview
from penstock.console.page import Here, Page, segment
from penstock.console.pages.group_journal import show_journal
from penstock.console.pages.group_members import AssignmentPicture
from penstock.console.pages.group_reset import reset_dialog
from penstock.console.widgets import numbers
from penstock.console.widgets.chart import TimeChart
from penstock.console.widgets.dialogs import attempt, confirm_typed
from penstock.console.widgets.pieces import STATE_MEANINGS, Tile, panel, pill, plain, state_pill, state_tone, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed

REFRESH_SECONDS = 5.0
SPAN_SECONDS = 3600
TABS = {"lag": "Lag", "members": "Members", "rebalances": "Rebalances"}
LATE_SECONDS = 300


async def build(here: Here) -> None:
    name = here.arguments.get("name", "")
    group = await here.viewer.ask(groups.group, name)
    with title_row(name):
        state = state_pill(group["state"])
        with state:
            ui.tooltip(STATE_MEANINGS.get(group["state"].lower(), ""))
        pill(f"{group['type']} protocol")
        if here.viewer.may("editor"):
            _actions(here, name)
    tiles = _Tiles()
    tiles.show(group)
    chosen = here.arguments.get("tab", "lag")
    with ui.tabs(value=chosen if chosen in TABS else "lag").props("align=left no-caps inline-label") as tabs:
        for key, label in TABS.items():
            ui.tab(key, label)
    with ui.tab_panels(tabs, value=tabs.value, animated=False).style("width: 100%"):
        with ui.tab_panel("lag"):
            with ui.element("div").classes("pk-grid"):
                with panel("Lag", sub="records not yet read, the last hour"):
                    lag = TimeChart(["lag"], unit="records", label="Records that the group has not yet read")
                with panel("Behind by", sub="age of the oldest unread record"):
                    age = TimeChart(["seconds"], unit="s", label="Age of the oldest record not yet read, in seconds")
            offsets = await _offsets(here, group)
        with ui.tab_panel("members"):
            picture = AssignmentPicture(here)
        with ui.tab_panel("rebalances"), panel("Why it rebalanced", sub="newest first"):
            journal = ui.element("div").style("width: 100%")

    async def refresh() -> None:
        now = await here.viewer.ask(groups.group, name)
        if state.is_deleted:
            return
        state.text = now["state"]
        state.classes(remove="pk-ok pk-warning pk-problem pk-accent", add=f"pk-{state_tone(now['state'])}")
        tiles.show(now)
        if tabs.value == "lag":
            names = [f"group:{name}:lag", f"group:{name}:lag_seconds"]
            figures = await here.viewer.ask(overview.figures, names, SPAN_SECONDS)
            lag.show({"lag": figures[names[0]]})
            age.show({"seconds": figures[names[1]]})
            offsets.change_fetch(fixed(_named(now["offsets"]), name="place"))
            await offsets.refresh()
        if tabs.value == "members":
            picture.show(now)
        if tabs.value == "rebalances":
            show_journal(here, journal, await here.viewer.ask(groups.rebalances, name))

    tabs.on_value_change(refresh)
    await refresh()
    here.every(REFRESH_SECONDS, refresh)


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._lag = Tile("Lag")
            self._age = Tile("Behind by")
            self._rate = Tile("Consumes")
            self._members = Tile("Members")
            self._partitions = Tile("Partitions")

    def show(self, group: dict[str, Any]) -> None:
        rows = group["offsets"]
        self._lag.show(numbers.count(group["lag"]), "records", hint="not yet read")
        seconds = group["lag_seconds"]
        tone = "warning" if seconds is not None and seconds > LATE_SECONDS else ""
        self._age.show(numbers.seconds(seconds), tone=tone, hint="oldest unread record")
        self._rate.show(numbers.count(group["records_per_second"]), "rec/s", hint="by its commits")
        self._members.show(str(len(group["members"])), hint="consumers at work" if group["members"] else "nobody reads")
        orphans = sum(row["member"] is None for row in rows)
        lonely = bool(orphans and group["members"])
        hint = f"{orphans} of them nobody reads" if lonely else f"of {numbers.plural(len(group['topics']), 'topic')}"
        self._partitions.show(str(len(rows)), tone="warning" if lonely else "", hint=hint)


def _named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row's identity for a table: names alone do not do."""
    return [{**row, "place": f"{row['topic']}-{row['partition']}"} for row in rows]


async def _offsets(here: Here, group: dict[str, Any]) -> ServerTable:
    with panel("Offsets", sub="where it stands in each partition", flush=True):
        table = ServerTable(
            [
                Column("topic", "Topic", link=lambda row: here.link(f"/topics/{segment(row['topic'])}")),
                Column("partition", "Partition", right=True),
                Column("offset", "Committed", text=lambda row: numbers.count(row["offset"]), right=True, wide=True),
                Column("end", "End", text=lambda row: numbers.count(row["end"]), right=True, wide=True),
                Column("lag", "Lag", text=lambda row: numbers.rate_text(row["lag"], "records"), right=True),
                Column("lag_seconds", "Behind by", text=lambda row: numbers.seconds(row["lag_seconds"]), right=True),
                Column("client", "Read by", text=lambda row: row["client"] or "nobody", wide=True),
            ],
            fixed(_named(group["offsets"]), name="place"),
            key="place",
            sort="lag",
            descending=True,
            empty=("bookmark_border", "No offsets yet", "They appear with the group's first commit."),
        )
    await table.refresh()
    return table


def _actions(here: Here, name: str) -> None:
    async def deleted() -> bool:
        good = await attempt(lambda: here.viewer.ask(groups.delete, name), f"{name} is deleted")
        if good:
            here.go("/groups")
        return good

    async def reset() -> None:
        await reset_dialog(here, name)

    plain("Reset offsets", reset, icon="restart_alt")
    with plain("Manage", lambda: None, icon="tune"), ui.menu():
        ui.menu_item(
            "Delete…",
            lambda: confirm_typed(
                f"Delete {name}?",
                "The group goes with all its offsets; a consumer that comes back starts as its auto.offset.reset says.",
                name,
                "Delete",
                deleted,
            ),
        )


PAGE = Page("/group", "{name}", build, under="/groups")
