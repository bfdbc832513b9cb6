"""Pointers as version 0.1.0 kept them: offsets of the group `penstock-sink-<name>`, read once and taken over.

Such an offset pointed at a record of `__penstock_commits` (the decision), or was itself the marker of a task.
"""

from __future__ import annotations

import json
import weakref
from typing import Final

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink_journal import SinkState
from penstock.pipelines.spark.sink_transactions import Transaction
from penstock.protocol.batch import iterate_batches, read_records
from penstock.protocol.errors import ErrorCode

TOPIC: Final = "__penstock_commits"

# Nobody writes such groups any more: what is not there will not come.
_absent: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()


def group_of(name: str) -> str:
    return f"penstock-sink-{name}"


async def state_of(client: Client, name: str) -> SinkState | None:
    """The decision that the group points at."""
    offset = await _pointer(client, name)
    if offset < 0:
        return None
    fetched = (await records.fetch(client, {(TOPIC, 0): offset}, read_committed=True))[(TOPIC, 0)]
    if fetched.error_code:
        raise KafkaError(fetched.error_code, f"read the decision at {TOPIC}-0 offset {offset}")
    for header in iterate_batches(fetched.records):
        if header.is_control or header.last_offset < offset:
            continue
        batch = fetched.records[header.position : header.position + header.size]
        for record in read_records(batch):
            if record.offset == offset and record.value is not None:
                told = json.loads(record.value)
                return SinkState(told["batch"], tuple(Transaction(*entry) for entry in told["transactions"]))
    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the decision at {TOPIC}-0 offset {offset} is gone")


async def marker_of(client: Client, name: str, task: int) -> int:
    """The last batch of a task that committed by itself; -1 for none."""
    offset = await _pointer(client, f"{name}-{task}")
    return offset - 1 if offset >= 0 else -1


async def _pointer(client: Client, name: str) -> int:
    absent = _absent.setdefault(client, set())
    if name in absent:
        return -1
    offset = await transactions.committed_offset(client, group_of(name), TOPIC)
    if offset < 0:
        absent.add(name)
    return offset
