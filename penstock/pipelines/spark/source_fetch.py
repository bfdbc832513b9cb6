"""Reading one range of offsets as Arrow batches, with the next fetch under way while the last one is decoded.

The fetch loop runs on the client's own thread; it knows where to go on as soon as it has seen the batch headers, so the
socket is never idle while a kernel works and Spark takes the columns. What waits in between is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.sync import SyncClient
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.options import SourceOptions
from penstock.pipelines.spark.source_lookup import DataLoss
from penstock.pipelines.spark.source_offsets import OffsetRange
from penstock.protocol import columnar
from penstock.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

FETCH_BYTES: Final = 8 * 1024 * 1024
FETCHES_AHEAD: Final = 3
RECORDS_PER_PIECE: Final = 50_000
SILENCE_LIMIT_S: Final = 120.0

_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """All visible records of the range, in order, as Spark's columns."""
    for fetched, first in _FetchAhead(client_for(options.properties), options, wanted):
        pieces = columnar.decode_pieces(
            fetched.records,
            max_records=RECORDS_PER_PIECE,
            partition=wanted.partition,
            from_offset=first,
            end_offset=wanted.end,
            aborted=fetched.aborted_transactions if options.read_committed else (),
            with_headers=options.include_headers,
        )
        for columns in pieces:
            if columns.num_rows:
                yield _with_topic(columns, wanted.topic, options.include_headers)


def _with_topic(columns: pa.RecordBatch, topic: str, include_headers: bool) -> pa.RecordBatch:
    names = _COLUMNS if include_headers else _COLUMNS[:-1]
    topics = pa.repeat(pa.scalar(topic, pa.string()), columns.num_rows)
    return pa.RecordBatch.from_arrays(
        [topics if name == "topic" else columns.column(name) for name in names], names=list(names)
    )


class _FetchAhead:
    """Iterates over (answer, first wanted offset); fetches run up to FETCHES_AHEAD answers before the reader."""

    def __init__(self, client: SyncClient, options: SourceOptions, wanted: OffsetRange) -> None:
        self._client = client
        self._options = options
        self._wanted = wanted
        self._ready: queue.SimpleQueue[tuple[records.Fetched, int] | BaseException | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[tuple[records.Fetched, int]]:
        loop, task, room = self._client.run(self._start)
        try:
            while True:
                item = self._ready.get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
                loop.call_soon_threadsafe(room.release)
        finally:
            loop.call_soon_threadsafe(task.cancel)

    async def _start(self, client: Client) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[None], asyncio.Semaphore]:
        room = asyncio.Semaphore(FETCHES_AHEAD)
        loop = asyncio.get_running_loop()
        return loop, loop.create_task(self._run(client, room)), room

    async def _run(self, client: Client, room: asyncio.Semaphore) -> None:
        try:
            await self._fetch_all(client, room)
            self._ready.put(None)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._ready.put(error)

    async def _fetch_all(self, client: Client, room: asyncio.Semaphore) -> None:
        wanted = self._wanted
        key = (wanted.topic, wanted.partition)
        offset = wanted.start
        last_progress = time.monotonic()
        fetch_bytes = FETCH_BYTES
        while offset < wanted.end:
            await room.acquire()
            answers = await records.fetch(
                client,
                {key: offset},
                max_bytes=fetch_bytes,
                partition_max_bytes=fetch_bytes,
                read_committed=self._options.read_committed,
            )
            fetched = answers[key]
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                offset = self._after_gap(offset, await self._log_start(client, key))
                room.release()
                continue
            if fetched.error_code:
                raise KafkaError(fetched.error_code, f"fetch from {wanted.topic}-{wanted.partition} at {offset}")
            next_offset = columnar.next_offset(fetched.records, offset)
            if next_offset > offset:
                self._ready.put((fetched, offset))
                offset = next_offset
                last_progress = time.monotonic()
                continue
            room.release()
            if fetched.records:  # a batch larger than we asked for came in part: old brokers do that
                fetch_bytes *= 2
            if time.monotonic() - last_progress > SILENCE_LIMIT_S:
                raise DataLoss(
                    f"{wanted.topic}-{wanted.partition}: nothing came at offset {offset} for {SILENCE_LIMIT_S:g} s,"
                    f" although the batch goes up to {wanted.end}"
                )

    async def _log_start(self, client: Client, key: tuple[str, int]) -> int:
        answer = (await records.list_offsets(client, {key: records.EARLIEST}))[key]
        if answer.error_code:
            raise KafkaError(answer.error_code, f"offsets of {key[0]}-{key[1]}")
        return answer.offset

    def _after_gap(self, offset: int, log_start: int) -> int:
        """Where to go on when the asked offset is gone: by retention, or because the topic is another one now."""
        wanted = self._wanted
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{wanted.topic}-{wanted.partition}: offset {offset} is no longer there, the log begins at {log_start}:"
                " the records were deleted before this query read them (retention, delete-records, or a re-created"
                " topic); failOnDataLoss=false would go on without them"
            )
        # A log that ends before our offset is another log: nothing of the range is there.
        goes_on_at = wanted.end if log_start <= offset else min(log_start, wanted.end)
        log.warning(
            "%s-%d: offsets %d to %d were deleted before they were read; going on, as failOnDataLoss=false says",
            wanted.topic, wanted.partition, offset, goes_on_at - 1,
        )  # fmt: skip
        return goes_on_at
