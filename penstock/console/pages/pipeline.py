"""Pipeline: its graph with what flows, figures over time, dead letters, spec and log; started, stopped, reset here."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import overview, pipelines, spark_pages
from penstock.console.page import Here, Page, segment
from penstock.console.pages.pipeline_editor import SpecEditor
from penstock.console.pages.pipeline_letters import LettersTab
from penstock.console.widgets import numbers
from penstock.console.widgets.chart import TimeChart
from penstock.console.widgets.dialogs import attempt, confirm_typed
from penstock.console.widgets.flow_graph import FlowGraph
from penstock.console.widgets.pieces import (
    Tile,
    empty_state,
    panel,
    plain,
    state_pill,
    state_tone,
    text,
    title_row,
)

REFRESH_SECONDS = 3.0
SPAN_SECONDS = 3600
TABS = {"figures": "Figures", "letters": "Dead letters", "spec": "Spec", "log": "Log"}
ALL = "all queries"
FRAME = 100  # what page and panel keep free at their edges


async def build(here: Here) -> None:
    name = here.arguments["name"]
    now = await here.viewer.ask(pipelines.flow, name)
    with title_row(name):
        state = state_pill(now["state"])
        spark_link = _spark_link(here, name)
        if here.viewer.may("admin"):
            _actions(here, name)
    error = ui.element("div").classes("pk-note pk-problem").props("role=alert")
    with error:
        error_words = ui.label("")
    error.set_visibility(False)
    tiles = _Tiles()
    tiles.show(now)
    room = float(await ui.run_javascript("document.querySelector('.pk-page').clientWidth", timeout=10)) - FRAME
    with panel("Flow", sub="sources, views and sinks; boxes with a topic lead to it"):
        picture = FlowGraph(lambda topic: here.link(f"/topics/{segment(topic)}"), room=room)
    chosen = here.arguments.get("tab", "figures")
    with ui.tabs(value=chosen if chosen in TABS else "figures").props("align=left no-caps inline-label") as tabs:
        for key, label in TABS.items():
            ui.tab(key, label)
    with ui.tab_panels(tabs, value=tabs.value, animated=False).style("width: 100%"):
        with ui.tab_panel("figures"):
            charts = _Charts(name, [query["query"] for query in now["queries"]])
        with ui.tab_panel("letters"):
            letters = LettersTab(here, name)
        with ui.tab_panel("spec"), panel("Spec", sub="as it is applied") as spec_panel:
            pass
        with ui.tab_panel("log"), panel("Log", sub="newest first"):
            log = ui.element("div").style("width: 100%")
    opened: set[str] = set()

    async def open_spec() -> None:
        whole = await here.viewer.ask(pipelines.pipeline, name)
        with spec_panel:
            at = here.clock.text(whole["changed_at_ms"])
            by = f" by {whole['changed_by']}" if whole["changed_by"] else ""
            ui.label(f"generation {whole['generation']}, changed{by} at {at}").classes("pk-sub")
            SpecEditor(
                here,
                whole["text"],
                whole["generation"],
                lambda made: here.go(f"/pipelines/{segment(made)}", tab="spec"),
            )

    async def open_tab() -> None:
        """What is shown when it is asked for, and not before."""
        tab = str(tabs.value)
        if tab == "letters":
            await letters.refresh()
        elif tab == "log":
            _log(here, log, await here.viewer.ask(pipelines.log_lines, name))
        elif tab == "spec" and tab not in opened:
            opened.add(tab)
            await open_spec()
        elif tab == "figures":
            await charts.refresh(here)

    async def refresh() -> None:
        now = await here.viewer.ask(pipelines.flow, name)
        if state.is_deleted:
            return
        _show_state(state, now["state"])
        error.set_visibility(bool(now["error"]))
        error_words.text = now["error"] or ""
        spark_link.set_visibility(here.viewer.may("editor") and spark_pages.told(here.viewer, name) is not None)
        tiles.show(now)
        picture.show(now["graph"])
        charts.see(query["query"] for query in now["queries"])
        if tabs.value in ("figures", "log"):
            await open_tab()

    tabs.on_value_change(open_tab)
    await refresh()
    await open_tab()
    here.every(REFRESH_SECONDS, refresh)


def _spark_link(here: Here, name: str) -> ui.element:
    """To Spark's own pages of it, while there are some."""
    with ui.element("a").classes("pk-link").props("target=_blank rel=noopener") as made:
        ui.label("Spark pages")
    made.props["href"] = f"{here.base_path}/spark/{segment(here.viewer.cluster.name)}/{segment(name)}/"
    made.set_visibility(False)
    return made


