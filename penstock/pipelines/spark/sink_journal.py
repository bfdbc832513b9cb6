"""What sinks remember, in the compacted topic `__penstock_sinks`: one record per key, written inside transactions.

Under the name of a sink lies its `SinkState`: whose it is, which batch was decided last and by which transactions, and
whether it has ended. Without two-phase commit each task has a key of its own, `<name>#<task>`. Nothing here expires.

A process reads a partition once and then only what is new. Reading creates nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.records import EARLIEST, LATEST
from penstock.client.retry import Attempts
from penstock.pipelines import admin
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink_transactions import Transaction
from penstock.protocol.batch import build_batch, read_records
from penstock.protocol.committed_batches import committed_batches
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record

TOPIC: Final = "__penstock_sinks"
PARTITIONS: Final = 16
_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
_SETTLE_S: Final = 120.0  # a transaction of a dead driver in the same partition ends after 15 s
NO_BATCH: Final = -1
BACKFILL: Final = "backfill"  # a place that is no folder: no start of a pipeline takes such sinks for abandoned ones


@dataclass(frozen=True)
class SinkState:
    batch: int = NO_BATCH  # decided last
    transactions: tuple[Transaction, ...] = ()  # that make it up
    pipeline: str | None = None  # whose sink it is; None: a query of plain Spark
    place: str | None = None  # where its checkpoint lies
    ended: bool = False  # reset or deleted: nothing will be decided any more
    at_ms: int = 0

    def is_over(self, batch_id: int) -> bool:
        """Nobody waits for rows of this batch any more."""
        return self.ended or self.batch >= batch_id

    def to_json(self) -> bytes:
        content = asdict(self)
        content["transactions"] = [[t.transactional_id, t.producer_id, t.epoch] for t in self.transactions]
        return json.dumps({**content, "at_ms": int(time.time() * 1000)}).encode()

    @classmethod
    def from_json(cls, value: bytes) -> SinkState:
        content = json.loads(value)
        content["transactions"] = tuple(Transaction(*entry) for entry in content["transactions"])
        known = cls.__dataclass_fields__
        return cls(**{name: item for name, item in content.items() if name in known})


def partition_of(key: str) -> int:
    return zlib.crc32(key.encode()) % PARTITIONS


async def ensure_topic(client: Client) -> None:
    await admin.ensure_topic(client, TOPIC, partitions=PARTITIONS, settings=_SETTINGS, internal=True)


# --- reading ---


@dataclass
class _Partition:
    position: int = 0
    values: dict[str, bytes] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_read: weakref.WeakKeyDictionary[Client, dict[int, _Partition]] = weakref.WeakKeyDictionary()


async def value_of(client: Client, key: str, *, settled: bool = False) -> bytes | None:
    """The newest committed value; `settled` first waits for transactions that are under way in its partition."""
    return (await _partition(client, partition_of(key), settled=settled)).get(key)


async def state_of(client: Client, name: str, *, settled: bool = False) -> SinkState | None:
    value = await value_of(client, name, settled=settled)
    return None if value is None else SinkState.from_json(value)


async def all_states(client: Client) -> dict[str, SinkState]:
    """Every sink that is known, by its name."""
    found: dict[str, SinkState] = {}
    for index in range(PARTITIONS):
        for key, value in (await _partition(client, index, settled=False)).items():
            if "#" not in key:
                found[key] = SinkState.from_json(value)
    return dict(sorted(found.items()))


async def _partition(client: Client, index: int, *, settled: bool) -> Mapping[str, bytes]:
    known = (await client.metadata([TOPIC])).topics.get(TOPIC)
    if known is None or known.error_code:
        return {}
    part = _read.setdefault(client, {}).setdefault(index, _Partition())
    async with part.lock:
        attempts = Attempts(client.retry, _SETTLE_S)
        wanted = await _end(client, index, read_committed=False) if settled else 0
        while True:
            end = await _end(client, index, read_committed=True)
            await _catch_up(client, index, part, end)
            if end >= wanted:
                return part.values
            if not await attempts.pause():
                raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"transactions in {TOPIC}-{index} do not end")


async def _end(client: Client, index: int, *, read_committed: bool) -> int:
    found = await records.list_offsets(client, {(TOPIC, index): LATEST}, read_committed=read_committed)
    answer = found[(TOPIC, index)]
    if answer.error_code:
        raise KafkaError(answer.error_code, f"the end of {TOPIC}-{index}")
    return answer.offset


async def _catch_up(client: Client, index: int, part: _Partition, end: int) -> None:
    key = (TOPIC, index)
    if end < part.position:  # another topic of that name by now
        part.position = 0
        part.values.clear()
    if part.position == 0 and end > 0:
        part.position = (await records.list_offsets(client, {key: EARLIEST}))[key].offset
    while part.position < end:
        fetched = (await records.fetch(client, {key: part.position}, read_committed=True))[key]
        if fetched.error_code:
            raise KafkaError(fetched.error_code, f"read {TOPIC}-{index} at {part.position}")
        before = part.position
        _take(fetched, part, end)
        if part.position == before:  # what is left was compacted away
            part.position = end


def _take(fetched: records.Fetched, part: _Partition, end: int) -> None:
    first = part.position
    for header, shown in committed_batches(fetched.records, fetched.aborted_transactions):
        if header.base_offset >= end:
            return
        for record in read_records(fetched.records, header) if shown else ():
            if first <= record.offset < end and record.key is not None:
                _put(part.values, record.key.decode(), record.value)
        part.position = header.last_offset + 1


def _put(values: dict[str, bytes], key: str, value: bytes | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


# --- writing ---


async def write(
    client: Client, owner: Transaction, key: str, value: bytes | None, *, sequence: int = 0, implicit: bool
) -> None:
    """One record as part of the owner's transaction."""
    place = (TOPIC, partition_of(key))
    await transactions.write_record(client, owner, place, key, value, sequence=sequence, implicit=implicit)


async def forget(client: Client, key: str) -> None:
    """A batch write that is over is not asked for again: let compaction remove it."""
    tombstone = build_batch([new_record(key.encode(), None, int(time.time() * 1000))])
    await records.produce(client, TOPIC, partition_of(key), tombstone)
