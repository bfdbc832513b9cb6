"""What a sink's task does in an executor: rows → batches (kernels) → Produce requests, with or without a transaction.

One request per partition is under way at a time, so that batches of one producer stay in order even when they are sent
again; partitions proceed side by side. What is encoded but not yet acknowledged is bounded.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.retry import Attempts, RetryPolicy
from penstock.client.sync import SyncClient
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.options import SinkOptions
from penstock.pipelines.spark.sink_columns import by_topic
from penstock.pipelines.spark.sink_transactions import Transaction
from penstock.protocol import columnar
from penstock.protocol.errors import ErrorCode

GATHER_BYTES: Final = 4 * 1024 * 1024  # rows are encoded in pieces of about this size
MAX_UNACKNOWLEDGED_BYTES: Final = 32 * 1024 * 1024
_WAIT_FOR_BROKER_S: Final = 120.0

_IN_DOUBT: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})


class RecordWriter:
    """Writes Arrow rows into topics under one producer. Call from one thread; `flush` raises what went wrong."""

    def __init__(self, client: SyncClient, options: SinkOptions, producer: Transaction, *, implicit: bool) -> None:
        self._client = client
        self._options = options
        self._producer = producer
        self._implicit = implicit
        self._stamps: dict[str, columnar.ProducerStamp] = {}
        self._partition_counts: dict[str, int] = {}
        self._lanes: dict[tuple[str, int], asyncio.Lock] = {}
        self._added: set[tuple[str, int]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._unacknowledged_bytes = 0
        self._failure: BaseException | None = None
        self._first_keyless = random.randrange(1 << 16)
        self.rows = 0

    # --- the caller's thread ---

    def write_all(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Everything the iterator gives, flushed; returns the number of rows."""
        gathered: list[pa.RecordBatch] = []
        size = 0
        for piece in rows:
            if piece.num_rows == 0:
                continue
            gathered.append(piece)
            size += piece.nbytes
            if size >= GATHER_BYTES:
                self._write(gathered)
                gathered, size = [], 0
        if gathered:
            self._write(gathered)
        self._client.run(self._flush)
        return self.rows

    def _write(self, pieces: list[pa.RecordBatch]) -> None:
        whole = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
        for topic, rows in by_topic(whole, self._options):
            self._client.run(functools.partial(self._send, topic, self._encode(topic, rows)))
        self.rows += whole.num_rows

    def _encode(self, topic: str, rows: pa.RecordBatch) -> list[columnar.EncodedBatch]:
        names = rows.schema.names
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._client.run(lambda client: partition_count(client, topic))
        values = rows.column("value")
        keys = rows.column("key") if "key" in names else pa.nulls(len(values), pa.binary())
        asked = rows.column("partition") if "partition" in names else None
        partitions = columnar.choose_partitions(keys, count, asked, self._first_keyless)
        self._first_keyless += 1
        stamp = self._stamps.get(topic)
        if stamp is None:
            is_transactional = bool(self._producer.transactional_id)
            stamp = columnar.ProducerStamp(self._producer.producer_id, self._producer.epoch, is_transactional)
            self._stamps[topic] = stamp
        return columnar.encode(
            values,
            keys=keys,
            headers=rows.column("headers") if "headers" in names else None,
            partitions=partitions,
            codec=self._options.codec,
            stamp=stamp,
            max_batch_bytes=self._options.max_batch_bytes,
        )

    # --- the client's thread ---

    async def _send(self, topic: str, batches: list[columnar.EncodedBatch], client: Client) -> None:
        for batch in batches:
            while self._unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES and self._failure is None:
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            if self._failure is not None:
                raise self._failure
            self._unacknowledged_bytes += len(batch.data)
            lane = self._lanes.setdefault((topic, batch.partition), asyncio.Lock())
            task = asyncio.get_running_loop().create_task(self._deliver(client, lane, topic, batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _deliver(self, client: Client, lane: asyncio.Lock, topic: str, batch: columnar.EncodedBatch) -> None:
        try:
            # A lock lets its waiters through in the order in which they came, which is the order of the sequences.
            async with lane:
                if self._failure is None:
                    await self._produce(client, topic, batch)
        except Exception as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._unacknowledged_bytes -= len(batch.data)

    async def _produce(self, client: Client, topic: str, batch: columnar.EncodedBatch) -> None:
        key = (topic, batch.partition)
        transactional_id = self._producer.transactional_id or None
        if transactional_id and not self._implicit and key not in self._added:
            await transactions.add_partition(client, self._producer, topic, batch.partition)
            self._added.add(key)
        attempts = Attempts(client.retry, _WAIT_FOR_BROKER_S)
        while True:
            try:
                await records.produce(
                    client,
                    topic,
                    batch.partition,
                    batch.data,
                    transactional_id=transactional_id,
                    implicit_partitions=self._implicit,
                )
                return
            except KafkaError as error:
                if not (error.retriable or error.code in _IN_DOUBT) or not await attempts.pause():
                    raise

    async def _flush(self, client: Client) -> None:
        while self._sending:
            await asyncio.wait(self._sending)
        if self._failure is not None:
            raise self._failure


async def partition_count(client: Client, topic: str) -> int:
    """How many partitions the topic has; the broker may create it on this first use, as for any producer."""
    attempts = Attempts(RetryPolicy(total_timeout_s=15.0))
    while True:
        view = await client.metadata([topic], auto_create=True)
        found = view.topics.get(topic)
        if found is not None and not found.error_code and found.partitions:
            return len(found.partitions)
        code = found.error_code if found is not None and found.error_code else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = KafkaError(code, f"topic {topic!r}")
        if not error.retriable or not await attempts.pause():
            raise error