def _show_state(pill: ui.label, state: str) -> None:
    pill.text = state
    tone = state_tone(state)
    pill.classes(remove="pk-ok pk-warning pk-problem pk-accent", add=f"pk-{tone}" if tone else "")


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._rows = Tile("Reads")
            self._lag = Tile("Lag")
            self._batch = Tile("Batch")
            self._watermark = Tile("Watermark")
            self._state = Tile("State")
            self._letters = Tile("Dead letters")

    def show(self, now: dict[str, Any]) -> None:
        queries = now["queries"]
        runs = now["state"] == "running"
        rows = sum(query.get("rows_per_second") or 0.0 for query in queries) if runs else 0.0
        self._rows.show(
            numbers.count(rows), "rows/s", hint=f"in {len(queries)} {'query' if len(queries) == 1 else 'queries'}"
        )
        self._lag.show(numbers.count(now["lag"]), "records", hint="not yet read")
        batch = max((query.get("batch_ms") or 0 for query in queries), default=None) if runs else None
        self._batch.show(numbers.duration(batch), hint="the last one took")
        late = max((query["watermark_seconds"] for query in queries if query.get("watermark_seconds")), default=None)
        dropped = [query["late"] for query in queries if query.get("late") is not None]
        told = f", {numbers.plural(sum(dropped), 'row')} came too late" if dropped else ""
        self._watermark.show(numbers.seconds(late), hint=f"{'behind the clock' if late is not None else 'none'}{told}")
        held = sum(query.get("state_bytes") or 0 for query in queries)
        kept = numbers.plural(sum(query.get("state_rows") or 0 for query in queries), "row")
        self._state.show(*numbers.size(held), hint=f"{kept} kept")
        letters = now["dead_letters"]
        unit = "record" if letters == 1 else "records"
        self._letters.show(numbers.count(letters), unit, "warning" if letters else "", hint="set aside")


class _Charts:
    """A line for each query; the lag is of all together, because they commit as one group."""

    KINDS = (
        ("rows", "Rows read", "per second", "rows/s"),
        ("lag", "Lag", "records not yet read", "records"),
        ("batch_ms", "Batch time", "how long a batch took", "ms"),
        ("watermark_seconds", "Watermark", "seconds behind the clock", "s"),
        ("state_bytes", "State", "memory of joins, windows and operators", "B"),
    )

    def __init__(self, name: str, queries: list[str]) -> None:
        self._name, self._queries = name, list(queries)
        self._box = ui.element("div").style("width: 100%")
        self._charts: dict[str, TimeChart] = {}
        self._draw()

    def see(self, queries: Any) -> None:
        names = list(queries)
        if names and names != self._queries:
            self._queries = names
            self._draw()

    def _draw(self) -> None:
        self._box.clear()
        with self._box:
            if not self._queries:
                empty_state("show_chart", "No figures yet", "They come with the first batch of a running pipeline.")
                self._charts = {}
                return
            with ui.element("div").classes("pk-grid"):
                for kind, title, sub, unit in self.KINDS:
                    with panel(title, sub=f"{sub}, the last hour"):
                        label = f"{title} of {ALL if kind == 'lag' else 'each query'}, {sub}"
                        lines = [ALL] if kind == "lag" else self._queries
                        self._charts[kind] = TimeChart(lines, unit=unit, label=label, area=False)

    async def refresh(self, here: Here) -> None:
        for kind, chart in list(self._charts.items()):
            names = {f"pipeline:{self._name}:{query}:{kind}": query for query in self._queries}
            if kind == "lag":
                names = {f"group:{pipelines.group_of(self._name)}:lag": ALL}
            figures = await here.viewer.ask(overview.figures, list(names), SPAN_SECONDS)
            chart.show({names[series]: points for series, points in figures.items()})


def _log(here: Here, box: ui.element, lines: list[dict[str, Any]]) -> None:
    box.clear()
    with box:
        if not lines:
            empty_state("notes", "Nothing was said yet", "A runner starts pipelines: `penstock pipeline runner`.")
            return
        with ui.element("ul").classes("pk-list"):
            for row in lines[:100]:
                with ui.element("li"):
                    ui.label(here.clock.text(row["at_ms"])).classes("pk-sub pk-num")
                    if row["kind"] == "state":
                        state_pill(str(row["state"]))
                    made = text("span", row["line"].partition(" ")[2].partition(" ")[2])
                    made.style("overflow-wrap: anywhere; min-width: 0")


def _actions(here: Here, name: str) -> None:
    async def change(desired: Any, told: str) -> None:
        await attempt(lambda: here.viewer.ask(pipelines.change, name, desired), told)

    async def reset(backfill: bool) -> bool:
        told = f"{name} starts over"
        return await attempt(lambda: here.viewer.ask(pipelines.reset, name, backfill=backfill), told)

    async def delete() -> bool:
        done = await attempt(lambda: here.viewer.ask(pipelines.delete, name), f"{name} is deleted")
        if done:
            here.go("/pipelines")
        return done

    plain("Restart", lambda: change("running", f"{name} starts"), icon="restart_alt")
    plain("Stop", lambda: change("stopped", f"{name} stops"), icon="stop")
    with plain("Manage", lambda: None, icon="expand_more"), ui.menu():
        ui.menu_item(
            "Reset…",
            lambda: confirm_typed(
                f"Reset {name}",
                "What it has read is forgotten: it reads its sources from where they begin, and sinks get rows again.",
                name,
                "Reset",
                lambda: reset(False),
            ),
        )
        ui.menu_item(
            "Backfill…",
            lambda: confirm_typed(
                f"Backfill {name}",
                "It reads its sources from the beginning and rewrites its tables.",
                name,
                "Backfill",
                lambda: reset(True),
            ),
        )
        ui.menu_item(
            "Delete…",
            lambda: confirm_typed(
                f"Delete {name}",
                "It stops, and is forgotten with its checkpoints. What it wrote stays.",
                name,
                "Delete",
                delete,
            ),
        )


PAGE = Page("/pipelines/{name}", "{name}", build)
