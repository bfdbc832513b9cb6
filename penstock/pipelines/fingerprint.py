"""What a checkpoint depends on: sources in order, keys, windows and aggregates, operators, user code, sinks, mode.

Read from the text in which Spark explains an analyzed query, which is the same on classic Spark and on Spark Connect.
Attributes are traced back through projections to the columns of a source, so that `GROUP BY k` changes when what `k`
means changes, and not when a view is renamed, filtered or gets further columns. Pure: no Spark here but in `plan_text`.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines.spec import PipelineSpec

VERSION: Final = 2
_STATEFUL: Final = (
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark",
    "TransformWithStateInPandas", "GlobalLimit",
)  # fmt: skip
_WITH_STATE: Final = {
    "join-latest", "changelog-to-table", "table-to-changelog", "suppress", "deduplicate", "sessions", "remember"
}  # fmt: skip
_OWN_CODE: Final = ("transformWithStateUDF",)

_LINE: Final = re.compile(r"^(?P<indent>[ :+\-]*)(?P<streams>~?)(?P<kind>[A-Z]\w*)(?P<rest>.*)$")
_SOURCE_OPTION: Final = re.compile(r"\b(subscribe|subscribePattern|table|kind|path)=(.*?)(?:, |\])")
_ATTRIBUTE: Final = re.compile(r"([A-Za-z_]\w*)#(\d+)L?(?:-T\d+ms)?")
_LEFT_OVER: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")
_ALIAS: Final = re.compile(r"^(.*) AS (.*?)#(\d+)L?(?:-T\d+ms)?$", re.DOTALL)
_USER_FUNCTION: Final = re.compile(r"(\w+)\((?:[^()]|\([^()]*\))*\)#\d+")
_MICROSECONDS: Final = 1_000_000


def plan_text(rows: Any) -> str:
    """Spark's explanation of a query, with every field of it."""
    settings = rows.sparkSession.conf
    settings.set("spark.sql.debug.maxToStringFields", "100000")
    if hasattr(rows, "_explain_string"):  # Spark Connect
        return str(rows._explain_string(extended=True))
    jvm = rows.sparkSession.sparkContext._jvm
    return str(jvm.PythonSQLUtils.explainString(rows._jdf.queryExecution(), "extended"))


def fingerprint(
    text: str, spec: PipelineSpec, views: Iterable[str], schemas: dict[str, str], sinks: Iterable[str], mode: str
) -> dict[str, Any]:
    """`views`: those that lead to the query; `schemas`: what operators give, which says what their state holds."""
    plan = _Plan(text)
    operators = [
        f"{name}: {view.operator} {json.dumps(view.options, sort_keys=True)} giving {schemas.get(name, '')}"
        for name, view in spec.views.items()
        if name in set(views) and view.operator in _WITH_STATE
    ]
    made = {
        "version": VERSION,
        "sources": plan.sources(),
        "stateful": plan.stateful(),
        "operators": operators,
        "sinks": list(sinks),
        "mode": mode,
    }
    if plan.runs_user_code(len(operators)):
        made["code"] = code_hash(spec)
    return made


def code_hash(spec: PipelineSpec) -> str:
    """Of the user's Python, without comments and layout."""
    texts = dict(spec.modules)
    for view in spec.views.values():
        module = str(view.python).partition(":")[0] if view.python is not None else None
        if module is not None and module not in texts and module in sys.modules:
            texts[module] = inspect.getsource(sys.modules[module])
    trees = [f"{name}: {ast.dump(ast.parse(text))}" for name, text in sorted(texts.items())]
    return hashlib.sha256("\n".join(trees).encode()).hexdigest()[:16]


def kinds(stateful: Iterable[str]) -> list[str]:
    """Aggregate, Join, …: all that version 0.1.0 noted reliably."""
    return [entry.split()[0] for entry in stateful]


@dataclass(frozen=True)
class _Node:
    depth: int
    streams: bool
    kind: str
    rest: str


