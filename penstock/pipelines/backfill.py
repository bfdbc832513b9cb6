"""A stretch of history through a pipeline, as a batch job: its records between two times, once, beside what runs.

Checkpoints are neither read nor written. The job has a name made of the pipeline's spec and the stretch, under which
sinks remember it: a repetition writes nothing twice, also after a kill. With a suffix, topics are left alone and
`<topic><suffix>` is written instead, to compare before anything is re-pointed. If a row makes a step raise, the job
begins again with guards (isolation.py), and such rows become letters under a name of their own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.records import LATEST
from penstock.client.sync import SyncClient
from penstock.pipelines import ending, guards, plan
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.base import Batch, Context, Sink
from penstock.pipelines.control import events
from penstock.pipelines.control.store import settings_for_librdkafka
from penstock.pipelines.execution import Place
from penstock.pipelines.formats.dead_letters import LETTER_SETTINGS
from penstock.pipelines.isolation import (
    LETTERS,
    ErrorRate,
    blamed,
    can_isolate,
    guarded_context,
    is_rows_fault,
    letters_of,
)  # fmt: skip
from penstock.pipelines.plan import Query
from penstock.pipelines.problems import reason_of
from penstock.pipelines.secrets import resolve
from penstock.pipelines.sessions import fresh_session
from penstock.pipelines.spark.sink_journal import BACKFILL
from penstock.pipelines.spark.source_offsets import TopicPartition
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data
from penstock.pipelines.storage import ReadOnly

log = logging.getLogger(__name__)

RAISED: Final = "row-errors"  # no sink can be named so


class BackfillFailed(Exception):
    """One line; what was written stays, and the same command goes on from there."""


@dataclass(frozen=True)
class Stretch:
    """Records with a timestamp from `since_ms` up to, not including, `until_ms`."""

    since_ms: int
    until_ms: int

    def __post_init__(self) -> None:
        if self.since_ms >= self.until_ms:
            raise SpecError("--from is not before --to: there is nothing between them")


def backfill(spec: PipelineSpec, spark: Any, place: Place, stretch: Stretch, suffix: str = "") -> dict[str, int]:
    """Sink (and dead-letters) → rows that it was given."""
    others = [name for name, item in spec.sources.items() if item.connector != "topic"]
    if others:
        raise SpecError(f"source {others[0]}: only topics can be read between two times")
    client = place.client(spec)
    aimed = _aside(spec, client, suffix) if suffix else spec
    name = f"{spec.name}.backfill-{_digest(aimed, stretch)}"
    properties = {**place.properties, **resolve(spec.settings.kafka)}
    context = Context(
        spark=fresh_session(spark),
        pipeline=name,
        properties=properties,
        state=ReadOnly(place.state_of(spec, spark).folder),
        dead_letter_topic=spec.dead_letter_topic,
        ranges={source: _range(client, properties, spec, source, stretch) for source in spec.sources},
        between_ms=(stretch.since_ms, stretch.until_ms),
    )
    batch = Batch(name, 0, prefix=f"penstock.{name}.")
    ending.register(client, name, BACKFILL, [batch.name_for(sink) for sink in [*aimed.sinks, LETTERS, RAISED]])
    try:
        with _alive(client, properties, name):
            return _write(aimed, context, batch, client)
    except SpecError:
        raise
    except Exception as error:
        raise BackfillFailed(f"{blamed(error, spec)}{reason_of(error)}") from error


def _write(spec: PipelineSpec, context: Context, batch: Batch, client: SyncClient) -> dict[str, int]:
    try:
        return _Job(spec, context, batch, client, guarded=False).write()
    except Exception as error:
        if not (is_rows_fault(error, spec) and can_isolate(spec, context.spark)):
            raise
        log.warning("%s%s", blamed(error, spec), reason_of(error))
        log.warning("%s: rows that make a step raise go to %s", spec.name, spec.dead_letter_topic)
        return _Job(spec, context, batch, client, guarded=True).write()


@contextlib.contextmanager
def _alive(client: SyncClient, properties: Mapping[str, str], name: str) -> Iterator[None]:
    """Others see that somebody will end the job's transactions."""
    events.ensure(client)
    signs, is_over = events.SignsOfLife(properties, name), threading.Event()

    def keep_telling() -> None:
        signs.tell()
        while not is_over.wait(events.ALIVE_SECONDS):
            signs.tell()

    telling = threading.Thread(target=keep_telling, daemon=True)
    telling.start()
    try:
        yield
    finally:
        is_over.set()
        telling.join()
        signs.close()


