"""The graph of a pipeline: boxes that are plain HTML, with arrows drawn under them; rows per second at the arrows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from penstock.console.data.pipeline_graph import Slot, layers
from penstock.console.widgets import numbers
from penstock.console.widgets.pieces import state_tone, text

HEIGHT, LANE = 68, 24
LEAST_GAP, MOST_GAP, FAIR_WIDTH = 80, 96, 140
LEAST_ACROSS = 560
ICONS = {"source": "input", "sql": "functions", "operator": "settings_suggest", "python": "code", "sink": "output"}
WORDS = {"source": "source", "sql": "view", "operator": "operator", "python": "function", "sink": "sink"}
Point = tuple[float, float]


class FlowGraph:
    """Drawn once for a spec; `show` brings states and rates up to date, and draws anew if the spec has changed."""

    def __init__(self, link: Callable[[str], str], *, room: float) -> None:
        """`room`: how many pixels wide it may be; in little room the graph goes down instead of right."""
        self._link, self._room, self._vertical = link, room, room < LEAST_ACROSS
        self._width = 0.0
        self._shape: Any = None
        self._boxes: dict[str, ui.element] = {}
        self._labels: dict[tuple[str, str], ui.label] = {}
        self._places: dict[tuple[str, str], str] = {}
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
        told: set[str] = set()
        for edge in graph["edges"]:
            label = self._labels[edge["from"], edge["to"]]
            label.text = "" if edge["rate"] is None else f"{numbers.count(edge['rate'])} rows/s"
            # Two that read the same source have one rate, and it stands at one place.
            place = self._places[edge["from"], edge["to"]]
            label.set_visibility(edge["rate"] is not None and place not in told)
            told.add(place)

    # --- drawing

    def _draw(self, graph: Mapping[str, list[dict[str, Any]]]) -> None:
        middles, size = self._layout(graph)
        routes = [self._route(edge, middles) for edge in graph["edges"]]
        self._boxes, self._labels, self._places = {}, {}, {}
        self._made.clear()
        with self._made, ui.element("div").classes("pk-flow-field").style(f"width: {size[0]}px; height: {size[1]}px"):
            pairs = zip(routes, graph["edges"], strict=True)
            lines = "".join(self._line(route, edge["flows"]) for route, edge in pairs)
            ui.html(_svg(size, lines), sanitize=False)  # numbers only
            kinds = {node["id"]: node["kind"] for node in graph["nodes"]}
            for route, edge in zip(routes, graph["edges"], strict=True):
                into_sink = kinds[edge["to"]] == "sink" and kinds[edge["from"]] != "source"
                between, place = (edge["from"], edge["to"]), self._beside(route, at_end=into_sink)
                self._places[between] = place
                self._labels[between] = ui.label("").classes("pk-flow-rate pk-num").style(place)
            for node in graph["nodes"]:
                self._boxes[node["id"]] = self._box(node, middles[node["id"], ""][0])

    def _layout(self, graph: Mapping[str, list[dict[str, Any]]]) -> tuple[dict[Slot, list[Point]], Point]:
        """The middles of every slot, one for each column, and the size of the field."""
        columns = layers(graph)
        across = self._gap(len(columns))
        self._width = self._node_width(len(columns), across)
        thick, gap = (self._width, 12) if self._vertical else (HEIGHT, 26)
        along = HEIGHT + 56 if self._vertical else self._width + across
        sizes = [[LANE if slot[1] else thick for slot in column] for column in columns]
        most = max(sum(column) + gap * (len(column) - 1) for column in sizes)
        middles: dict[Slot, list[Point]] = {}
        for depth, column in enumerate(columns):
            at = (most - sum(sizes[depth]) - gap * (len(column) - 1)) / 2
            deep = depth * along + (HEIGHT if self._vertical else self._width) / 2
            for slot, size in zip(column, sizes[depth], strict=True):
                point = (at + size / 2, deep) if self._vertical else (deep, at + size / 2)
                middles.setdefault(slot, []).append(point)
                at += size + gap
        depth_size = (len(columns) - 1) * along + (HEIGHT if self._vertical else self._width)
        return middles, ((most, depth_size) if self._vertical else (depth_size, most))

    def _gap(self, columns: int) -> float:
        """Room for a rate between two boxes, if the boxes have enough."""
        return max(LEAST_GAP, min(MOST_GAP, (self._room - columns * FAIR_WIDTH) // max(1, columns - 1)))

    def _node_width(self, columns: int, gap: float) -> float:
        """As wide as the room allows, so that a graph of a few steps needs no scrolling."""
        if self._vertical:
            return min(164.0, (self._room - 12) / 2)
        return max(128.0, min(196.0, (self._room - (columns - 1) * gap) // columns))

    def _route(self, edge: Mapping[str, Any], middles: Mapping[Slot, list[Point]]) -> list[Point]:
        """From the side of a box to the side of another, through the slots in between."""
        [start], [end] = middles[edge["from"], ""], middles[edge["to"], ""]
        lane = middles.get((edge["from"], edge["to"]), [])
        if self._vertical:
            beside = [point for x, y in lane for point in ((x, y - HEIGHT / 2), (x, y + HEIGHT / 2))]
            return [(start[0], start[1] + HEIGHT / 2), *beside, (end[0], end[1] - HEIGHT / 2 - 7)]
        half = self._width / 2
        passing = [point for x, y in lane for point in ((x - half, y), (x + half, y))]
        return [(start[0] + half, start[1]), *passing, (end[0] - half - 7, end[1])]

    def _beside(self, route: list[Point], *, at_end: bool) -> str:
        """Where a rate stands: above the line, at the box that counts it; beside the line where the graph goes down."""
        (x, y), across = (route[-1], "-100%") if at_end else (route[0], "0")
        if self._vertical:
            return f"left: {x:.0f}px; top: {y + (-18 if at_end else 18):.0f}px; transform: translate(-50%, -50%)"
        return f"left: {x + (-2 if at_end else 2):.0f}px; top: {y - 5:.0f}px; transform: translate({across}, -100%)"

    def _line(self, route: list[Point], flows: bool) -> str:
        parts = [f"M {route[0][0]:.0f} {route[0][1]:.0f}"]
        for (x1, y1), (x2, y2) in itertools.pairwise(route):
            mx, my = (x1 + x2) / 2, (y1 + y2) / 2
            bends = f"{x1:.0f} {my:.0f} {x2:.0f} {my:.0f}" if self._vertical else f"{mx:.0f} {y1:.0f} {mx:.0f} {y2:.0f}"
            parts.append(f"C {bends} {x2:.0f} {y2:.0f}")
        kind = "pk-flow-line pk-flows" if flows else "pk-flow-line"
        return f'<path class="{kind}" d="{" ".join(parts)}" marker-end="url(#pk-arrow)"/>'

    def _box(self, node: Mapping[str, Any], middle: Point) -> ui.element:
        tag = "a" if node["topic"] else "div"
        with ui.element(tag).classes(f"pk-node pk-node-{node['kind']}") as box:
            left, top = middle[0] - self._width / 2, middle[1] - HEIGHT / 2
            box.style(f"left: {left:.0f}px; top: {top:.0f}px; width: {self._width:.0f}px; height: {HEIGHT}px")
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
            with ui.tooltip().classes("pk-tip"):
                text("b", node["name"])
                if node["detail"]:
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
