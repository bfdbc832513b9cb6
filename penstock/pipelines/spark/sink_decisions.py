"""The durable word on which transactions make up a batch: one record per batch in `__penstock_commits`.

A decision is made by a transaction of its own, under the id `<query>-driver`, that holds two things: the record (which
transactions are to be committed) and an offset of the group `penstock-sink-<query>` that points at the record and names
the batch. So

- finding the last decision is one OffsetFetch, however long the topic is;
- two drivers of one query cannot both decide: opening the id fences the one before, and whoever opened it last reads
  everything that was decided before. What was decided first stays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.retry import Attempts
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink_transactions import Transaction
from penstock.protocol import messages
from penstock.protocol.batch import build_batch, iterate_batches, read_records
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record

TOPIC: Final = "__penstock_commits"
_TOPIC_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
_NONE: Final = -1


class AnotherDriver(Exception):
    """Another driver of the same query has decided; this one must stop."""


@dataclass(frozen=True, slots=True)
class Decision:
    batch_id: int
    transactions: tuple[Transaction, ...]


def group_of(query: str) -> str:
    return f"penstock-sink-{query}"


async def ensure_topic(client: Client) -> None:
    """Create the topic on first use."""
    view = await client.metadata([TOPIC])
    known = view.topics.get(TOPIC)
    if known is not None and not known.error_code:
        return
    api = messages.api("create_topics")
    configs = [api.request_struct("CreatableTopicConfig")(name=k, value=v) for k, v in _TOPIC_SETTINGS.items()]
    topic = api.request_struct("CreatableTopic")(
        name=TOPIC, num_partitions=1, replication_factor=-1, assignments=[], configs=configs
    )
    answer = await client.call_controller("create_topics", api.Request(topics=[topic], timeout_ms=30_000))
    code = answer.topics[0].error_code
    if code and code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(code, f"create topic {TOPIC}", answer.topics[0].error_message)
    await client.leader_connection(TOPIC, 0)  # waits until it has a leader


async def last_batch(client: Client, query: str, *, stable: bool) -> int:
    """The batch decided last, -1 for none; `stable` waits for a decision that is under way."""
    offset, note = await transactions.committed_offset(client, group_of(query), TOPIC, stable=stable)
    return int(note) if offset >= 0 else _NONE


async def last_decision(client: Client, query: str) -> Decision | None:
    """The whole decision, read from the record that the group points at."""
    offset, note = await transactions.committed_offset(client, group_of(query), TOPIC, stable=True)
    if offset < 0:
        return None
    attempts = Attempts(client.retry)
    while True:
        fetched = (await records.fetch(client, {(TOPIC, 0): offset}, read_committed=True))[(TOPIC, 0)]
        if fetched.error_code:
            raise KafkaError(fetched.error_code, f"read the decision at {TOPIC}-0 offset {offset}")
        for header in iterate_batches(fetched.records):
            if header.is_control or header.last_offset < offset:
                continue
            batch = fetched.records[header.position : header.position + header.size]
            for record in read_records(batch):
                if record.offset == offset and record.value is not None:
                    return _parse(record.value, int(note))
        if not await attempts.pause():
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the decision at {TOPIC}-0 offset {offset} is gone")


def _parse(value: bytes, batch_id: int) -> Decision:
    content = json.loads(value)
    return Decision(batch_id, tuple(Transaction(*entry) for entry in content["transactions"]))


def _record(query: str, batch_id: int, chosen: Sequence[Transaction]) -> bytes:
    content = {
        "query": query,
        "batch": batch_id,
        "transactions": [[t.transactional_id, t.producer_id, t.epoch] for t in chosen],
    }
    return json.dumps(content).encode()


async def take_over(client: Client, query: str) -> Transaction:
    """Become the only one who can decide for the query; a decision that was under way is finished or undone by this."""
    return await transactions.open_transaction(client, f"{query}-driver")


async def decide(
    client: Client, owner: Transaction, query: str, batch_id: int, chosen: Sequence[Transaction], *, implicit: bool
) -> None:
    """Write the decision and wait until everybody can see it. Fenced by another driver: AnotherDriver."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(
        [new_record(query.encode(), _record(query, batch_id, chosen), now_ms)],
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        base_sequence=0,
        transactional=True,
    )
    try:
        if not implicit:
            await transactions.add_partition(client, owner, TOPIC, 0)
        produced = await _produce(client, owner, batch, implicit=implicit)
        await transactions.commit_offset(
            client, owner, group_of(query), TOPIC, produced, str(batch_id), implicit=implicit
        )
        await transactions.end_transaction(client, owner, commit=True, implicit=implicit)
    except (transactions.TransactionLost, KafkaError) as error:
        if isinstance(error, KafkaError) and error.code not in transactions.FENCED:
            raise
        raise AnotherDriver(f"another driver of query {query} has taken over while batch {batch_id} ended") from error
    seen = await last_batch(client, query, stable=True)
    if seen != batch_id:
        raise AnotherDriver(f"query {query}: batch {seen} is decided, although batch {batch_id} was just written")


async def _produce(client: Client, owner: Transaction, batch: bytes, *, implicit: bool) -> int:
    attempts = Attempts(client.retry)
    while True:
        try:
            produced = await records.produce(
                client, TOPIC, 0, batch, transactional_id=owner.transactional_id, implicit_partitions=implicit
            )
        except KafkaError as error:
            if not (error.retriable or error.code == ErrorCode.CONCURRENT_TRANSACTIONS) or not await attempts.pause():
                raise
            continue
        if produced.base_offset < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the decision was written, but nobody knows where")
        return produced.base_offset


async def forget(client: Client, query: str) -> None:
    """A batch write that is over needs no decision any more: let compaction remove it."""
    tombstone = build_batch([new_record(query.encode(), None, int(time.time() * 1000))])
    await records.produce(client, TOPIC, 0, tombstone)
