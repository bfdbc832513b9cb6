"""Runs a pipeline's queries in this process: continuously, or until all that was there is done."""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.client.sync import SyncClient
from penstock.pipelines import ending, plan
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.checkpoint import PipelineState, QueryState
from penstock.pipelines.connectors.base import Batch, Context, Sink
from penstock.pipelines.durations import duration_ms
from penstock.pipelines.fingerprint import fingerprint, plan_text
from penstock.pipelines.formats.dead_letters import LETTER_SETTINGS
from penstock.pipelines.isolation import LETTERS, Isolation, blamed, can_isolate, is_rows_fault
from penstock.pipelines.late import LateRows
from penstock.pipelines.plan import DEAD_LETTERS, Query
from penstock.pipelines.problems import reason_of
from penstock.pipelines.progress import is_idle
from penstock.pipelines.secrets import resolve
from penstock.pipelines.sessions import fresh_session, is_remote, missing_executors
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.session import of_server
from penstock.pipelines.spec import PipelineSpec, SpecError
from penstock.pipelines.spec_check import ANSI, NULLS_FOR_ERRORS
from penstock.pipelines.storage import ReadOnly, is_local, storage

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 1.0  # at queries that run for ever: asking Spark costs more than an idle query does
START_SECONDS: Final = 30.0
MAX_SLOW_STARTS: Final = 20
EXECUTOR_SECONDS: Final = 20.0  # then a cluster that has sent nobody is worth a word
_INITIALIZING: Final = "Initializing sources"
_SLOW_WORKER: Final = "Python worker failed to connect back"


class PipelineFailed(Exception):
    """A query ended with an error: one line."""


@dataclass(frozen=True)
class Place:
    """Where a pipeline runs: its cluster and its state."""

    properties: Mapping[str, str]
    state_folder: str

    def state_of(self, spec: PipelineSpec, spark: Any = None) -> PipelineState:
        root = spec.settings.checkpoints or self.state_folder
        return PipelineState(storage(f"{root.rstrip('/')}/{spec.name}", spark), spec.name)

    def client(self, spec: PipelineSpec) -> SyncClient:
        return client_for({**self.properties, **resolve(spec.settings.kafka)})


@dataclass
class Prepared:
    """A query that is checked and ready to start."""

    query: Query
    rows: Any
    sinks: list[Sink]
    state: QueryState
    late: LateRows | None = None


