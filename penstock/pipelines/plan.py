"""From a spec to Spark's query graph: sources loaded, views made in the order in which they stand, sinks attached.

Sinks of one view share a query, so that what leads to the view is computed once. Records that cannot be used leave
through a query of their own, `dead-letters`: it reads the same records and decodes them in the same way, so that each
record ends in exactly one place, once.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.pipelines import connectors, guards, needs, operators
from penstock.pipelines.connectors.base import Context, Loaded, Sink
from penstock.pipelines.durations import spark_interval
from penstock.pipelines.formats.dead_letters import rejected
from penstock.pipelines.problems import reason_of
from penstock.pipelines.secrets import SecretError, resolve
from penstock.pipelines.spec import Expectation, PipelineSpec, SpecError, ViewSpec, Watermark, validated
from penstock.pipelines.spec_python import load_module

DEAD_LETTERS: Final = "dead-letters"


@dataclass(frozen=True)
class Query:
    """Which sinks run together."""

    name: str
    view: str
    sinks: tuple[str, ...]
    output_mode: str


@dataclass
class Graph:
    """All tables of a pipeline."""

    tables: dict[str, Any] = field(default_factory=dict)
    bad: list[Any] = field(default_factory=list)
    guards: list[guards.Guard] = field(default_factory=list)  # if the context asks for them: whom steps would raise at
    identities: dict[str, str] = field(default_factory=dict)  # source → what its offsets belong to
    schemas: dict[str, str] = field(default_factory=dict)  # view of an operator → what it gives


def queries(spec: PipelineSpec) -> list[Query]:
    """The queries that write to sinks; that of the dead letters comes on top if the graph has any."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, sink in spec.sinks.items():
        groups.setdefault((sink.from_, sink.output_mode), []).append(name)
    return [Query("+".join(sinks), view, tuple(sinks), output_mode) for (view, output_mode), sinks in groups.items()]


def lookups(spec: PipelineSpec) -> frozenset[str]:
    """Sources that lead to the table of a join-latest: without its table, its stream would find nothing."""
    tables = [view.from_[1] for view in spec.views.values() if view.operator == "join-latest" and len(view.from_) == 2]
    return frozenset(lineage(spec, *tables) & set(spec.sources))


def lineage(spec: PipelineSpec, *tables: str) -> set[str]:
    """These tables and all that they are made of."""
    found = set(tables)
    while True:
        more = {name for table in found if table in spec.views for name in _reads(spec, table)}
        if more <= found:
            return found
        found |= more


def _reads(spec: PipelineSpec, name: str) -> set[str]:
    """The tables that a view reads, or may read as far as its text says."""
    view = spec.views[name]
    if view.from_:
        return set(view.from_)
    known = {*spec.sources, *spec.views} - {name}
    return known & set(re.findall(r"\w+", view.sql)) if view.sql is not None else known


def build(spec: PipelineSpec, context: Context) -> Graph:
    """Every table of the pipeline; SpecError names the part that does not work."""
    _load_modules(spec)
    graph = Graph()
    for name, source in spec.sources.items():
        with blaming(f"source {name}"):
            kind = connectors.source(source.connector)
            options = validated(kind.Options, _resolved(source.options), ("sources", name))
            made = kind(name, options, context)
            loaded: Loaded = made.load()
            graph.identities[name] = made.identity()
            if loaded.bad is not None:
                graph.bad.append(loaded.bad)
            _add(graph, spec, context, name, _watched(loaded.rows, source.watermark, f"source {name}"))
    for name, view in spec.views.items():
        with blaming(f"view {name}"):
            for made_name, made in _view(name, view, graph, context).items():
                rows = made
                if context.guarded:
                    wanted = None if context.needed is None else context.needed.get(made_name)
                    rows, found = guards.guarded(made, f"view {name}", wanted, spec.sources)
                    graph.guards += found
                if view.operator is not None:
                    graph.schemas[made_name] = rows.schema.simpleString()
                watched = _watched(rows, view.watermark, f"view {name}") if made_name == name else rows
                _add(graph, spec, context, made_name, watched)
    return graph


def make_sink(spec: PipelineSpec, name: str, context: Context) -> Sink:
    sink = spec.sinks[name]
    kind = connectors.sink(sink.connector)
    with blaming(f"sink {name}"):
        return kind(name, validated(kind.Options, _resolved(sink.options), ("sinks", name)), context)


def dead_letter_rows(graph: Graph) -> Any | None:
    """All records that cannot be used, in the shape of a topic; None if there can be none."""
    if not graph.bad:
        return None
    rows = graph.bad[0]
    for more in graph.bad[1:]:
        rows = rows.unionByName(more)
    return rows


# --- tables ---


def _add(graph: Graph, spec: PipelineSpec, context: Context, name: str, rows: Any) -> None:
    for expectation in spec.expectations:
        if expectation.view == name:
            rows = _expecting(graph, spec, context, name, rows, expectation)
    rows.createOrReplaceTempView(name)
    # By its name, guards of a step see where the step begins.
    graph.tables[name] = context.spark.table(name) if context.guarded or context.is_named else rows


