"""After a row has made a step raise: each batch without the rows that do, and those rows as dead letters.

A healthy pipeline pays nothing. When a query fails of a row's fault, all queries of the pipeline start again with
guards before their steps (guards.py). Each batch then reads its own range of records once more as a plain table, to see
whom the guards held back: those go to the dead-letter topic under the number of the batch; a repetition adds nothing.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.pipelines import guards, plan
from penstock.pipelines.connectors.base import Batch, Context
from penstock.pipelines.formats.dead_letters import raised
from penstock.pipelines.plan import Graph, Query
from penstock.pipelines.spark.source_offsets import StreamOffset, TopicPartition
from penstock.pipelines.spec import PipelineSpec

LETTERS: Final = "dead-letters"  # no sink can be named so
_HEADER_LINES: Final = 2  # of Spark's offset files: version and settings
_DATA_EXCEPTION: Final = re.compile(r"SQLSTATE: 22\w{3}")
_MARKED: Final = re.compile(r"== SQL [^\n]*==\n(?P<text>[^\n]*)\n(?P<marks>[ ^]*\^)")

Ranges = Mapping[str, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]]
"""Source → where the batch begins and ends in each partition."""


class TooManyErrors(Exception):
    """More rows than `max_error_rate` allows made a step raise."""


class RowsDiffer(Exception):
    """A batch holds other rows than its records give: nothing of it is written."""


def is_rows_fault(error: BaseException, spec: PipelineSpec) -> bool:
    """Whether a value made an expression or a function of the user raise."""
    text = str(error)
    if _DATA_EXCEPTION.search(text):
        return True
    return "exception was thrown from the Python worker" in text and any(view.python for view in spec.views.values())


def can_isolate(spec: PipelineSpec, spark: Any) -> bool:
    """Ranges of records can be read again from topics only, and plans be changed on classic Spark only."""
    is_wanted = spec.settings.on_row_error == "dead-letter"
    return is_wanted and guards.is_possible(spark) and all(item.connector == "topic" for item in spec.sources.values())


def blamed(error: BaseException, spec: PipelineSpec) -> str:
    """The step and the expression that Spark's message marks, as far as it does."""
    found = _MARKED.search(str(error))
    if found is None:
        return ""
    first = found["marks"].index("^")
    fragment = found["text"][first : len(found["marks"])].strip()
    short = re.sub(r"\s+", " ", fragment)
    for name, view in spec.views.items():
        if view.sql is not None and short in re.sub(r"\s+", " ", view.sql):
            return f"view {name}, {short}: "
    return f"{short}: "


@dataclass
class ErrorRate:
    """Rows and errors of the last batches, as many as hold the last `window` rows."""

    limit: float | None
    window: int
    _batches: collections.deque[tuple[int, int, int]] = field(default_factory=collections.deque)  # number, rows, errors

    def take(self, number: int, rows: int, errors: int) -> None:
        """TooManyErrors if this batch is the one too many. A repeated batch counts once."""
        while self._batches and self._batches[-1][0] >= number:
            self._batches.pop()
        self._batches.append((number, rows, errors))
        while sum(item[1] for item in list(self._batches)[1:]) >= self.window:
            self._batches.popleft()
        total, failed = sum(item[1] for item in self._batches), sum(item[2] for item in self._batches)
        rate = failed / max(self.window, total)
        if self.limit is not None and rate > self.limit:
            raise TooManyErrors(
                f"{failed} of the last {max(self.window, total)} rows made a step raise, more than max_error_rate"
                f" {self.limit:g} allows: batch {number} is not committed. Repair the step or raise the limit"
            )


