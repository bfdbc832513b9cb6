"""The graph of a pipeline: boxes that are plain HTML, with arrows drawn under them; rows per second at the arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from penstock.console.data.pipeline_graph import layers
from penstock.console.widgets import numbers
from penstock.console.widgets.pieces import state_tone, text

WIDTH, HEIGHT = 196, 68
ICONS = {"source": "input", "sql": "functions", "operator": "settings_suggest", "python": "code", "sink": "output"}
WORDS = {"source": "source", "sql": "view", "operator": "operator", "python": "function", "sink": "sink"}
Point = tuple[float, float]


class FlowGraph:
    """Drawn once for a spec; `show` brings states and rates up to date, and draws anew if the spec has changed."""

    def __init__(self, link: Callable[[str], str], *, vertical: bool) -> None:
        self._link, self._vertical = link, vertical
        self._shape: Any = None
        self._boxes: dict[str, ui.element] = {}
        self._labels: dict[tuple[str, str], ui.label] = {}
        self._made = ui.element("div").classes("pk-flow").props('tabindex=0 role=group aria-label="Graph"')

    def show(self, graph: Mapping[str, list[dict[str, Any]]]) -> None:
        shape = [
            [(node["id"], node["kind"], node["what"], node["detail"]) for node in graph["nodes"]],
            [(edge["from"], edge["to"], edge["flows"]) for edge in graph["edges"]],
        ]
        if shape != self._shape:
            self._shape = shape
            self._draw(graph)
        for node in graph["nodes"]:
            tone = state_tone(node["state"])
            self._boxes[node["id"]].classes(
                remove="pk-ok pk-warning pk-problem pk-accent", add=f"pk-{tone}" if tone else ""
            )
        for edge in graph["edges"]:
            label = self._labels[edge["from"], edge["to"]]
            label.text = "" if edge["rate"] is None else numbers.rate_text(edge["rate"], "rows/s")
            label.set_visibility(edge["rate"] is not None)

    # --- drawing

    def _draw(self, graph: Mapping[str, list[dict[str, Any]]]) -> None:
        places, size = self._places(graph)
        self._boxes, self._labels = {}, {}
        self._made.clear()
        with self._made, ui.element("div").classes("pk-flow-field").style(f"width: {size[0]}px; height: {size[1]}px"):
            lines = "".join(self._line(places[e["from"]], places[e["to"]], e["flows"]) for e in graph["edges"])
            ui.html(_svg(size, lines), sanitize=False)  # numbers only
            for edge in graph["edges"]:
                x, y = self._middle(places[edge["from"]], places[edge["to"]])
                label = ui.label("").classes("pk-flow-rate pk-num").style(f"left: {x}px; top: {y}px")
                self._labels[edge["from"], edge["to"]] = label
            for node in graph["nodes"]:
                self._boxes[node["id"]] = self._box(node, places[node["id"]])

    def _places(self, graph: Mapping[str, list[dict[str, Any]]]) -> tuple[dict[str, Point], Point]:
        columns = layers(graph)
        along, across = (HEIGHT + 56, 164 + 12) if self._vertical else (WIDTH + 104, HEIGHT + 26)
        most = max(len(column) for column in columns)
        places: dict[str, Point] = {}
        for depth, column in enumerate(columns):
            shift = (most - len(column)) * across / 2
            for index, node in enumerate(column):
                here = (depth * along, shift + index * across)
                places[node] = (here[1], here[0]) if self._vertical else here
        width = self._width
        deep, wide = (len(columns) - 1) * along, (most - 1) * across
        return places, ((wide + width, deep + HEIGHT) if self._vertical else (deep + width, wide + HEIGHT))

    @property
    def _width(self) -> int:
        return 164 if self._vertical else WIDTH

    def _ends(self, start: Point, end: Point) -> tuple[Point, Point]:
        if self._vertical:
            return (start[0] + self._width / 2, start[1] + HEIGHT), (end[0] + self._width / 2, end[1] - 7)
        return (start[0] + self._width, start[1] + HEIGHT / 2), (end[0] - 7, end[1] + HEIGHT / 2)

    def _line(self, start: Point, end: Point, flows: bool) -> str:
        (x1, y1), (x2, y2) = self._ends(start, end)
        if self._vertical:
            middle = (y1 + y2) / 2
            curve = f"C {x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
        else:
            near = x2 - 50  # an arrow over several columns runs straight, and turns before its end
            curve = f"C {near - 40:.0f} {y1:.0f} {near:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
            if x2 - x1 < 200:
                middle = (x1 + x2) / 2
                curve = f"C {middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
        kind = "pk-flow-line pk-flows" if flows else "pk-flow-line"
        return f'<path class="{kind}" d="M {x1:.0f} {y1:.0f} {curve}" marker-end="url(#pk-arrow)"/>'

    def _middle(self, start: Point, end: Point) -> Point:
        (x1, y1), (x2, y2) = self._ends(start, end)
        if not self._vertical and x2 - x1 >= 200:
            return x1 + 52, y1
        return (x1 + x2) / 2, (y1 + y2) / 2

    def _box(self, node: Mapping[str, Any], place: Point) -> ui.element:
        tag = "a" if node["topic"] else "div"
        with ui.element(tag).classes(f"pk-node pk-node-{node['kind']}") as box:
            box.style(f"left: {place[0]}px; top: {place[1]}px; width: {self._width}px; height: {HEIGHT}px")
            if node["topic"]:
                box.props["href"] = self._link(node["topic"])
            with ui.element("div").classes("pk-node-head"):
                ui.icon(ICONS[node["kind"]]).props("aria-hidden=true")
                text("b", node["name"], "pk-cut")
            what = WORDS[node["kind"]] if node["kind"] == "sql" else f"{WORDS[node['kind']]}, {node['what']}"
            text("span", what, "pk-sub pk-cut")
            if node["kind"] != "sql":
                text("span", node["detail"] if node["detail"] != node["what"] else "", "pk-sub pk-cut")
            else:
                text("span", node["detail"], "pk-sub pk-cut pk-mono")
            if node["detail"]:
                with ui.tooltip().classes("pk-tip"):
                    ui.label(node["detail"])
        return box


def _svg(size: Point, lines: str) -> str:
    arrow = (
        '<marker id="pk-arrow" viewBox="0 0 10 10" refX="3" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="pk-flow-arrow" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
    )
    return (
        f'<svg aria-hidden="true" width="{size[0]:.0f}" height="{size[1]:.0f}" '
        f'viewBox="0 0 {size[0]:.0f} {size[1]:.0f}"><defs>{arrow}</defs>{lines}</svg>'
    )
