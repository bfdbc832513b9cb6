"""Steps evaluated so that a row that raises leaves by itself: a filter before each one lets pass what does not.

Works on Spark's analyzed plan (classic Spark only): below every projection, filter, explode, aggregate and join that
stands before any state, a filter tries the same expressions. `tryeval` gives null for what raised, so an expression is
tried inside a struct, which is never null itself: NULL as a result stays a result. What nobody needs is not tried
(needs.py). Decision 0014 tells why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines import needs
from penstock.pipelines.needs import Wanted, items

_HARMLESS: Final = frozenset(
    {"AttributeReference", "Literal", "IsNull", "IsNotNull", "GetStructField", "OuterReference"}
)
_STATEFUL: Final = (
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Join", "GlobalLimit", "Window",
)  # fmt: skip
_ROW_BY_ROW: Final = (100, 101)  # Spark's numbers for Python functions of one row
# Subexpressions that a guard and its step share would be computed outside of the guard.
SETTINGS: Final = {"spark.sql.subexpressionElimination.enabled": "false"}


@dataclass(frozen=True)
class Guard:
    """One filter: the rows that it holds back, and what was tried."""

    step: str
    expressions: tuple[str, ...]
    rows: Any  # before the filter, with `_raised`: which of the expressions raised


def is_possible(spark: Any) -> bool:
    """Spark Connect hands out no plans."""
    return hasattr(spark, "_jsparkSession")


def session(spark: Any) -> Any:
    """One for guarded plans, without the views of others."""
    made = spark.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made


def computed(rows: Any, needed: frozenset[str] | None, sources: Iterable[str]) -> Any:
    """The same rows without columns that nobody needs, and that nobody guards, if those could raise."""
    plan = rows._jdf.queryExecution().analyzed()
    kept = needs.safe(plan, needs.called(plan, needed), _is_harmless, frozenset(sources))
    return rows if len(kept) == len(rows.columns) else rows.select(*[f"`{item.name()}`" for item in kept])


def guarded(
    rows: Any, step: str, needed: frozenset[str] | None = None, sources: Iterable[str] = ()
) -> tuple[Any, list[Guard]]:
    """The same rows without those for which a step above the nearest named tables raises, and what was held back.

    `needed`: the columns that anybody computes; all unless given.
    """
    surgeon = _Surgeon(rows.sparkSession, step, frozenset(sources))
    plan = rows._jdf.queryExecution().analyzed()
    plan = surgeon.walk(plan, needs.called(plan, needed))
    return (surgeon.frame(plan) if surgeon.guards else rows), surgeon.guards


def evaluable(
    rows: Any, condition: Any, step: str, needed: frozenset[str] | None = None, sources: Iterable[str] = ()
) -> tuple[Any, list[Guard]]:
    """All rows but those for which the condition raises, whether it holds or not, and what was held back."""
    kept, found = guarded(rows.where(condition), step, needed, sources)
    if not found:
        return rows, []
    return frame_of(rows.sparkSession, kept._jdf.queryExecution().analyzed().child()), found


def frame_of(spark: Any, plan: Any) -> Any:
    """The rows of a plan, or of a part of one."""
    from pyspark.sql import DataFrame

    made = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(made, spark)


class _Surgeon:
    def __init__(self, spark: Any, step: str, sources: frozenset[str]) -> None:
        self._spark, self._step, self._sources = spark, step, sources
        self._jvm = spark._jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._e = self._catalyst.expressions
        self.guards: list[Guard] = []

    def frame(self, plan: Any) -> Any:
        return frame_of(self._spark, plan)

    def walk(self, node: Any, wanted: Wanted) -> Any:
        kind = node.nodeName()
        if kind == "View":  # a table of the pipeline, which has guards of its own
            return node
        asked = needs.of_children(node, wanted)
        children = [self.walk(child, of_child) for child, of_child in zip(items(node.children()), asked, strict=True)]
        if children and not any(_keeps_state(child) for child in items(node.children())):
            risky = self._risky(node, kind, wanted)
            children = [self._guard(*each) for each in zip(children, risky, asked, strict=True)]
        return node.withNewChildren(self._seq(children)) if children else node

    # --- what may raise ---

    def _risky(self, node: Any, kind: str, wanted: Wanted) -> list[list[Any]]:
        """For each child, the expressions over it that the step evaluates."""
        if kind == "Project":
            return [_worth_trying(needs.chosen(items(node.projectList()), wanted))]
        if kind == "Filter":
            return [_worth_trying(items(node.expressions()))]
        if kind == "Generate":
            return [_worth_trying(items(node.generator().children()))]
        if kind == "Aggregate":
            inside = [
                argument
                for expression in _all(needs.chosen(items(node.aggregateExpressions()), wanted))
                if expression.nodeName() == "AggregateExpression"
                for argument in self._arguments(expression)
            ]
            return [_worth_trying([*items(node.groupingExpressions()), *inside])]
        sides = items(node.children())
        if kind == "Join" and node.condition().isDefined():
            parts = _conjuncts(node.condition().get())
            equal = [item for item in parts if item.nodeName() in ("EqualTo", "EqualNullSafe")]
            keys = [key for item in equal for key in items(item.children())]
            return [
                _worth_trying([key for key in keys if key.references().subsetOf(side.outputSet())]) for side in sides
            ]
        return [[] for _ in sides]

    def _arguments(self, aggregate: Any) -> list[Any]:
        """What an aggregate computes of a row: with FILTER (WHERE …) the condition first, the rest where it holds."""
        arguments = items(aggregate.aggregateFunction().children())
        if not aggregate.filter().isDefined():
            return arguments
        holds = aggregate.filter().get()
        nothing = [self._e.Literal.create(None, argument.dataType()) for argument in arguments]
        inside = [self._e.If(holds, argument, no) for argument, no in zip(arguments, nothing, strict=True)]
        return [holds, *[made for made, argument in zip(inside, arguments, strict=True) if _worth_trying([argument])]]

    # --- filters ---

    def _guard(self, child: Any, expressions: Sequence[Any], wanted: Wanted) -> Any:
        if not expressions:
            return child
        shown = needs.safe(child, wanted, _is_harmless, self._sources)
        functions = [item for item in _all(expressions) if item.nodeName() == "PythonUDF"]
        for function in reversed(functions):  # the inner ones first
            child = self._barrier(child, _worth_trying(items(function.children())), shown, self._tried)
            if function.evalType() in _ROW_BY_ROW:
                child = self._barrier(child, [function], shown, self._called)
        rest = [item for item in expressions if item.nodeName() != "PythonUDF"]
        return self._barrier(child, rest, shown, self._tried)

    def _barrier(self, child: Any, expressions: Sequence[Any], shown: list[Any], attempt: Callable[[Any], Any]) -> Any:
        if not expressions:
            return child
        texts = tuple(str(item.sql()) for item in expressions)
        raised = [self._e.IsNull(attempt(item)) for item in expressions]
        told = [self._text_if(flag, text) for flag, text in zip(raised, texts, strict=True)]
        named = [self._alias(text, f"_raised{number}") for number, text in enumerate(told)]
        tried = self._catalyst.plans.logical.Project(self._seq([*shown, *named]), child)
        self.guards.append(Guard(self._step, texts, self.frame(tried)))
        held_back = raised[0]
        for flag in raised[1:]:
            held_back = self._e.Or(held_back, flag)
        # Not deterministic: so that Spark neither moves the step before the filter nor melts the two into one.
        passes = self._e.And(self._e.Not(held_back), self._always())
        return self._catalyst.plans.logical.Filter(passes, child)

    def _tried(self, expression: Any) -> Any:
        struct = self._e.CreateNamedStruct(self._seq([self._text("it"), expression]))
        return self._e.TryEval(struct)

    def _called(self, function: Any) -> Any:
        """A Python function's call as a text that is null if it raised."""
        from pyspark import cloudpickle
        from pyspark.sql.types import StringType
        from pyspark.sql.udf import UserDefinedFunction

        code = bytes(byte % 256 for byte in items(function.func().command()))
        call, _ = cloudpickle.loads(code)
        made = UserDefinedFunction(_answers(call), StringType(), deterministic=False)
        return made._judf.builder(function.children())

    def _always(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        return self._spark.range(1).where(F.uuid() != "")._jdf.queryExecution().analyzed().condition()

    def _text(self, value: str) -> Any:
        kinds = self._jvm.org.apache.spark.sql.types
        return self._e.Literal.create(value, getattr(getattr(kinds, "StringType$"), "MODULE$"))

    def _text_if(self, condition: Any, text: str) -> Any:
        kinds = self._jvm.org.apache.spark.sql.types
        nothing = self._e.Literal.create(None, getattr(getattr(kinds, "StringType$"), "MODULE$"))
        return self._e.If(condition, self._text(text), nothing)

    def _alias(self, expression: Any, name: str) -> Any:
        new_id = self._e.NamedExpression.newExprId()
        none = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        return self._e.Alias(expression, name, new_id, self._seq([]), none, self._seq([]))

    def _seq(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))


