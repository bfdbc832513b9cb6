"""A pipeline's spec as a graph: sources, views, operators and sinks, who reads whom, and how fast rows flow.

Made of the stored spec alone: no connector or operator is loaded, so that nothing of theirs runs in the console.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

_LITERAL = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_READS = re.compile(r"\b(?:from|join)\s+((?:`?\w+`?(?:\s+(?:as\s+)?\w+)?\s*,\s*)*`?\w+`?)", re.IGNORECASE)
DEAD_LETTERS = "dead-letters"


def graph(name: str, spec: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Nodes in the order of the spec, edges between them. What a view reads is taken from its text."""
    nodes, edges = [], []
    owner: dict[str, str] = {}  # table → the node that makes it
    for table, source in _entries(spec, "sources"):
        connector = str(source.get("connector", "topic"))
        nodes.append(_node(table, "source", connector, _place(connector, source.get("options")), source))
        owner[table] = table
    for table, view in _entries(spec, "views"):
        kind = next((kind for kind in ("operator", "python", "sql") if view.get(kind)), "sql")
        detail = str(view.get(kind) or "")
        nodes.append(_node(table, kind, detail if kind != "sql" else "SQL", " ".join(detail.split()), view))
        edges += [{"from": owner[wanted], "to": table} for wanted in _read_by(view, kind, owner, spec)]
        owner[table] = table
        for extra in _mapping(_mapping(view.get("options")).get("cases")):
            owner[str(extra)] = table
    for table, sink in _entries(spec, "sinks"):
        connector = str(sink.get("connector", "topic"))
        node = _node(f"sink {table}", "sink", connector, _place(connector, sink.get("options")), sink)
        nodes.append({**node, "name": table})
        if sink.get("from") in owner:
            edges.append({"from": owner[str(sink["from"])], "to": f"sink {table}"})
    kept = list({(edge["from"], edge["to"]): edge for edge in edges}.values())
    return {"nodes": nodes, "edges": kept}


def _entries(spec: Mapping[str, Any], section: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for name, entry in _mapping(spec.get(section)).items():
        yield str(name), ({"sql": entry} if isinstance(entry, str) else _mapping(entry))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _node(key: str, kind: str, what: str, detail: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    options = _mapping(entry.get("options"))
    topic = options.get("topic") if entry.get("connector", "topic") == "topic" and kind in ("source", "sink") else None
    return {"id": key, "name": key, "kind": kind, "what": what, "detail": detail, "topic": topic}


def _place(connector: str, options: Any) -> str:
    """Where a connector reads or writes, as short as it can be said."""
    given = _mapping(options)
    for key in ("topic", "pattern", "topics", "table", "path", "query"):
        if given.get(key):
            return str(given[key])
    return ""


def _read_by(view: Mapping[str, Any], kind: str, known: Mapping[str, str], spec: Mapping[str, Any]) -> list[str]:
    named = view.get("from") or ()
    wanted = [named] if isinstance(named, str) else list(named)
    if not wanted and kind == "sql":
        wanted = sql_reads(str(view.get("sql") or ""))
    elif not wanted and kind == "python":
        wanted = _parameters(str(view["python"]), spec)
    return [table for table in dict.fromkeys(wanted) if table in known]


def sql_reads(text: str) -> list[str]:
    """The tables after FROM and JOIN; a column of the same name is none."""
    found = []
    for names in _READS.findall(_LITERAL.sub(" ", text)):
        found += [re.findall(r"\w+", part)[0] for part in names.split(",") if part.strip()]
    return found


def _parameters(place: str, spec: Mapping[str, Any]) -> list[str]:
    """Of a function whose module is stored with the pipeline: the tables that it takes."""
    module, _, function = place.partition(":")
    try:
        tree = ast.parse(str(_mapping(spec.get("modules")).get(module, "")))
    except SyntaxError:
        return []
    for item in ast.walk(tree):
        if isinstance(item, ast.FunctionDef) and item.name == function:
            return [argument.arg for argument in item.args.args]
    return []


def with_flow(
    made: Mapping[str, list[dict[str, Any]]], rows: list[Mapping[str, Any]], topic_rates: Mapping[str, float | None]
) -> dict[str, list[dict[str, Any]]]:
    """The graph with the state of each node and rows per second at its edges, where they are known.

    Rows of a source are what its query last read of it; rows into a topic are what arrives there. In between nobody
    counts: those edges only say whether anything flows.
    """
    state = rows[0]["state"] if rows else "stopped"
    runs = state == "running"
    read: dict[str, float] = {}
    for row in rows:
        for topic, rate in (row.get("topics") or {}).items():
            read[topic] = max(read.get(topic, 0.0), float(rate))
    nodes = [{**node, "state": state} for node in made["nodes"]]
    by_id = {node["id"]: node for node in nodes}
    flows = runs and any((row.get("rows") or 0) > 0 for row in rows)
    edges = []
    for edge in made["edges"]:
        start, end = by_id[edge["from"]], by_id[edge["to"]]
        rate = read.get(start["topic"]) if start["kind"] == "source" and start["topic"] else None
        if rate is None and end["kind"] == "sink" and end["topic"]:
            rate = topic_rates.get(end["topic"])
        edges.append({**edge, "rate": rate if runs else None, "flows": flows})
    return {"nodes": nodes, "edges": edges}


Slot = tuple[str, str]
"""(node, ""), or (from, to) of an edge that passes by."""


def layers(made: Mapping[str, list[dict[str, Any]]]) -> list[list[Slot]]:
    """Slots in columns: each node stands behind all that it reads, sinks together at the end.

    An edge over several columns has a slot in each that it passes, so that it runs beside the nodes there.
    """
    depth = {node["id"]: 0 for node in made["nodes"]}
    for _ in depth:  # a chain is at most as long as there are nodes
        for edge in made["edges"]:
            depth[edge["to"]] = min(max(depth[edge["to"]], depth[edge["from"]] + 1), len(depth))
    last = max((depth[node["id"]] for node in made["nodes"] if node["kind"] == "sink"), default=0)
    for node in made["nodes"]:
        if node["kind"] == "sink":
            depth[node["id"]] = max(last, 1)
    columns: list[list[Slot]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for node in made["nodes"]:
        columns[depth[node["id"]]].append((node["id"], ""))
    for edge in made["edges"]:
        for passed in range(depth[edge["from"]] + 1, depth[edge["to"]]):
            columns[passed].append((edge["from"], edge["to"]))
    for before, column in itertools.pairwise(columns):
        column.sort(key=lambda slot: _height(slot, before, made["edges"]))
    return [column for column in columns if column]


def _height(slot: Slot, before: list[Slot], edges: list[dict[str, Any]]) -> float:
    """Where, on average, what leads to a slot stands in the column before it."""
    if slot[1]:
        wanted = [slot, (slot[0], "")]
    else:
        into = [edge["from"] for edge in edges if edge["to"] == slot[0]]
        wanted = [(start, "") for start in into] + [(start, slot[0]) for start in into]
    places = [index for index, known in enumerate(before) if known in wanted]
    return sum(places) / len(places) if places else float(len(before))
