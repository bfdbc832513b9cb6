"""The reset wizard: say where to, see what would happen in each partition, confirm with the group's name."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data import groups
from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, described, dialog
from penstock.console.widgets.pieces import danger, plain, primary, text
from penstock.console.widgets.table import Column, ServerTable, fixed
from penstock.operate.errors import UserError

TARGETS = {
    "earliest": "The beginning: read everything again",
    "latest": "The end: skip what is there",
    "time": "A time",
    "offset": "An offset",
    "shift": "So many records back or forth",
}
VALUES = {
    "time": ("When", "2h for two hours ago, or 2026-11-01T12:00"),
    "offset": ("Offset", "1500"),
    "shift": ("Records", "-100 to read the last hundred again"),
}


async def reset_dialog(here: Here, name: str) -> None:
    group = await here.viewer.ask(groups.group, name)
    with dialog(
        f"Reset offsets of {name}", "Choose where it shall go on; nothing is changed before you confirm."
    ) as made:
        made.props("persistent")
        _Wizard(here, name, group, made).build()


class _Wizard:
    def __init__(self, here: Here, name: str, group: dict[str, Any], made: ui.dialog) -> None:
        self._here, self._name, self._group, self._made = here, name, group, made

    def build(self) -> None:
        if self._group["members"]:
            with ui.element("div").classes("pk-note pk-warning").props("role=note"):
                ui.label(
                    f"{numbers.plural(len(self._group['members']), 'consumer')} of the group at work: "
                    "you may look at the plan, but offsets move only while nobody reads."
                )
        topics = list(self._group["topics"])
        self._topics = (
            ui.select(topics, value=topics, multiple=True, label="Topics")
            .props("outlined dense use-chips")
            .classes("pk-field")
        )
        self._to = ui.select(TARGETS, value="earliest", label="Go on from").props("outlined dense")
        self._value = ui.input("When").props("outlined dense autocomplete=off")
        self._value.bind_visibility_from(self._to, "value", lambda value: value in VALUES)
        self._to.on_value_change(self._explain)
        self._plan = ui.element("div").style("width: 100%")
        with ui.element("div").classes("pk-row").style("justify-content: flex-end"):
            plain("Cancel", self._made.close)
            primary("Preview", self._preview, icon="visibility")

    def _explain(self, event: Any) -> None:
        self._plan.clear()
        if event.value in VALUES:
            label, example = VALUES[event.value]
            self._value.props["label"] = label
            self._value.props["hint"] = f"for example {example}"
            self._value.update()

    def _asked(self) -> tuple[str | None, int | None, list[str] | None]:
        kind, value = str(self._to.value), (self._value.value or "").strip()
        topics = list(self._topics.value or [])
        if kind == "shift":
            try:
                return None, int(value), topics
            except ValueError:
                raise UserError(f"{value!r} is no number of records", "for example -100") from None
        return (value if kind in VALUES else kind), None, topics

    async def _preview(self) -> None:
        self._plan.clear()
        with self._plan:
            try:
                asked = self._asked()
                rows = await self._here.viewer.ask(groups.plan, self._name, *asked)
            except (UserError, ClientError) as error:
                with ui.element("div").classes("pk-note pk-problem").props("role=alert"):
                    ui.label(described(error))
                return
            await self._show(rows, asked)

    async def _show(self, rows: list[dict[str, Any]], asked: tuple[str | None, int | None, list[str] | None]) -> None:
        again = sum(-row["change"] for row in rows if (row["change"] or 0) < 0)
        skipped = sum(row["change"] for row in rows if (row["change"] or 0) > 0)
        text("h2", "What would happen")
        ui.label(
            f"{numbers.plural(again, 'record')} would be read again, {numbers.plural(skipped, 'record')} skipped, "
            f"in {numbers.plural(len(rows), 'partition')}."
        )
        named = [{**row, "place": f"{row['topic']}-{row['partition']}"} for row in rows]
        with ui.element("div").classes("pk-plan"):
            table = ServerTable(
                [
                    Column("place", "Partition"),
                    Column("from", "Now", text=lambda row: numbers.count(row["from"]), right=True),
                    Column("to", "Then", text=lambda row: numbers.count(row["to"]), right=True),
                    Column("change", "Change", text=lambda row: numbers.signed(row["change"]), right=True),
                ],
                fixed(named, name="place"),
                key="place",
                sort="place",
            )
            await table.refresh()
        if self._group["members"]:
            ui.label("Stop its consumers, then open this again.").classes("pk-sub")
            return
        typed = ui.input(f"Type {self._name} to confirm").props("outlined dense autocomplete=off")
        button = danger("Reset offsets", lambda: self._reset(asked))
        button.set_enabled(False)
        typed.on_value_change(lambda event: button.set_enabled(event.value == self._name))

    async def _reset(self, asked: tuple[str | None, int | None, list[str] | None]) -> None:
        if await attempt(lambda: self._here.viewer.ask(groups.reset, self._name, *asked), f"{self._name} is reset"):
            self._made.close()
