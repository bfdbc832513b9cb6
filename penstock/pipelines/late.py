"""Rows that come too late: exactly those that a stateful step drops, to a topic and as a count, each once.

A step drops what lies at or below a watermark that Spark notes before it runs the batch. So each batch reads its own
range of records once more as a plain table, up to the step, and asks the same question with the same watermark: a
repetition of the batch, also by another process, finds the same rows. Decision 0015 tells more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.pipelines import guards, plan
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.checkpoint import QueryState
from penstock.pipelines.connectors.base import Context
from penstock.pipelines.formats.dead_letters import LETTER_SETTINGS, as_letters, header
from penstock.pipelines.isolation import ranges_of
from penstock.pipelines.needs import items
from penstock.pipelines.plan import Query
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spec import PipelineSpec, SpecError

LATE: Final = "late-rows"  # no sink can be named so
PREFIX: Final = "penstock.late."
_DELAY: Final = "spark.watermarkDelayMs"  # by which Spark marks columns with the event's time
_ALLOWS_MULTIPLE: Final = "spark.sql.streaming.statefulOperator.allowMultiple"
_AGGREGATE, _JOIN = "Aggregate", "Join"
_DEDUPLICATIONS: Final = ("Deduplicate", "DeduplicateWithinWatermark")
_WITH_STATE: Final = "TransformWithState"
_OTHER_STATE: Final = "FlatMapGroups"
_HELD_END: Final = "_end_ms"  # of the operator `suppress`, which itself refuses windows that are closed
_HELD_ROW: Final = "_row"
_NEVER_THE_SAME: Final = frozenset(
    {
        "Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "MonotonicallyIncreasingID", "SparkPartitionID",
        "CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentBatchTimestamp",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Watermarks:
    """Of one batch, in milliseconds: rows at or below `late_ms` are dropped, state at or below `closed_ms` ends."""

    late_ms: int
    closed_ms: int

    @classmethod
    def of(cls, read_offsets: Callable[[int], str | None], number: int) -> Watermarks:
        """By what Spark writes before it runs a batch. A step drops rows by the watermark of the batch before."""
        now = _metadata(read_offsets(number))
        before = _metadata(read_offsets(number - 1)) if number else None
        is_one_step = str((now or {}).get("conf", {}).get(_ALLOWS_MULTIPLE, "true")).lower() == "false"
        closed_ms = int((now or {}).get("batchWatermarkMs", 0))
        late = now if is_one_step else before or now
        return cls(int((late or {}).get("batchWatermarkMs", 0)), closed_ms)


def _metadata(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    found: dict[str, Any] = json.loads(text.splitlines()[1])
    return found


@dataclass(frozen=True)
class _Step:
    """One input of one stateful step that drops rows."""

    name: str
    index: int  # which of the plan's stateful nodes
    side: int  # which of its inputs
    column: int  # of that input: the event's time, or its window


class LateRows:
    """Of one query of a pipeline that asks for them."""

    def __init__(self, spec: PipelineSpec, context: Context, query: Query, rows: Any, state: QueryState) -> None:
        assert spec.late is not None
        self._spec, self._context, self._query, self._state = spec, context, query, state
        self.topic = spec.late_topic
        self._steps = list(_dropping(rows, query))
        self._kinds = [node.nodeName() for node, _ in _stateful(_analyzed(rows), query.view)]
        if self._steps:
            self._must_be_readable_again()
        self.total = _Count.read(state, query).total if state.folder is not None else 0

    @classmethod
    def wanted(
        cls, spec: PipelineSpec, context: Context, query: Query, rows: Any, state: QueryState
    ) -> LateRows | None:
        """None if the pipeline does not ask for late rows, or this query drops none."""
        if spec.late is None:
            return None
        if not guards.is_possible(context.spark):
            raise SpecError("late: the rows that a step drops are found in Spark's plans, which Connect does not give")
        found = cls(spec, context, query, rows, state)
        return found if found._steps else None

    @property
    def transactions(self) -> str:
        """The name under which the topic knows the batches."""
        return f"{self._state.prefix}{LATE}"

    def _must_be_readable_again(self) -> None:
        for name in sorted(plan.lineage(self._spec, self._query.view) & set(self._spec.sources)):
            if self._spec.sources[name].connector != "topic":
                raise SpecError(f"late: source {name}: the records of a batch can be read again from topics only")

    def write(self, number: int, context: Context | None = None) -> None:
        """Before the sinks get the batch. `context`: of the rows that are left if others made a step raise."""
        context = context or self._context
        ranges = ranges_of(self._spec, self._query, self._state.offsets, number, context.retry_topic)
        records = sum(end - begin[key] for begin, ends in ranges.values() for key, end in ends.items())
        marks = Watermarks.of(self._state.offsets, number)
        count = 0
        if records and max(marks.late_ms, marks.closed_ms) > 0:
            again = replace(context, spark=context.spark.newSession(), ranges=ranges)
            late = self._letters(again, marks).persist()
            try:
                count = late.count()
                if count:
                    self._send(late, number)
            finally:
                late.unpersist()
        self.total = _Count.read(self._state, self._query).with_batch(number, count).write(self._state, self._query)

    def _send(self, late: Any, number: int) -> None:
        client = client_for(self._context.properties)
        client.run(lambda inner: ensure_topic(inner, self.topic, settings=LETTER_SETTINGS))
        named = {"topic": self.topic, "txnAppId": self.transactions, "txnVersion": str(number)}
        options = {**self._context.spark_options, **named}
        late.write.format("penstock").options(**options).mode("append").save()

    def _letters(self, context: Context, marks: Watermarks) -> Any:
        graph = plan.build(self._spec, context)
        nodes = [node for node, _ in _stateful(_analyzed(graph.tables[self._query.view]), self._query.view)]
        if [node.nodeName() for node in nodes] != self._kinds:
            raise SpecError(f"late: query {self._query.name} is planned otherwise for a second reading; leave late out")
        made = None
        for step in self._steps:
            rows = _late_of(context.spark, items(nodes[step.index].children())[step.side], step.column, marks)
            letters = as_letters(rows, self._headers(step, marks))
            made = letters if made is None else made.unionByName(letters)
        return made

    def _headers(self, step: _Step, marks: Watermarks) -> list[Any]:
        from pyspark.sql import functions as F  # noqa: N812

        return [
            header(f"{PREFIX}pipeline", F.lit(self._spec.name)),
            header(f"{PREFIX}query", F.lit(self._query.name)),
            header(f"{PREFIX}step", F.lit(step.name)),
            header(f"{PREFIX}time", F.unix_millis("_late_at")),
            header(f"{PREFIX}watermark", F.lit(marks.late_ms)),
        ]


# --- which steps drop ---


def _dropping(rows: Any, query: Query) -> Iterator[_Step]:
    """The steps that drop late rows: the first ones. Spark hands watermarks on so that later steps drop nothing."""
    root = _analyzed(rows)
    for index, (node, view) in enumerate(_stateful(root, query.view)):
        if not _is_streaming(node) or any(_is_streaming(inner) for inner, _ in _below(node, view)):
            continue
        kind = node.nodeName()
        if kind.startswith(_OTHER_STATE):
            raise SpecError(f"late: view {view}: which rows applyInPandasWithState drops is not known; leave late out")
        if kind == _AGGREGATE and query.output_mode == "complete":
            continue  # keeps everything
        for side, child in enumerate(items(node.children())):
            time = _time_of(node, child) if child.isStreaming() else None
            if time is None or (kind in (_JOIN, *_DEDUPLICATIONS) and not _is_kept(rows, root, time)):
                continue
            _insist_on_the_same(child, view)
            column = [item.exprId().id() for item in items(child.output())].index(time.exprId().id())
            yield _Step(f"view {view}", index, side, column)


def _analyzed(rows: Any) -> Any:
    return rows._jdf.queryExecution().analyzed()


def _stateful(node: Any, view: str) -> list[tuple[Any, str]]:
    """Every node that may keep state, from the top, and the view that it belongs to."""
    kind = node.nodeName()
    if kind == "SubqueryAlias":
        view = str(node.alias())
    is_one = kind in (_AGGREGATE, _JOIN, "Distinct", *_DEDUPLICATIONS) or kind.startswith((_WITH_STATE, _OTHER_STATE))
    return [*([(node, view)] if is_one else []), *_below(node, view)]


def _below(node: Any, view: str) -> list[tuple[Any, str]]:
    return [found for child in items(node.children()) for found in _stateful(child, view)]


def _is_streaming(node: Any) -> bool:
    if node.nodeName() == _JOIN:  # with a table at one side it keeps nothing
        return all(child.isStreaming() for child in items(node.children()))
    return bool(node.isStreaming())


def _time_of(node: Any, child: Any) -> Any | None:
    """The column by which Spark tells that a row is late."""
    columns = items(node.groupingExpressions()) if node.nodeName() == _AGGREGATE else items(child.output())
    for column in columns:
        if column.nodeName() == "AttributeReference" and column.metadata().contains(_DELAY):
            return column
    return None


def _is_kept(rows: Any, root: Any, time: Any) -> bool:
    """Spark drops by a column only if the step or anything behind it needs that: else it is not there any more."""
    optimized = rows.sparkSession._jsparkSession.sessionState().optimizer().execute(root)
    number = time.exprId().id()
    steps = [node for node, _ in _stateful(optimized, "") if node.nodeName() in (_JOIN, *_DEDUPLICATIONS)]
    inputs = [child for node in steps for child in items(node.children())]
    return any(item.exprId().id() == number for child in inputs for item in items(child.output()))


def _insist_on_the_same(node: Any, view: str) -> None:
    for expression in _expressions(node):
        if expression.nodeName() in _NEVER_THE_SAME:
            raise SpecError(
                f"late: view {view}: the records of a batch are read a second time, and {expression.sql()} gives"
                " something else then; take the time from the record"
            )


def _expressions(node: Any) -> Iterator[Any]:
    waiting = items(node.expressions())
    while waiting:
        item = waiting.pop()
        yield item
        waiting += items(item.children())
    for child in items(node.children()):
        yield from _expressions(child)


# --- which rows ---


def _late_of(spark: Any, child: Any, column: int, marks: Watermarks) -> Any:
    """The rows of a step's input that it drops, with the time that decided as `_late_at`."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = guards.frame_of(spark, child)
    names = _different(rows.columns)
    rows = rows.toDF(*names)
    is_window = rows.schema[column].dataType.typeName() == "struct"
    at = F.col(f"`{names[column]}`.end") if is_window else F.col(f"`{names[column]}`")
    mark = F.timestamp_millis(F.lit(marks.late_ms))
    if is_window and _is_expanded(child):
        # Each row stands here once per window that it is in; it is late if it is too late for all of them.
        others = [F.col(f"`{name}`") for number, name in enumerate(names) if number != column]
        windows = F.countDistinct(F.col(f"`{names[column]}`"))
        rows = rows.groupBy(*others).agg(F.max(at).alias("_late_at"), (F.count(F.lit(1)) / windows).alias("_copies"))
        rows = rows.where(F.col("_late_at") <= mark)
        rows = rows.withColumn("_copies", F.explode(F.sequence(F.lit(1), F.col("_copies").cast("int"))))
    else:
        rows = rows.withColumn("_late_at", at)
        is_late = F.col("_late_at") <= mark
        if _HELD_END in names:
            is_late = is_late | (F.col(_HELD_END) <= marks.closed_ms)
        rows = rows.where(is_late)
        if is_window and names[column] in ("window", "session_window"):  # Spark's own, of the step
            rows = rows.drop(names[column])
    return rows.select("*", f"{_HELD_ROW}.*") if _HELD_END in names and _HELD_ROW in names else rows


def _is_expanded(node: Any) -> bool:
    while node.nodeName() == "Filter":
        node = node.child()
    return bool(node.nodeName() == "Expand")


def _different(names: list[str]) -> list[str]:
    made: list[str] = []
    for name in names:
        made.append(name if name not in made else f"{name}_{len(made)}")
    return made


# --- how many ---


@dataclass(frozen=True)
class _Count:
    """Late rows of all batches before the newest one, and of that one: a repeated batch counts once."""

    before: int = 0
    batch: int = -1
    late: int = 0

    @property
    def total(self) -> int:
        return self.before + self.late

    @classmethod
    def read(cls, state: QueryState, query: Query) -> _Count:
        assert state.folder is not None
        text = state.folder.read_text(f"late/{query.name}.json")
        return cls() if text is None else cls(**json.loads(text))

    def with_batch(self, number: int, late: int) -> _Count:
        return _Count(self.before if number == self.batch else self.total, number, late)

    def write(self, state: QueryState, query: Query) -> int:
        assert state.folder is not None
        state.folder.write_text(f"late/{query.name}.json", json.dumps(vars(self)))
        return self.total