class _Job:
    """Letters first, then sink after sink, each under its own name."""

    def __init__(
        self, spec: PipelineSpec, context: Context, batch: Batch, client: SyncClient, *, guarded: bool
    ) -> None:
        self._spec, self._context, self._batch, self._client = spec, context, batch, client
        self._is_guarded = guarded
        self._graph = None if guarded else plan.build(spec, context)

    def _planned(self, query: Query | None) -> tuple[plan.Graph, Context]:
        """Of a query, or of the dead letters; each has guards of its own."""
        if self._graph is not None:
            return self._graph, self._context
        context = guarded_context(self._spec, query, self._context)
        return plan.build(self._spec, context), context

    def write(self) -> dict[str, int]:
        bad = plan.dead_letter_rows(self._planned(None)[0])
        given = {} if bad is None else {LETTERS: self._send(LETTERS, bad)}
        sinks: dict[str, tuple[Sink, Any]] = {}
        raised = []
        for query in plan.queries(self._spec):
            graph, context = self._planned(query)
            held: list[guards.Guard] = []
            for name in query.sinks:
                sink = plan.make_sink(self._spec, name, context)
                rows = graph.tables[query.view]
                sink.check(rows.schema)
                with plan.blaming(f"sink {name}"):
                    rows = sink.prepare(rows)
                if self._is_guarded:
                    rows, found = guards.guarded(rows, f"sink {name}")
                    held += found
                sinks[name] = (sink, rows)
            if self._is_guarded:
                raised.append(self._raised(query, graph, context, held))
        if raised:
            given[RAISED] = self._send(RAISED, functools.reduce(lambda one, more: one.unionByName(more), raised))
        for name in self._spec.sinks:
            sink, rows = sinks[name]
            rows = rows.persist()
            try:
                given[name] = rows.count()
                sink.write(rows, self._batch)
            finally:
                rows.unpersist()
        return given

    def _raised(self, query: Query, graph: plan.Graph, context: Context, held: list[guards.Guard]) -> Any:
        """TooManyErrors before any row is written."""
        settings = self._spec.settings
        letters = letters_of(self._spec, query, context.spark, graph, held)
        sources = plan.lineage(self._spec, query.view) & set(self._spec.sources)
        records = sum(graph.tables[source].count() for source in sources)
        ErrorRate(settings.max_error_rate, settings.error_window).take(0, records, letters.count())
        return letters

    def _send(self, name: str, letters: Any) -> int:
        rows, context = letters.persist(), self._context
        try:
            count = int(rows.count())
            if count:
                topic = context.dead_letter_topic
                self._client.run(lambda inner: ensure_topic(inner, topic, settings=LETTER_SETTINGS))
                named = {"txnAppId": self._batch.name_for(name), "txnVersion": "0", "topic": topic}
                rows.write.format("penstock").options(**context.spark_options, **named).mode("append").save()
            return count
        finally:
            rows.unpersist()


def _range(
    client: SyncClient, properties: Mapping[str, str], spec: PipelineSpec, source: str, stretch: Stretch
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    from penstock.pipelines.connectors.topic import TopicSource
    from penstock.pipelines.spark.options import SourceOptions
    from penstock.pipelines.spark.source_lookup import NothingToRead, SourceLookup

    kind, wanted = TopicSource.Options.model_validate(spec.sources[source].options).subscription
    options = {f"kafka.{key}": value for key, value in properties.items()}
    try:
        found = SourceLookup(SourceOptions.parse({**options, kind: wanted}, streaming=False)).existing()
    except NothingToRead as error:
        raise SpecError(f"source {source}: {error}") from None
    keys = [(topic, index) for topic, (_, indexes) in found.items() for index in indexes]
    last = _offsets(client, dict.fromkeys(keys, LATEST))
    is_stamped = {topic: _is_stamped(properties, topic) for topic in found}
    begin = _offsets(client, dict.fromkeys(keys, stretch.since_ms))
    # Where clients set the times, records of the stretch may lie behind later ones: the source looks at each.
    end = _offsets(client, dict.fromkeys([key for key in keys if is_stamped[key[0]]], stretch.until_ms))
    # Nothing at or after a time: the end of the partition.
    begin = {key: last[key] if begin[key] < 0 else begin[key] for key in keys}
    return begin, {key: max(begin[key], last[key] if end.get(key, -1) < 0 else end[key]) for key in keys}


def _is_stamped(properties: Mapping[str, str], topic: str) -> bool:
    """Whether brokers set the times of a topic: then they never go back."""
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    admin, resource = AdminClient(settings_for_librdkafka(properties)), ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(30)
    kind = found.get("message.timestamp.type")
    return kind is not None and kind.value == "LogAppendTime"


def _offsets(client: SyncClient, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: answer.offset for key, answer in client.list_offsets(wanted, read_committed=True).items()}


def _aside(spec: PipelineSpec, client: SyncClient, suffix: str) -> PipelineSpec:
    """The same pipeline with other topics behind it; tables have no twin, so they are refused."""
    data = spec.to_data()
    for name, sink in spec.sinks.items():
        topic = sink.options.get("topic")
        if sink.connector != "topic" or topic is None:
            raise SpecError(f"sink {name}: --suffix is for sinks that write to one topic")
        data["sinks"][name]["options"]["topic"] = f"{topic}{suffix}"
        known = client.metadata([topic]).topics.get(topic)
        partitions = len(known.partitions) if known is not None and not known.error_code else -1
        _ensure(client, f"{topic}{suffix}", partitions)
    return from_data(data)


def _ensure(client: SyncClient, topic: str, partitions: int) -> None:
    client.run(lambda inner: ensure_topic(inner, topic, partitions=partitions))


def _digest(spec: PipelineSpec, stretch: Stretch) -> str:
    text = json.dumps([spec.to_data(), stretch.since_ms, stretch.until_ms], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
