"""Overview: health at a glance, what flows, who is behind, and what changed."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.base.printable import printable
from penstock.console.data import overview
from penstock.console.page import Here, Page, segment
from penstock.console.widgets import numbers
from penstock.console.widgets.chart import TimeChart
from penstock.console.widgets.pieces import (
    Tile,
    empty_state,
    not_available,
    panel,
    pill,
    state_pill,
    text,
    title_row,
)

REFRESH_SECONDS = 5.0
SPAN_SECONDS = 3600
NOUNS = {"acl": "Rule", "letters": "Dead letters", "partition": "Partitions", "query": "Saved query"}
DONE = {
    "abort": "aborted", "apply": "applied", "cancel": "left where they are", "configure": "configured",
    "create": "created", "delete": "deleted", "elect": "given their preferred leaders", "empty": "emptied",
    "end": "ended", "format": "read in another format", "grow": "given more partitions", "produce": "written to",
    "reassign": "moved", "redrive": "redriven", "reset": "reset", "save": "saved", "set": "set",
    "unthrottle": "moved at full speed",
}  # fmt: skip
VERDICTS = {"ok": "healthy", "warning": "needs attention", "problem": "in trouble"}


async def build(here: Here) -> None:
    state = await here.viewer.ask(overview.overview)
    with title_row("Overview", f"{here.viewer.cluster.name} · {state['cluster_id'] or 'cluster without id'}"):
        verdict = pill(VERDICTS[state["health"]], state["health"])
    tiles = _Tiles()
    with ui.element("div").classes("pk-grid"):
        with panel("Records", sub="per second, the last hour"):
            records = TimeChart(["in", "out"], unit="rec/s", label="Records written and consumed per second")
        with panel("Bytes written", sub="per second, all replicas"):
            written = TimeChart(["in"], unit="B/s", label="Bytes written per second")
    with ui.element("div").classes("pk-grid"):
        lists = [panel("Groups furthest behind"), panel("Busiest topics"), panel("Pipelines"), panel("Recent changes")]
        boxes = []
        for one in lists:
            with one:
                boxes.append(ui.element("div").style("width: 100%"))
    missing = ui.element("div").classes("pk-row")

    async def refresh() -> None:
        now = await here.viewer.ask(overview.overview)
        figures = await here.viewer.ask(overview.figures, ["in", "out", "in_bytes"], SPAN_SECONDS)
        verdict.text = VERDICTS[now["health"]]
        verdict.classes(remove="pk-ok pk-warning pk-problem", add=f"pk-{now['health']}")
        tiles.show(now)
        records.show({"in": figures["in"], "out": figures["out"]})
        written.show({"in": figures["in_bytes"]})
        for box, fill in zip(boxes, (_groups, _topics, _pipelines, _changes), strict=True):
            box.clear()
            with box:
                fill(here, now)
        missing.clear()
        with missing:
            for what, reason in now["missing"].items():
                not_available(what, reason)

    await refresh()
    here.every(REFRESH_SECONDS, refresh)


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._brokers = Tile("Brokers")
            self._topics = Tile("Topics")
            self._replicas = Tile("Without a leader")
            self._short = Tile("Under-replicated")
            self._lag = Tile("Lag of all groups")
            self._size = Tile("On disk")

    def show(self, now: dict[str, Any]) -> None:
        brokers = now["brokers"]
        self._brokers.show(str(brokers), _unit(brokers, "broker"), hint=f"controller is {now['controller']}")
        topics = now["topics"]
        own = numbers.plural(now["partitions"] - now["internal_partitions"], "partition")
        self._topics.show(numbers.count(topics), _unit(topics, "topic"), hint=own)
        offline, short = now["offline_partitions"], now["under_replicated_partitions"]
        self._replicas.show(numbers.count(offline), _unit(offline, "partition"), tone="problem" if offline else "ok")
        self._short.show(numbers.count(short), _unit(short, "partition"), tone="warning" if short else "ok")
        self._lag.show(numbers.count(now["lag"]), "records", hint=numbers.plural(now["groups"], "group"))
        self._size.show(*numbers.size(now["bytes"]), hint="all replicas")


def _unit(value: int, noun: str) -> str:
    return noun if value == 1 else f"{noun}s"


def _groups(here: Here, now: dict[str, Any]) -> None:
    if not now["largest_lag"]:
        empty_state("group_work", "No groups yet", "A consumer with a group.id appears here with its lag.")
        return
    with ui.element("ul").classes("pk-list"):
        for row in now["largest_lag"]:
            with ui.element("li"):
                _link(here.link("/group", name=row["name"]), row["name"])
                state_pill(row["state"])
                ui.label(f"{numbers.count(row['lag'])} records").classes("pk-num")


def _topics(here: Here, now: dict[str, Any]) -> None:
    if not now["busiest_topics"]:
        empty_state("topic", "No topics yet", "Create one under Topics, or with `penstock topic create NAME`.")
        return
    with ui.element("ul").classes("pk-list"):
        for row in now["busiest_topics"]:
            with ui.element("li"):
                _link(here.link(f"/topics/{segment(row['name'])}"), row["name"])
                ui.label(numbers.size_text(row["bytes"])).classes("pk-num pk-sub")
                ui.label(numbers.rate_text(row["records_per_second"])).classes("pk-num")


def _pipelines(here: Here, now: dict[str, Any]) -> None:
    if not now["pipelines"]:
        empty_state("account_tree", "No pipelines applied", "`penstock pipeline apply FILE` starts one.")
        return
    with ui.element("ul").classes("pk-list"):
        for row in now["pipelines"]:
            with ui.element("li"):
                _link(here.link(f"/pipelines/{segment(row['name'])}"), row["name"])
                state_pill(row["state"])
                ui.label(numbers.rate_text(row["rows_per_second"], "rows/s")).classes("pk-num")
    _link(here.link(f"/pipelines/{segment(now['pipelines'][0]['name'])}"), "See what flows →")


def _changes(here: Here, now: dict[str, Any]) -> None:
    if not now["changes"]:
        empty_state("history", "Nothing was changed yet", "What is changed through this console is listed here.")
        return
    with ui.element("ul").classes("pk-list"):
        for row in now["changes"]:
            with ui.element("li"):
                told = f"{described(row['action'])}: {row['target']}"
                text("span", told, "pk-grow").props["title"] = printable(told)
                if not row["ok"]:
                    pill("refused", "problem")
                when = ui.label(f"{row['user']}, {here.clock.brief(row['at'])}").classes("pk-sub pk-num")
                when.props["title"] = here.clock.iso_text(row["at"])


def described(action: str) -> str:
    """An entry of the audit log in words: topic.create → Topic created."""
    noun, _, verb = action.partition(".")
    return f"{NOUNS.get(noun, noun.capitalize())} {DONE.get(verb, verb)}"


def _link(address: str, name: str) -> None:
    with ui.element("a").classes("pk-grow") as made:
        made.props["href"] = address
        ui.label(name).style("display: contents")


PAGE = Page("", "Overview", build, label="Overview", icon="dashboard")