@dataclass
class Execution:
    spec: PipelineSpec
    spark: Any
    place: Place
    keep: bool = True
    running: dict[str, Any] = field(default_factory=dict)  # query name → StreamingQuery
    _seen: dict[str, tuple[int, str]] = field(default_factory=dict)
    _begun: dict[str, Callable[[], None]] = field(default_factory=dict)  # query name → start it again
    _slow_starts: int = 0
    _until_caught_up: bool = False
    _planned: Context | None = None
    _late: dict[str, LateRows] = field(default_factory=dict)  # query name → the rows that it drops
    _isolation: Isolation | None = None  # since a row has made a step raise

    @classmethod
    def prepare(
        cls, spec: PipelineSpec, spark: Any, place: Place, *, keep: bool = True
    ) -> tuple[Execution, list[Prepared]]:
        """Build and check everything; nothing runs yet. Without `keep` nothing is written either."""
        execution = cls(spec, spark, place, keep=keep)
        if keep:
            ending.finish_endings(place.client(spec), spec.name, place.state_of(spec, spark))
        return execution, execution._prepare()

    # --- before ---

    def _context(self) -> Context:
        state = self.place.state_of(self.spec, self.spark)
        properties = {**self.place.properties, **resolve(self.spec.settings.kafka)}
        return Context(
            spark=fresh_session(self.spark),  # views of one pipeline must not meet those of another
            pipeline=self.spec.name,
            properties=properties,
            state=state.folder if self.keep else ReadOnly(state.folder),
            max_rows_per_trigger=self.spec.settings.max_rows_per_trigger,
            dead_letter_topic=self.spec.dead_letter_topic,
            from_beginning=state.from_beginning,
            lookups=plan.lookups(self.spec),
            unnamed_retries=next((name for name, item in self.spec.sources.items() if item.connector == "topic"), ""),
        )

    def _prepare(self) -> list[Prepared]:
        """One graph for all queries: each time Spark meets a Python source it starts processes to ask for its plan."""
        if str(self.spark.conf.get(ANSI)).lower() != "true":  # by spark-defaults.conf, or by whoever serves Connect
            raise SpecError(f"Spark runs with {ANSI}=false: {NULLS_FOR_ERRORS}")
        self._planned = context = self._context()
        graph = self._build(context)
        prepared = [self._prepare_query(query, graph, context) for query in plan.queries(self.spec)]
        if is_remote(self.spark):
            self._insist_on_what_a_server_can_do(prepared)
        if self.spec.late is not None and not any(item.late for item in prepared):
            raise SpecError(
                "late: no step drops rows; it needs a watermark and a window, join or the like that uses it"
            )
        bad = plan.dead_letter_rows(graph)
        if bad is not None:
            query = Query(DEAD_LETTERS, DEAD_LETTERS, (DEAD_LETTERS,), "append")
            prepared.append(Prepared(query, bad, [], self._open(query, bad, graph)))
        return prepared

    def _build(self, context: Context) -> plan.Graph:
        while True:
            try:
                return plan.build(self.spec, context)
            except SpecError as error:
                if _SLOW_WORKER not in str(error) or self._slow_starts >= MAX_SLOW_STARTS:
                    raise
                self._slow_starts += 1

    def _prepare_query(self, query: Query, graph: plan.Graph, context: Context) -> Prepared:
        rows = graph.tables[query.view]
        if not rows.isStreaming:
            raise SpecError(f"sink {query.sinks[0]}: {query.view} is a table that does not change; it needs a stream")
        sinks = [plan.make_sink(self.spec, name, context) for name in query.sinks]
        for sink in sinks:
            sink.check(rows.schema)
            with plan.blaming(f"sink {sink.name}"):
                sink.prepare(rows)  # an unknown column in a key or header shows here
        state = self._open(query, rows, graph)
        return Prepared(query, rows, sinks, state, LateRows.wanted(self.spec, context, query, rows, state))

    def _insist_on_what_a_server_can_do(self, prepared: list[Prepared]) -> None:
        """A Connect server was started by others; Python that gets each batch would run there, without our sinks."""
        for item in prepared:
            if self._native(item) is None:
                raise SpecError(
                    f"sink {', '.join(item.query.sinks)}: on a Spark Connect server a view feeds one topic, in append"
                    " mode. Other sinks, several for one view and output_mode: update need master: local[*] or spark://"
                )
        if names := of_server(self.spec.settings.spark):
            raise SpecError(f"settings.spark: {names[0]} is decided when the Spark Connect server starts: set it there")

    def _open(self, query: Query, rows: Any, graph: plan.Graph) -> QueryState:
        state = self.place.state_of(self.spec, self.spark)
        return state.open(query.name, self._fingerprint(query, rows, graph), keep=self.keep)

    def _fingerprint(self, query: Query, rows: Any, graph: plan.Graph) -> dict[str, Any]:
        views = plan.lineage(self.spec, query.view)
        return fingerprint(plan_text(rows), self.spec, views, graph.schemas, query.sinks, query.output_mode)

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Query → what its checkpoint would depend on. Nothing is checked against one, nothing is written."""
        graph = self._build(self._context())
        made = {
            query.name: self._fingerprint(query, graph.tables[query.view], graph) for query in plan.queries(self.spec)
        }
        bad = plan.dead_letter_rows(graph)
        if bad is not None:
            query = Query(DEAD_LETTERS, DEAD_LETTERS, (DEAD_LETTERS,), "append")
            made[query.name] = self._fingerprint(query, bad, graph)
        return made

    # --- running ---

    def start(self, prepared: list[Prepared], *, until_caught_up: bool = False) -> None:
        self._until_caught_up = until_caught_up or self.spec.trigger.available_now
        self._register([name for item in prepared for name in self._sink_names(item)])
        self._late = {item.query.name: item.late for item in prepared if item.late is not None}
        for item in prepared:
            if item.query.name == DEAD_LETTERS:
                self._ensure_dead_letter_topic()
            self._start_query(item, until_caught_up)
            self._begun[item.query.name] = functools.partial(self._start_query, item, until_caught_up)

    def _register(self, names: list[str]) -> None:
        """Whose transactions there will be, said before the first one opens."""
        client, state = self.place.client(self.spec), self.place.state_of(self.spec, self.spark)
        root = state.folder.root
        place = f"{socket.gethostname()}:{root}" if is_local(root) else root
        ending.end_abandoned(client, self.spec.name, place, state, names)
        ending.register(client, self.spec.name, place, names)

    def _sink_names(self, item: Prepared) -> list[str]:
        if item.query.name == DEAD_LETTERS:
            return [item.state.name]
        writing = [sink for sink in item.sinks if sink.opens_transactions()]
        is_streamed = bool(writing) and self._native(item) is not None
        errors = [f"{item.state.prefix}{LETTERS}", *([item.late.transactions] if item.late is not None else [])]
        return errors + [item.state.name if is_streamed else f"{item.state.prefix}{sink.name}" for sink in writing]

    def _native(self, item: Prepared) -> tuple[str, dict[str, str]] | None:
        """What Spark itself streams into; it lets no Python sink take anything but new rows."""
        if len(item.sinks) != 1 or item.query.output_mode != "append":
            return None
        return item.sinks[0].native()

    def _start_query(self, item: Prepared, until_caught_up: bool) -> None:
        writer = self._writer(item).outputMode(item.query.output_mode)
        writer = writer.queryName(f"{self.spec.name}.{item.query.name}")
        writer = writer.option("checkpointLocation", item.state.checkpoint)
        try:
            query = self.running[item.query.name] = self._trigger(writer, until_caught_up).start()
        except Exception as error:
            self.stop()
            raise SpecError(f"{item.query.name}: {reason_of(error)}") from error
        # One after the other: each start needs several Python processes, and Spark waits ten seconds for one, no more.
        deadline = time.monotonic() + START_SECONDS
        while query.isActive and query.status["message"] == _INITIALIZING and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 4)

    def _start_again(self, name: str, error: BaseException) -> bool:
        """A busy machine may need longer for a Python process than Spark waits: no fault of the pipeline."""
        if _SLOW_WORKER not in str(error) or self._slow_starts >= MAX_SLOW_STARTS:
            return False
        self._slow_starts += 1
        log.warning("query %s: Spark did not wait for its Python worker; starting the query again", name)
        self._begun[name]()
        return True

    def _isolate(self, name: str, error: BaseException) -> bool:
        """From now on rows that make a step raise go aside. The batch that failed comes again, with its number."""
        if self._isolation is not None or not is_rows_fault(error, self.spec):
            return False
        if not can_isolate(self.spec, self.spark):
            return False
        log.warning("query %s: %s%s", name, blamed(error, self.spec), reason_of(error))
        log.warning("%s: rows that make a step raise go to %s", self.spec.name, self.spec.dead_letter_topic)
        self.stop()
        self._ensure_dead_letter_topic()
        self._isolation = Isolation(self.spec, self._context())
        for begin in self._begun.values():
            begin()
        return True

    def _ensure_dead_letter_topic(self) -> None:
        self.place.client(self.spec).run(
            lambda inner: ensure_topic(inner, self.spec.dead_letter_topic, settings=LETTER_SETTINGS)
        )

    def _writer(self, item: Prepared) -> Any:
        if item.query.name == DEAD_LETTERS:
            assert self._planned is not None
            options = {**self._planned.spark_options, "topic": self.spec.dead_letter_topic}
            options["txnAppId"] = item.state.name
            rows = item.rows
            if self._isolation is not None:
                rows = self._isolation.dead_letters()
            return rows.writeStream.format("penstock").options(**options)
        native = self._native(item)
        is_streamed = native is not None and item.sinks[0].opens_transactions()
        if self._isolation is not None:
            rows = self._isolation.rows(item.query)
            return rows.writeStream.foreachBatch(self._isolation.writer(item, is_streamed))
        if native is not None and item.late is None:
            kind, options = native
            if is_streamed:
                options = {**options, "txnAppId": item.state.name}
            return item.sinks[0].prepare(item.rows).writeStream.format(kind).options(**options)
        return item.rows.writeStream.foreachBatch(_batch_writer(item, is_streamed))

    def _trigger(self, writer: Any, until_caught_up: bool) -> Any:
        trigger = self.spec.trigger
        if until_caught_up or trigger.available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{duration_ms(trigger.interval or '0 ms')} milliseconds")

    def wait(self, on_progress: Callable[[str, Mapping[str, Any]], None], should_stop: Callable[[], bool]) -> None:
        """Until all queries ended (caught up), one failed (PipelineFailed), or it is told to stop."""
        warn_at = time.monotonic() + EXECUTOR_SECONDS
        while not should_stop():
            self._report(on_progress)
            if time.monotonic() > warn_at:
                warn_at = float("inf")
                if reason := missing_executors(self.spark):
                    log.warning("%s: %s", self.spec.name, reason)
            # Looked at before the failures: a query that ends in between is judged in the next round.
            ended = not any(query.isActive for query in self.running.values())
            for name, query in list(self.running.items()):
                error = query.exception()
                if error is not None:
                    if not self._start_again(name, error) and not self._isolate(name, error):
                        self.stop()
                        raise PipelineFailed(f"{name}: {blamed(error, self.spec)}{reason_of(error)}") from error
                    ended = False
                    break
            if ended:
                break
            if self._until_caught_up:
                for query in self.running.values():
                    if query.isActive and is_idle(query):
                        query.stop()
            self._pause(should_stop)
        self._report(on_progress)

    def _pause(self, should_stop: Callable[[], bool]) -> None:
        until = time.monotonic() + (0 if self._until_caught_up else LOOK_SECONDS - POLL_SECONDS)
        time.sleep(POLL_SECONDS)
        while time.monotonic() < until and not should_stop():
            time.sleep(POLL_SECONDS)

    def _report(self, on_progress: Callable[[str, Mapping[str, Any]], None]) -> None:
        for name, query in self.running.items():
            progress = query.lastProgress
            if progress is None:
                continue
            mark = (progress["batchId"], progress["timestamp"])
            if self._seen.get(name) != mark:
                self._seen[name] = mark
                late = self._late.get(name)
                on_progress(name, progress if late is None else {**progress, "late": late.total})

    def stop(self) -> None:
        """Let the batch under way go; it runs again next time, and is then recognised."""
        for query in self.running.values():
            try:
                query.stop()
            except Exception as error:  # one that does not stop must not keep the others running
                log.warning("query %s did not stop: %s", query.name, reason_of(error))


def _batch_writer(item: Prepared, is_streamed: bool) -> Callable[[Any, int], None]:
    """For foreachBatch. `is_streamed`: a topic knows the query's batches by the name of the query."""

    def write(rows: Any, number: int) -> None:
        state = item.state
        batch = Batch(state.identity, number, state.is_backfill and number == 0, state.prefix, state.is_anew)
        if is_streamed:
            batch = replace(batch, whole_name=state.name)
        if item.late is not None:
            item.late.write(number)
        shared = len(item.sinks) > 1
        if shared:
            rows = rows.persist()
        try:
            for sink in item.sinks:
                sink.write(sink.prepare(rows), batch)
        finally:
            if shared:
                rows.unpersist()

    return write


def run(
    spec: PipelineSpec,
    spark: Any,
    place: Place,
    *,
    until_caught_up: bool = False,
    on_progress: Callable[[str, Mapping[str, Any]], None] = lambda name, progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Prepare, start and wait, in one call."""
    from penstock.pipelines.control import events

    execution, prepared = Execution.prepare(spec, spark, place)
    events.ensure(place.client(spec))
    signs = events.SignsOfLife({**place.properties, **resolve(spec.settings.kafka)}, spec.name)

    def alive_and_asked_to_stop() -> bool:
        signs.tell()
        return should_stop()

    try:
        signs.tell()
        execution.start(prepared, until_caught_up=until_caught_up)
        execution.wait(on_progress, alive_and_asked_to_stop)
    finally:
        execution.stop()
        signs.close()
