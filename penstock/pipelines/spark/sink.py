"""The sink behind `df.write` and `df.writeStream` `.format("penstock")`: exactly once by default.

How a batch becomes visible as a whole or not at all, whatever is killed when (docs/decisions/0006-spark-sink.md):

1. every task attempt writes inside a two-phase transaction that only it can hold, and does not end it;
2. the driver checks that those it was told of are open, decides (`sink_decisions`), ends them, and aborts the others;
3. a batch that runs again finds it decided: its tasks write nothing, the driver finishes what the decision names.

Where the cluster has no two-phase commit, each task commits by itself, with a marker in the same transaction that
makes a repetition of the same task write nothing; this needs a pipeline that computes the same rows again.
"""

# Method names are Spark's.

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.client import Client
from penstock.client.sync import SyncClient
from penstock.pipelines.spark import sink_decisions as decisions
from penstock.pipelines.spark import sink_journal as journal
from penstock.pipelines.spark import sink_legacy as legacy
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.options import OptionError, SinkOptions
from penstock.pipelines.spark.sink_columns import check_columns
from penstock.pipelines.spark.sink_journal import SinkState
from penstock.pipelines.spark.sink_transactions import Transaction, TransactionLost

log = logging.getLogger(__name__)

TWO_PHASE: Final = "two-phase"
MARKERS: Final = "markers"
AT_LEAST_ONCE: Final = "at-least-once"

_MARKER_TRANSACTION_TIMEOUT_MS: Final = 600_000
_ENDED: Final = "query {query} has ended: its pipeline was reset or deleted while this driver still ran"


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    rows: int
    transaction: Transaction | None = None


@dataclass(frozen=True)
class SinkProtocol:
    """Everything both writers share; plain data, because Spark ships it to the tasks."""

    options: SinkOptions
    mode: str

    @classmethod
    def make(cls, given: Mapping[str, str], schema: Any, overwrite: bool, *, streaming: bool = True) -> SinkProtocol:
        options = SinkOptions.parse(given, streaming=streaming)
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        check_columns(schema, options)
        if not options.exactly_once:
            return cls(options, AT_LEAST_ONCE)
        client = client_for(options.properties)
        if client.run(transactions.supports_two_phase):
            return cls(options, TWO_PHASE)
        return cls(options, MARKERS)

    # --- in a task ---

    def write(self, query: str, batch_id: int, partition_id: int, rows: Iterator[Any]) -> TaskDone:
        if self.mode == AT_LEAST_ONCE:
            return self._write_at_least_once(query, rows)
        client_for(self.options.properties).run(journal.ensure_topic)
        if self.mode == TWO_PHASE:
            return self._write_two_phase(query, batch_id, rows)
        return self._write_with_marker(query, batch_id, partition_id, rows)

    def _write_at_least_once(self, query: str, rows: Iterator[Any]) -> TaskDone:
        from penstock.pipelines.spark.sink_task import RecordWriter

        client = client_for(self.options.properties)
        producer = client.run(lambda inner: transactions.open_transaction(inner, None))
        return TaskDone(query, RecordWriter(client, self.options, producer, implicit=False).write_all(rows))

    def _write_two_phase(self, query: str, batch_id: int, rows: Iterator[Any]) -> TaskDone:
        from penstock.pipelines.spark.sink_task import RecordWriter

        client = client_for(self.options.properties)
        first = _first_rows(rows)
        if first is None or self._is_decided(client, query, batch_id):
            return _nothing_to_do(query, rows)
        implicit = client.run(transactions.uses_implicit_partitions)
        name = _names.next(query, batch_id)
        transaction = client.run(lambda inner: transactions.open_transaction(inner, name, two_phase=True))
        try:
            writer = RecordWriter(client, self.options, transaction, implicit=implicit)
            written = writer.write_all(_chained(first, rows))
            # The driver may have decided without this attempt, and swept before it opened its transaction. Asked
            # after the last write: "not decided" now means that the sweep is still to come and will find it.
            if client.run(lambda inner: decisions.state_of(inner, query, settled=False)).is_over(batch_id):
                raise TransactionLost(f"batch {batch_id} of query {query} was decided without this attempt")
        except BaseException:
            client.run(lambda inner: transactions.abort_all(inner, [transaction], implicit=implicit))
            raise
        return TaskDone(query, written, transaction)

    def _is_decided(self, client: SyncClient, query: str, batch_id: int) -> bool:
        state = client.run(lambda inner: decisions.state_of(inner, query, settled=False))
        if state.ended:
            raise decisions.AnotherDriver(_ENDED.format(query=query))
        return state.batch >= batch_id

    def _write_with_marker(self, query: str, batch_id: int, partition_id: int, rows: Iterator[Any]) -> TaskDone:
        from penstock.pipelines.spark.sink_task import RecordWriter

        client = client_for(self.options.properties)
        first = _first_rows(rows)
        if first is None:
            return TaskDone(query, 0)
        _warn_about_markers()
        implicit = client.run(transactions.uses_implicit_partitions)
        name = f"{query}-{partition_id}"
        transaction = client.run(
            lambda inner: transactions.open_transaction(inner, name, timeout_ms=_MARKER_TRANSACTION_TIMEOUT_MS)
        )
        if client.run(lambda inner: _marker(inner, query, partition_id)) >= batch_id:
            return _nothing_to_do(query, rows)
        try:
            writer = RecordWriter(client, self.options, transaction, implicit=implicit)
            written = writer.write_all(_chained(first, rows))
            done = json.dumps({"batch": batch_id}).encode()
            key = f"{query}#{partition_id}"
            client.run(lambda inner: journal.write(inner, transaction, key, done, implicit=implicit))
        except BaseException:
            client.run(lambda inner: transactions.abort_all(inner, [transaction], implicit=implicit))
            raise
        client.run(lambda inner: transactions.end_transaction(inner, transaction, commit=True, implicit=implicit))
        return TaskDone(query, written)

    # --- on the driver ---

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        done = [message for message in messages if isinstance(message, TaskDone)]
        query = done[0].query if done else self.options.application_id
        if self.mode != TWO_PHASE or query is None:
            return
        chosen = [message.transaction for message in done if message.transaction is not None]
        client_for(self.options.properties).run(lambda inner: _commit(inner, query, batch_id, chosen))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Spark calls this also when `commit` failed half-way: what is decided must not be undone."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        chosen = [message.transaction for message in done if message.transaction is not None]
        if self.mode == TWO_PHASE and chosen:
            client_for(self.options.properties).run(lambda inner: _abort(inner, done[0].query, batch_id, chosen))


