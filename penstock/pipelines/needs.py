"""Which columns a query computes. Spark leaves out what nobody needs, and so must guards: a row that raises only in a
column that is left out is written without guards, and has to be written with them.

Reads Spark's analyzed plans (classic Spark only). In doubt a column is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Wanted = frozenset[int]
"""Of the columns of a plan's node, by Spark's numbers of expressions."""

_BY_PLACE: Final = ("SubqueryAlias", "View", "Union")
_PASSING_ON: Final = (
    "Filter", "Join", "Generate", "Deduplicate", "DeduplicateWithinWatermark", "EventTimeWatermark", "Window", "Sort",
    "Repartition", "RepartitionByExpression", "GlobalLimit", "LocalLimit", "ResolvedHint",
)  # fmt: skip


def needed(rows: Iterable[Any], tables: Iterable[str]) -> dict[str, frozenset[str]]:
    """Table → its columns that these rows depend on. Tables must stand in the plans by their names."""
    found: dict[str, set[str]] = {name: set() for name in tables}
    for item in rows:
        plan = item._jdf.queryExecution().analyzed()
        _visit(plan, everything(plan), found)
    return {name: frozenset(columns) for name, columns in found.items()}


def _visit(node: Any, wanted: Wanted, found: dict[str, set[str]]) -> None:
    name = name_of(node)
    if name in found:
        found[name] |= {str(item.name()) for item in items(node.output()) if _number(item) in wanted}
    for child, of_child in zip(items(node.children()), of_children(node, wanted), strict=True):
        _visit(child, of_child, found)
    for inner in items(node.subqueries()):
        _visit(inner, everything(inner), found)


def name_of(node: Any) -> str | None:
    """Of a table of the pipeline, where a plan refers to it."""
    is_table = node.nodeName() == "SubqueryAlias" and node.child().nodeName() == "View"
    return str(node.alias()) if is_table else None


def everything(node: Any) -> Wanted:
    return frozenset(_number(item) for item in items(node.output()))


def called(node: Any, names: frozenset[str] | None) -> Wanted:
    """The columns of these names; all unless given."""
    return frozenset(_number(item) for item in items(node.output()) if names is None or str(item.name()) in names)


def of_children(node: Any, wanted: Wanted) -> list[Wanted]:
    """What a node asks of each of its children to give these columns."""
    children, kind = items(node.children()), node.nodeName()
    if kind in _BY_PLACE:
        places = [place for place, item in enumerate(items(node.output())) if _number(item) in wanted]
        return [frozenset(_number(items(child.output())[place]) for place in places) for child in children]
    if kind == "Project":
        return [_referred(chosen(items(node.projectList()), wanted))]
    if kind == "Aggregate":
        return [_referred([*items(node.groupingExpressions()), *chosen(items(node.aggregateExpressions()), wanted)])]
    if kind in _PASSING_ON:
        all_of_it = wanted | _referred(items(node.expressions()))
        return [all_of_it & everything(child) for child in children]
    return [everything(child) for child in children]


def chosen(named: Iterable[Any], wanted: Wanted) -> list[Any]:
    return [item for item in named if _number(item) in wanted]


def safe(node: Any, wanted: Wanted, is_harmless: Callable[[Any], bool], sources: frozenset[str]) -> list[Any]:
    """The columns of a node that can be shown: needed ones, and those that are made of nothing that could raise."""
    made: dict[int, Any] = {}
    _collect(node, made, sources)
    return [item for item in items(node.output()) if _number(item) in wanted or _is_safe(item, made, is_harmless)]


def _collect(node: Any, made: dict[int, Any], sources: frozenset[str]) -> None:
    """What columns are made of, down to the pipeline's sources."""
    if name_of(node) in sources:
        return
    for item in items(node.expressions()):
        if item.nodeName() == "Alias":
            made[_number(item)] = item.child()
    for child in items(node.children()):
        _collect(child, made, sources)


def _is_safe(column: Any, made: Mapping[int, Any], is_harmless: Callable[[Any], bool]) -> bool:
    expression = made.get(_number(column))
    if expression is None:
        return True
    return is_harmless(expression) and all(_is_safe(item, made, is_harmless) for item in items(expression.references()))


def _referred(expressions: Iterable[Any]) -> Wanted:
    return frozenset(_number(item) for expression in expressions for item in items(expression.references()))


def _number(named: Any) -> int:
    return int(named.exprId().id())


def items(scala: Any) -> list[Any]:
    iterator = scala.iterator()
    made = []
    while iterator.hasNext():
        made.append(iterator.next())
    return made