class _Plan:
    def __init__(self, text: str) -> None:
        self._nodes = list(_nodes(text))
        self._meanings: dict[str, tuple[str, str]] = {}  # attribute id → (name, expression)
        for node in self._nodes:
            for item in (item for part in _lists(node.rest) for item in part):
                alias = _ALIAS.match(item)
                if alias is not None:
                    self._meanings.setdefault(alias[3], (alias[2], alias[1]))

    def sources(self) -> list[str]:
        """Spark numbers them in this order, and keeps offsets by number."""
        found = []
        for node in self._nodes:
            if node.kind == "StreamingRelationV2":
                name = node.rest.split(", ")[1]
                told = [value for _, value in _SOURCE_OPTION.findall(node.rest)]
                found.append(" ".join([name, *told]))
            elif node.kind == "StreamingRelation":
                found.append(node.rest.strip().split(", ")[0])
        return list(dict.fromkeys(found))

    def stateful(self) -> list[str]:
        return [self._described(node) for index, node in enumerate(self._nodes) if self._keeps_state(index, node)]

    def _keeps_state(self, index: int, node: _Node) -> bool:
        if node.kind == "Join":
            return node.streams and all(child.streams for child in self._children(index))
        return node.streams and node.kind in _STATEFUL

    def _children(self, index: int) -> list[_Node]:
        below = []
        for node in self._nodes[index + 1 :]:
            if node.depth <= self._nodes[index].depth:
                break
            below.append(node)
        return [node for node in below if node.depth == below[0].depth]

    def _described(self, node: _Node) -> str:
        parts = [[self._meaning(item) for item in part] for part in _lists(node.rest)]
        if node.kind == "Aggregate":
            keys, results = parts[:2] if len(parts) > 1 else ([], parts[0])  # Spark leaves out an empty list of keys
            kept = [item for item in results if not any(item == key or item.startswith(f"{key}.") for key in keys)]
            return f"Aggregate by {', '.join(keys) or 'nothing'} of {', '.join(kept) or 'nothing'}"
        if node.kind == "Join":
            return f"Join {self._meaning(node.rest)}"
        if node.kind.startswith("Deduplicate"):
            return f"{node.kind} by {', '.join(parts[0])}"
        return node.kind

    def runs_user_code(self, own_operators: int) -> bool:
        """Python functions of the user inside what is kept, or processors beyond our operators'."""
        processors = [node for node in self._nodes if node.kind.startswith(("TransformWithState", "FlatMapGroups"))]
        if len(processors) > own_operators:
            return True
        kept = [node.rest for index, node in enumerate(self._nodes) if self._keeps_state(index, node)]
        traced = [self._meaning(text, keep_marks=True) for text in kept]
        return any(name not in _OWN_CODE for text in traced for name in _USER_FUNCTION.findall(text))

    def _meaning(self, expression: str, keep_marks: bool = False, depth: int = 0) -> str:
        alias = _ALIAS.match(expression)
        text = alias[1] if alias is not None else expression

        def traced(found: re.Match[str]) -> str:
            name, expression = self._meanings.get(found[2], (found[1], ""))
            if not expression or "_decoded#" in expression or depth > 50:
                return found[1]
            if name in ("window", "session_window") and expression.startswith("named_struct(start"):
                return self._window(name, expression)
            return self._meaning(expression, keep_marks, depth + 1)

        traced_text = _ATTRIBUTE.sub(traced, text)
        return (traced_text if keep_marks else _LEFT_OVER.sub("", traced_text)).strip()

    def _window(self, name: str, expression: str) -> str:
        """`window(ts, 60 s)` instead of the arithmetic that Spark makes of it."""
        column = _ATTRIBUTE.search(expression)
        of = self._meaning(column[0]) if column is not None else ""
        numbers = dict.fromkeys(int(found) for found in re.findall(r"[%+\-] (\d+)\)", expression))
        lengths = [f"{number / _MICROSECONDS:g} s" for number in numbers if number]
        lengths += dict.fromkeys(re.findall(r"cast\(([^()]+) as interval\)", expression))
        return f"{name}({', '.join([of, *lengths])})"


def _nodes(text: str) -> Iterator[_Node]:
    _, _, analyzed = text.partition("== Analyzed Logical Plan ==")
    for line in analyzed.partition("== Optimized Logical Plan ==")[0].splitlines():
        found = _LINE.match(line)
        if found is not None and (found["indent"] or found["streams"] or found["rest"][:1] in (" ", "")):
            yield _Node(len(found["indent"]), bool(found["streams"]), found["kind"], found["rest"])


def _lists(text: str) -> list[list[str]]:
    """The items of each `[…]` at the top level of a node's line."""
    lists: list[list[str]] = []
    depth = 0
    item = ""
    for character in text:
        if character == "[" and depth == 0:
            lists.append([])
            depth, item = 1, ""
            continue
        if depth == 0:
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                lists[-1] += [item.strip()] if item.strip() else []
                continue
        if character == "," and depth == 1:
            lists[-1].append(item.strip())
            item = ""
        else:
            item += character
    return lists