def _answers(call: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*arguments: Any) -> str | None:
        try:
            call(*arguments)
        except Exception:
            return None
        return "fine"

    attempt.__annotations__ = {}
    return attempt


def _all(expressions: Iterable[Any]) -> list[Any]:
    """The expressions and all that they are made of, outer ones first."""
    found = []
    waiting = list(expressions)
    while waiting:
        item = waiting.pop(0)
        found.append(item)
        waiting += items(item.children())
    return found


def _conjuncts(condition: Any) -> list[Any]:
    """What must hold each by itself; below OR and the like an expression may never be computed."""
    if condition.nodeName() != "And":
        return [condition]
    return [part for child in items(condition.children()) for part in _conjuncts(child)]


def _worth_trying(expressions: Iterable[Any]) -> list[Any]:
    made = []
    for expression in expressions:
        while expression.nodeName() == "Alias":
            expression = expression.child()
        if not _is_harmless(expression):
            made.append(expression)
    return made


def _is_harmless(expression: Any) -> bool:
    return all(item.nodeName() in _HARMLESS for item in _all([expression]))


def keeps_state(rows: Any) -> bool:
    return _keeps_state(rows._jdf.queryExecution().analyzed())


def _keeps_state(node: Any) -> bool:
    """Whether rows of a stream are held somewhere below: what comes from there cannot be computed again by itself."""
    kind = node.nodeName()
    if kind in _STATEFUL or kind.startswith(("TransformWithState", "FlatMapGroups")):
        return True
    return any(_keeps_state(child) for child in items(node.children()))