class Isolation:
    """One per run of a pipeline, from its first row that made a step raise.

    Guards of each query try what that query computes: with them it gives the rows that it gives without them, so that
    it does not matter which of its batches, repeated ones among them, come with guards.
    """

    def __init__(self, spec: PipelineSpec, context: Context) -> None:
        self._spec, self._context = spec, context
        self._contexts: dict[str, Context] = {}
        self._rates: dict[str, ErrorRate] = {}

    def rows(self, query: Query) -> Any:
        """Of the query's view, without those that make raise what the query computes."""
        return guarded_rows(self._spec, query, plan.build(self._spec, self._guarded(query)), self._guarded(query))

    def dead_letters(self) -> Any:
        return plan.dead_letter_rows(plan.build(self._spec, self._guarded(None)))

    def _guarded(self, query: Query | None) -> Context:
        name = "" if query is None else query.name
        if name not in self._contexts:
            self._contexts[name] = guarded_context(self._spec, query, self._context)
        return self._contexts[name]

    def writer(self, item: Any, is_streamed: bool) -> Callable[[Any, int], None]:
        """For foreachBatch. `is_streamed`: topics know the query's batches by the name of the query."""
        settings = self._spec.settings
        rate = self._rates[item.query.name] = ErrorRate(settings.max_error_rate, settings.error_window)

        def write(rows: Any, number: int) -> None:
            state, context = item.state, self._guarded(item.query)
            batch = Batch(state.identity, number, state.is_backfill and number == 0, state.prefix, state.is_anew)
            rows = rows.persist()
            try:
                rows.createOrReplaceTempView("batch_of_the_sink")
                table = rows.sparkSession.table("batch_of_the_sink")
                prepared = {sink: guards.guarded(sink.prepare(table), f"sink {sink.name}") for sink in item.sinks}
                held = [guard for _, found in prepared.values() for guard in found]
                ranges = ranges_of(self._spec, item.query, item.state.offsets, number, context.retry_topic)
                letters = self._letters(item.query, ranges, rows, held).persist()
                try:
                    count = letters.count()
                    records = sum(end - begin[key] for begin, ends in ranges.values() for key, end in ends.items())
                    rate.take(number, records, count)
                    if count:
                        named = {"txnAppId": f"{state.prefix}{LETTERS}", "txnVersion": str(number)}
                        options = {**context.spark_options, "topic": self._spec.dead_letter_topic, **named}
                        letters.write.format("penstock").options(**options).mode("append").save()
                finally:
                    letters.unpersist()
                if item.late is not None:
                    item.late.write(number, context)
                for sink, (made, _) in prepared.items():
                    sink.write(made, replace(batch, whole_name=state.name) if is_streamed else batch)
            finally:
                rows.unpersist()

        return write

    def _letters(self, query: Query, ranges: Ranges, rows: Any, held: list[guards.Guard]) -> Any:
        """What the guards of this batch hold back, in the shape of a topic."""
        context = self._guarded(query)
        again = plan.build(self._spec, replace(context, spark=guards.session(context.spark), ranges=ranges))
        self._must_agree(again, query, rows)
        return letters_of(self._spec, query, rows.sparkSession, again, held)

    def _must_agree(self, again: Graph, query: Query, rows: Any) -> None:
        """Rows in are rows out, filtered or letters: counted a second time, where no state is between."""
        table = again.tables[query.view]
        if guards.keeps_state(table):
            return
        expected, found = table.count(), rows.count()
        if expected != found:
            raise RowsDiffer(
                f"query {query.name}: the batch has {found} rows, its records give {expected}; none is written."
                " A step that gives other rows each time (rand(), the current time in a filter) cannot be isolated:"
                " settings.on_row_error: fail stops at the first error instead"
            )


def guarded_context(spec: PipelineSpec, query: Query | None, context: Context) -> Context:
    """In which a query (None: that of the dead letters) is planned with guards."""
    wanted = plan.needed(spec, query, context)
    return replace(context, spark=guards.session(context.spark), guarded=True, needed=wanted)


def guarded_rows(spec: PipelineSpec, query: Query, graph: Graph, context: Context) -> Any:
    wanted = None if context.needed is None else context.needed[query.view]
    return guards.computed(graph.tables[query.view], wanted, spec.sources)


def letters_of(spec: PipelineSpec, query: Query, spark: Any, graph: Graph, held: list[guards.Guard]) -> Any:
    """What the guards of a query hold back, those of its sinks included (`held`), in the shape of a topic.

    Each query tells of its own rows, also where queries share a view: another one may be ahead, and may have passed the
    same records without guards, because it needs nothing of what raises.
    """
    from pyspark.sql import functions as F  # noqa: N812

    steps = plan.lineage(spec, query.view)
    named = {f"view {step}" for step in steps} | {item.step for item in spec.expectations if item.view in steps}
    mine = [guard for guard in graph.guards if guard.step in named]
    made = [raised(guard, spec.name, query.name) for guard in [*mine, *held]]
    none = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, copies BIGINT"
    letters, content = spark.createDataFrame([], none), ("key", "value", "headers")
    for more in made:
        letters = letters.unionByName(more.groupBy(*content).agg(F.count(F.lit(1)).alias("copies")))
    # A step may stand twice in one plan (UNION ALL) and hold back a row in both places; equal rows stay as many.
    letters = letters.groupBy(*content).agg(F.max("copies").alias("copies"))
    return letters.select(*content, F.explode(F.sequence(F.lit(1), F.col("copies").cast("int")))).select(*content)


def ranges_of(
    spec: PipelineSpec, query: Query, read_offsets: Callable[[int], str | None], number: int, retry_topic: str
) -> Ranges:
    """What a batch reads of each source, by the files that Spark writes before it runs the batch."""
    ends, begins = _stored(read_offsets(number)), _stored(read_offsets(number - 1)) if number else []
    lines = []
    for index, end in enumerate(ends):
        before = begins[index] if index < len(begins) else None
        if end is not None:
            start = (before or StreamOffset({}, is_initial=True)).start_for(end)
            lines.append((start.offsets, end.offsets))
    made: dict[str, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]] = {}
    waiting = list(lines)
    for name in sorted(plan.lineage(spec, query.view) & set(spec.sources), key=list(spec.sources).index):
        fitting = [line for line in [*waiting, *lines] if _is_of(spec.sources[name].options, line[1], retry_topic)]
        if fitting:
            first, last = fitting[0]
            made[name] = ({key: first.get(key, last[key]) for key in last}, last)
            waiting = [line for line in waiting if line is not fitting[0]]
    return made


def _stored(text: str | None) -> list[StreamOffset | None]:
    if text is None:
        return []
    lines = text.splitlines()[_HEADER_LINES:]
    return [StreamOffset.from_json(json.loads(line)) if line.startswith("{") else None for line in lines]


def _is_of(options: Mapping[str, Any], ends: Mapping[TopicPartition, int], retry_topic: str) -> bool:
    topics = {topic for topic, _ in ends} - {retry_topic}
    if options.get("pattern"):
        return all(re.fullmatch(options["pattern"], topic) for topic in topics)
    return topics <= {*options.get("topics", ()), options.get("topic")}