def _expecting(
    graph: Graph, spec: PipelineSpec, context: Context, name: str, rows: Any, expectation: Expectation
) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    with blaming(f"expectation {expectation.label!r}"):
        # Not known is not met.
        holds = F.coalesce(F.expr(expectation.condition).cast("boolean"), F.lit(False))
        if context.guarded:
            rows = _guarded_condition(graph, spec, context, name, rows, holds, expectation)
        if expectation.action == "fail":
            message = f"expectation {expectation.label!r} of {name} is not met: {expectation.condition}"
            return rows.where(F.when(holds, F.lit(True)).otherwise(F.raise_error(F.lit(message))))
        if expectation.action == "dead-letter":
            graph.bad.append(
                rejected(rows.where(~holds), expectation.label, expectation.condition, context.pipeline, name)
            )
            if name not in spec.sources and guards.is_possible(context.spark):
                holds = F.when(_computed(rows.columns), holds)  # with AND, Spark would take the two apart
        return rows.where(holds)


def _computed(columns: list[str]) -> Any:
    """Always true, and only to be said of rows whose columns are all computed.

    A row that does not meet an expectation goes to the dead letters with all its columns. If computing them raises
    there, it must raise here, too: this query tells of the row then. Else Spark would ask the condition first.
    """
    from pyspark.sql import functions as F  # noqa: N812

    absent = F.array(*[F.col(f"`{name}`").isNull() for name in columns])
    # Spark moves no condition that is not deterministic; this is the cheapest of them, and the same each time.
    return F.array_position(absent, F.input_file_name() == "") >= 0


def needed(spec: PipelineSpec, query: Query | None, context: Context) -> dict[str, frozenset[str]]:
    """Table → its columns that a query computes; None: that of the dead letters."""
    named = replace(context, spark=context.spark.newSession(), is_named=True, guarded=False, ranges={})
    graph = build(spec, named)
    if query is None:
        bad = dead_letter_rows(graph)
        found = needs.needed([] if bad is None else [bad], graph.tables)
        judged = [item.view for item in spec.expectations if item.action == "dead-letter"]
        return found | {view: frozenset(graph.tables[view].columns) for view in judged}
    rows = graph.tables[query.view]
    prepared = [make_sink(spec, name, named).prepare(rows) for name in query.sinks]
    return needs.needed(prepared, graph.tables)


def _guarded_condition(
    graph: Graph, spec: PipelineSpec, context: Context, name: str, rows: Any, holds: Any, expectation: Expectation
) -> Any:
    """The rows for which the condition can be evaluated; behind a name, so that guards of views end there."""
    before, after = (f"_{name}_{word}_{len(graph.guards)}" for word in ("before", "after"))
    rows.createOrReplaceTempView(before)
    wanted = None if context.needed is None else context.needed.get(name)
    kept, found = guards.evaluable(context.spark.table(before), holds, expectation.step, wanted, spec.sources)
    graph.guards += found
    kept.createOrReplaceTempView(after)
    return context.spark.table(after)


def _watched(rows: Any, watermark: Watermark | None, who: str) -> Any:
    if watermark is None:
        return rows
    kinds = {item.name: item.dataType.simpleString() for item in rows.schema.fields}
    if watermark.column not in kinds:
        raise SpecError(f"{who}: the watermark's column {watermark.column!r} is not among {', '.join(kinds)}")
    if not kinds[watermark.column].startswith("timestamp"):
        raise SpecError(
            f"{who}: the watermark's column {watermark.column!r} is {kinds[watermark.column]}, no timestamp"
        )
    return rows.withWatermark(watermark.column, spark_interval(watermark.delay))


def _view(name: str, view: ViewSpec, graph: Graph, context: Context) -> Mapping[str, Any]:
    if view.sql is not None:
        return {name: context.spark.sql(view.sql)}
    if view.operator is not None:
        kind = operators.find(view.operator)
        operator = kind(name, validated(kind.Options, _resolved(view.options), ("views", name)))
        made: Mapping[str, Any] = operator.apply([graph.tables[item] for item in view.from_])
        return made
    assert view.python is not None
    return {name: _call(name, view, graph)}


def _call(name: str, view: ViewSpec, graph: Graph) -> Any:
    from pyspark.sql import DataFrame

    module_name, _, function_name = str(view.python).partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"view {name}: {view.python}: {error}") from None
    wanted = view.from_ or tuple(inspect.signature(function).parameters)
    missing = [item for item in wanted if item not in graph.tables]
    if missing:
        raise SpecError(f"view {name}: {view.python} reads {missing[0]!r}, which is not declared above it")
    made = function(*[graph.tables[item] for item in wanted])
    if not isinstance(made, DataFrame):
        raise SpecError(f"view {name}: {view.python} returned {type(made).__name__}, not a DataFrame")
    return made


def _load_modules(spec: PipelineSpec) -> None:
    from pyspark import cloudpickle

    for name, code in spec.modules.items():
        if name not in sys.modules:
            load_module(name, code)
        # The executors have no such module: its functions travel whole.
        cloudpickle.register_pickle_by_value(sys.modules[name])


def _resolved(options: Mapping[str, Any]) -> Any:
    try:
        return resolve(dict(options))
    except SecretError as error:
        raise SpecError(str(error)) from None


class blaming:  # noqa: N801 - used like a function
    """Whatever Spark says inside becomes one line that names the part of the pipeline."""

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, SpecError):
            text = error.message
            if text.startswith(("source ", "view ", "sink ", "expectation ")):
                return
            raise SpecError(f"{self._who}: {text}", error.path) from error
        raise SpecError(f"{self._who}: {reason_of(error)}") from error