async def _marker(client: Client, query: str, partition_id: int) -> int:
    """The last batch of which this task has written its part; -1 for none."""
    value = await journal.value_of(client, f"{query}#{partition_id}", settled=True)
    if value is None:
        return await legacy.marker_of(client, query, partition_id)
    return int(json.loads(value)["batch"])


async def _commit(client: Client, query: str, batch_id: int, chosen: Sequence[Transaction]) -> None:
    implicit = await transactions.uses_implicit_partitions(client)
    decision = await _known_decision(client, query, batch_id, settled=False)
    # A batch without rows needs no decision, unless an attempt with rows left something open.
    if decision is None and (chosen or await _leftovers(client, query, batch_id)):
        owner = await decisions.take_over(client, query)
        decision = await _known_decision(client, query, batch_id, settled=True)
        if decision is None:
            await _check_open(client, chosen)
            decision = await decisions.decide(client, owner, query, batch_id, chosen, implicit=implicit)
    if decision is None:
        return
    await asyncio.gather(*(transactions.finish(client, item, implicit=implicit) for item in decision.transactions))
    await _sweep(client, query, decision, implicit=implicit)


async def _known_decision(client: Client, query: str, batch_id: int, *, settled: bool) -> SinkState | None:
    """The decision on exactly this batch, if there is one; later ones mean that we are the driver of yesterday."""
    last = await decisions.state_of(client, query, settled=settled)
    if last.ended:
        raise decisions.AnotherDriver(_ENDED.format(query=query))
    if last.batch > batch_id:
        raise decisions.AnotherDriver(
            f"batch {last.batch} of query {query} is already decided, this driver is still at batch {batch_id}: another"
            " one runs the same checkpoint"
        )
    return last if last.batch == batch_id else None


async def _leftovers(client: Client, query: str, batch_id: int) -> list[Transaction]:
    """What attempts of this batch, or of older ones of its parity, have open."""
    listed = await transactions.open_under_prefix(client, f"{query}-")
    return [item for item in listed if item.transactional_id.endswith(_parity(batch_id))]


