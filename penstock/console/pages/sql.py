"""SQL: a SELECT over topics, its rows as a table and a simple chart, saved for the next time."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data import overview, sql
from penstock.console.page import Here, Page
from penstock.console.theme import CHART_COLOURS
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, buttons, described, dialog
from penstock.console.widgets.pieces import icon_button, panel, plain, primary, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed
from penstock.operate.errors import UserError

EXAMPLE = (
    "SELECT _partition, count(*) AS records, max(_timestamp) AS newest\nFROM topic('{topic}')\nGROUP BY _partition"
)
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
MOST_BARS = 60


async def build(here: Here) -> None:
    with title_row("SQL", "one SELECT over topics, answered by Spark"):
        pass
    await _Workbench(here).build()


class _Workbench:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._name = uuid.uuid4().hex  # so that a query of another page is not cancelled

    async def build(self) -> None:
        busiest = (await self._here.viewer.ask(overview.overview))["busiest_topics"]
        topic = self._here.arguments.get("topic") or (busiest[0]["name"] if busiest else "orders")
        with panel():
            self._text = ui.textarea(value=EXAMPLE.format(topic=topic.replace("'", "''"))).classes("pk-editor pk-short")
            self._text.props('outlined spellcheck=false aria-label="Query"').style("width: 100%")
            with ui.element("div").classes("pk-row"):
                self._run = primary("Run", self._ask, icon="play_arrow")
                self._stop = plain("Cancel", self._cancel, icon="stop")
                self._stop.set_visibility(False)
                self._since = ui.input("Since, such as 1 hour").props("outlined dense").style("width: 180px")
                self._limit = ui.select([100, 500, 1000, 5000], value=500, label="Rows at most")
                self._limit.props("outlined dense").style("width: 130px")
                if self._here.viewer.may("editor"):
                    plain("Save…", self._save, icon="bookmark_add")
            self._note = ui.element("div").classes("pk-note").props("role=status")
            with self._note:
                hint = "Columns are those of the records, and _key, _partition, _offset, _timestamp and _headers."
                self._words = ui.label(hint)
            self._saved = ui.element("div").classes("pk-row")
        self._result = ui.element("div").style("width: 100%; display: flex; flex-direction: column; gap: 16px")
        await self._list_saved()

    def _say(self, words: str, tone: str = "") -> None:
        self._words.text = words
        self._note.classes(remove="pk-ok pk-problem pk-warning", add=f"pk-{tone}" if tone else "")

    async def _ask(self) -> None:
        self._result.clear()
        self._run.set_enabled(False)
        self._stop.set_visibility(True)
        self._say("Running; the first query waits until Spark has started …")
        began = time.monotonic()
        try:
            found = await self._here.viewer.ask(
                sql.query,
                str(self._text.value or ""),
                limit=int(self._limit.value),
                since=(self._since.value or "").strip() or None,
                name=self._name,
            )
        except (UserError, ClientError) as error:
            self._say(described(error), "problem")
            return
        finally:
            self._run.set_enabled(True)
            self._stop.set_visibility(False)
        more = f"; only the first {len(found['rows'])} are shown" if found["more"] else ""
        self._say(f"{numbers.plural(len(found['rows']), 'row')} in {time.monotonic() - began:.1f} s{more}.", "ok")
        with self._result:
            await self._show(found)

    async def _cancel(self) -> None:
        await attempt(lambda: self._here.viewer.ask(sql.cancel, self._name))

    async def _show(self, found: dict[str, Any]) -> None:
        _chart(found)
        columns = [
            Column(f"c{index}", column["name"], right=_is_number(column))
            for index, column in enumerate(found["columns"])
        ]
        rows = [
            {"row": number, **{f"c{index}": _cell(value) for index, value in enumerate(row)}}
            for number, row in enumerate(found["rows"])
        ]
        with panel("Rows", flush=True):
            table = ServerTable(
                columns, fixed(rows, name="row"), key="row", empty=("inbox", "No rows", "Nothing matches.")
            )
        await table.refresh()

    # --- saved queries

    async def _list_saved(self) -> None:
        found = await self._here.viewer.ask(sql.saved)
        self._saved.clear()
        with self._saved:
            for row in found:
                plain(row["name"], lambda row=row: self._text.set_value(row["text"]), icon="bookmark")
                if self._here.viewer.may("editor"):
                    button = icon_button("close", "Delete the saved query", lambda row=row: self._forget(row["name"]))
                    button.props["aria-label"] = f"Delete the query {row['name']}"

    async def _forget(self, name: str) -> None:
        await attempt(lambda: self._here.viewer.ask(sql.delete, name), f"{name} is deleted")
        await self._list_saved()

    def _save(self) -> None:
        async def do() -> bool:
            chosen, text = str(name.value or ""), str(self._text.value or "")
            done = await attempt(lambda: self._here.viewer.ask(sql.save, chosen, text), f"{chosen} is saved")
            if done:
                await self._list_saved()
            return done

        with dialog("Save the query", "Whoever uses this console finds it here.") as made:
            name = ui.input("Name").props("outlined dense autofocus autocomplete=off")
            buttons(made, "Save", do)


def _is_number(column: dict[str, str]) -> bool:
    return column["type"].startswith(NUMBERS)


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)[:500]
    return value if not isinstance(value, str) else value[:500]


def _chart(found: dict[str, Any]) -> None:
    """Bars of the first number over the first column that is none, if there are a few rows of such."""
    columns, rows = found["columns"], found["rows"]
    value = next((i for i, column in enumerate(columns) if _is_number(column) and column["name"][:1] != "_"), None)
    label = next((i for i, column in enumerate(columns) if i != value), None)
    if value is None or label is None or not 1 < len(rows) <= MOST_BARS:
        return
    ink, line = "var(--pk-ink-faint)", "var(--pk-line)"
    with panel(columns[value]["name"], sub=f"by {columns[label]['name']}"):
        options = {
            "animation": False,
            "textStyle": {"fontFamily": "var(--pk-sans)", "color": ink},
            "color": list(CHART_COLOURS),
            "grid": {"left": 8, "right": 12, "top": 16, "bottom": 4, "containLabel": True},
            "tooltip": {"trigger": "axis", "backgroundColor": "var(--pk-surface)", "borderColor": line},
            "xAxis": {
                "type": "category",
                "data": [str(row[label])[:40] for row in rows],
                "axisLabel": {"color": ink},
                "axisLine": {"lineStyle": {"color": line}},
            },
            "yAxis": {"type": "value", "axisLabel": {"color": ink}, "splitLine": {"lineStyle": {"color": line}}},
            "series": [{"type": "bar", "barMaxWidth": 42, "data": [_number(row[value]) for row in rows]}],
        }
        chart = ui.echart(options, renderer="svg").classes("pk-chart").props("role=img")
        chart.props["aria-label"] = f"{columns[value]['name']} by {columns[label]['name']}"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


PAGE = Page("/sql", "SQL", build, label="SQL", icon="terminal")