async def _check_open(client: Client, chosen: Sequence[Transaction]) -> None:
    states = await asyncio.gather(*(transactions.describe(client, item.transactional_id) for item in chosen))
    for item, now in zip(chosen, states, strict=True):
        if (now.state, now.producer_id, now.epoch) != (transactions.ONGOING, item.producer_id, item.epoch):
            raise TransactionLost(
                f"transaction {item.transactional_id} with epoch {item.epoch} is not open any more but"
                f" {now.state or 'unknown'} with epoch {now.epoch}: the batch is not committed and runs again"
            )


async def _sweep(client: Client, query: str, decision: SinkState, *, implicit: bool) -> None:
    """Abort what attempts of this batch left open, without touching the next batch of another driver.

    Ids end with the parity of their batch. Listed first, then the decision is read again: if it is still this batch,
    nobody has begun the batch after next, so everything listed with our parity belongs to this batch or an older one.
    """
    kept = set(decision.transactions)
    leftovers = [item for item in await _leftovers(client, query, decision.batch) if item not in kept]
    if leftovers:
        now = await decisions.state_of(client, query, settled=True)
        if now.batch == decision.batch and not now.ended:
            await transactions.abort_all(client, leftovers, implicit=implicit)


async def _abort(client: Client, query: str, batch_id: int, chosen: Sequence[Transaction]) -> None:
    implicit = await transactions.uses_implicit_partitions(client)
    # After this no decision of ours can still be under way: it is either visible or void.
    await decisions.take_over(client, query)
    if (await decisions.state_of(client, query, settled=True)).batch < batch_id:
        await transactions.abort_all(client, chosen, implicit=implicit)


# --- names ---


def _parity(batch_id: int) -> str:
    return "-odd" if batch_id % 2 else "-even"


class _Names:
    """Transactional ids `<query>-<process>-<n>-<parity>`: no other attempt can hold one.

    n counts what this process has opened in a batch, so the next batch but one uses the same ids again.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._process = uuid.uuid4().hex
        self._opened: dict[str, tuple[int, int]] = {}  # query → (batch, how many)

    def next(self, query: str, batch_id: int) -> str:
        if self._pid != os.getpid():  # Spark forks its workers: an inherited name would be shared
            self.__init__()  # type: ignore[misc]
        last_batch, count = self._opened.get(query, (batch_id, 0))
        number = count if last_batch == batch_id else 0
        self._opened[query] = (batch_id, number + 1)
        return f"{query}-{self._process}-{number}{_parity(batch_id)}"


_names = _Names()


@cache
def _warn_about_markers() -> None:
    log.warning(
        "this cluster has no two-phase commit: exactly once holds if the pipeline computes the same rows again when a"
        " task is repeated (no random values, no current time, same partitioning)"
    )


def _first_rows(rows: Iterator[Any]) -> Any | None:
    """The first piece that holds rows: a task without rows needs no transaction."""
    return next((piece for piece in rows if piece.num_rows), None)


def _nothing_to_do(query: str, rows: Iterator[Any]) -> TaskDone:
    """The rest is read all the same: Spark takes a worker that leaves its input unread for a broken one."""
    for _ in rows:
        pass
    return TaskDone(query, 0)


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


# --- what Spark sees ---


class StreamSink(DataSourceStreamArrowWriter):
    """Made anew for every batch, and once more in the process that commits."""

    def __init__(self, protocol: SinkProtocol) -> None:
        self._protocol = protocol

    @classmethod
    def make(cls, options: Mapping[str, str], schema: Any, overwrite: bool) -> StreamSink:
        return cls(SinkProtocol.make(options, schema, overwrite))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query = self._protocol.options.application_id or context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch_id is None:
            raise RuntimeError("Spark did not tell which query and batch this task belongs to")
        return self._protocol.write(query, int(batch_id), context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._protocol.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._protocol.abort(messages, batchId)


class BatchSink(DataSourceArrowWriter):
    """One write of a table. With txnAppId and txnVersion a repetition of the same version writes nothing."""

    def __init__(self, protocol: SinkProtocol) -> None:
        self._protocol = protocol
        options = protocol.options
        self._query = options.application_id or f"batch-{uuid.uuid4().hex}"
        self._batch_id = options.application_version if options.application_version is not None else 0

    @classmethod
    def make(cls, options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchSink:
        return cls(SinkProtocol.make(options, schema, overwrite, streaming=False))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self._protocol.write(self._query, self._batch_id, context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._protocol.commit(messages, self._batch_id)
        if self._protocol.mode == TWO_PHASE and self._protocol.options.application_id is None:
            client_for(self._protocol.options.properties).run(lambda inner: journal.forget(inner, self._query))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._protocol.abort(messages, self._batch_id)
