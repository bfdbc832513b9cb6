"""Record bytes in and out, untouched: produce prepared batches, fetch raw ones, look offsets up.

Who builds and reads batches uses `protocol.batch` (rows) or the columnar kernels (Spark); nothing here looks inside,
except at the producer id of a batch, which decides whether it is safe to send it twice.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.client import Client
from penstock.client.errors import BrokerUnreachable, ConnectionLost, KafkaError
from penstock.client.retry import Attempts
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "Fetched", "OffsetAt", "Produced", "fetch", "list_offsets", "produce"]

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3

# Topics go by name up to these versions; names are what our callers hold.
_FETCH_BY_NAME = 12
_PRODUCE_BY_NAME = 12
_PRODUCE_EXPLICIT_TRANSACTIONS = 11
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_POSITION = 43


@dataclass(frozen=True, slots=True)
class Produced:
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches from the one that holds the asked offset on; the last one may be cut off."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes
    aborted_transactions: tuple[tuple[int, int], ...]  # (producer id, first offset)


@dataclass(frozen=True, slots=True)
class OffsetAt:
    error_code: int
    offset: int  # -1: no record at or after the timestamp
    timestamp_ms: int
    leader_epoch: int


async def produce(
    client: Client,
    topic: str,
    partition: int,
    batches: bytes | bytearray | memoryview,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
    implicit_partitions: bool = False,
) -> Produced:
    """Append prepared batches; raises `KafkaError` when the broker refuses them.

    With `implicit_partitions` the broker adds the partition to the transaction by itself (KIP-890; the cluster's
    `transaction.version` must be 2), without it AddPartitionsToTxn must have been called before.
    """
    request = _produce_request(topic, partition, bytes(batches), acks, timeout_ms, transactional_id)
    explicit = transactional_id is not None and not implicit_partitions
    highest = _PRODUCE_EXPLICIT_TRANSACTIONS if explicit else _PRODUCE_BY_NAME
    if acks == 0:
        connection = await client.leader_connection(topic, partition)
        await connection.send_without_answer("produce", request, connection.version_for("produce", highest))
        return Produced(-1, -1, -1)
    response = await client.call_leader(
        topic, partition, "produce", request, highest_version=highest, retry_lost=_is_idempotent(batches)
    )
    answer = response.responses[0].partition_responses[0]
    if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Produced(-1, -1, answer.log_start_offset)  # written by an earlier try whose answer was lost
    if answer.error_code:
        raise KafkaError(answer.error_code, f"produce to {topic}-{partition}", answer.error_message)
    return Produced(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)


def _produce_request(
    topic: str, partition: int, batches: bytes, acks: int, timeout_ms: int, transactional_id: str | None
) -> Any:
    api = messages.api("produce")
    data = api.TopicProduceData(partition_data=[api.PartitionProduceData(index=partition, records=batches)])
    data.name = topic
    return api.Request(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def _is_idempotent(batches: bytes | bytearray | memoryview) -> bool:
    if len(batches) < _PRODUCER_ID_POSITION + _PRODUCER_ID.size:
        return False
    return bool(_PRODUCER_ID.unpack_from(batches, _PRODUCER_ID_POSITION)[0] >= 0)


async def fetch(
    client: Client,
    offsets: Mapping[tuple[str, int], int],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 * 1024 * 1024,
    partition_max_bytes: int = 8 * 1024 * 1024,
    read_committed: bool = False,
) -> dict[tuple[str, int], Fetched]:
    """Raw batches from offsets, `{(topic, partition): offset}`, one request per leader, all leaders at once."""
    api = messages.api("fetch")

    def request(positions: Mapping[tuple[str, int], int]) -> Any:
        topics = []
        for topic, partitions in _by_topic(positions).items():
            entry = api.FetchTopic(
                partitions=[
                    api.FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                    for p, offset in partitions
                ]
            )
            entry.topic = topic
            topics.append(entry)
        message = api.Request(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_epoch=-1,
            topics=topics,
        )
        message.replica_id = -1  # a consumer; versions below 15 carry it in the body
        return message

    def results(response: Any) -> dict[tuple[str, int], Fetched]:
        if response.error_code:
            raise KafkaError(response.error_code, "fetch")
        return {(t.topic, p.partition_index): _fetched(t.topic, p) for t in response.responses for p in t.partitions}

    timeout_s = max_wait_ms / 1000 + 30
    return await _ask_leaders(client, offsets, "fetch", request, results, _FETCH_BY_NAME, timeout_s)


def _fetched(topic: str, part: Any) -> Fetched:
    aborted = tuple((t.producer_id, t.first_offset) for t in part.aborted_transactions or ())
    return Fetched(
        topic=topic,
        partition=part.partition_index,
        error_code=part.error_code,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        records=part.records or b"",
        aborted_transactions=aborted,
    )


async def list_offsets(
    client: Client, timestamps: Mapping[tuple[str, int], int], *, read_committed: bool = False
) -> dict[tuple[str, int], OffsetAt]:
    """Offsets by time in ms, or by LATEST, EARLIEST, MAX_TIMESTAMP."""
    api = messages.api("list_offsets")

    def request(wanted: Mapping[tuple[str, int], int]) -> Any:
        topics = [
            api.ListOffsetsTopic(
                name=topic,
                partitions=[api.ListOffsetsPartition(partition_index=p, timestamp=at) for p, at in partitions],
            )
            for topic, partitions in _by_topic(wanted).items()
        ]
        return api.Request(replica_id=-1, isolation_level=int(read_committed), topics=topics)

    def results(response: Any) -> dict[tuple[str, int], OffsetAt]:
        return {
            (t.name, p.partition_index): OffsetAt(p.error_code, p.offset, p.timestamp, p.leader_epoch)
            for t in response.topics
            for p in t.partitions
        }

    return await _ask_leaders(client, timestamps, "list_offsets", request, results, None, None)


def _by_topic(values: Mapping[tuple[str, int], int]) -> dict[str, list[tuple[int, int]]]:
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# A leader that another broker named, and that does not know the topic yet: brokers hear of a topic one after the other.
_MOVED_OR_NEW = _MOVED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def _ask_leaders(
    client: Client,
    wanted: Mapping[tuple[str, int], int],
    api_name: str,
    request: Any,
    results: Any,
    highest_version: int | None,
    timeout_s: float | None,
) -> dict[tuple[str, int], Any]:
    """Spread a read over the leaders; partitions whose leader moved or was lost are asked again until the deadline."""
    attempts = Attempts(client.retry)
    answers: dict[tuple[str, int], Any] = {}
    pending = dict(wanted)
    while pending:
        groups = await client.group_by_leader(pending, attempts)

        async def ask(keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
            part = {key: pending[key] for key in keys}  # noqa: B023 - awaited below, before `pending` changes
            connection = await client.leader_connection(*next(iter(part)))
            version = connection.version_for(api_name, highest_version)
            return results(await connection.request(api_name, request(part), version, timeout_s))

        outcomes = await asyncio.gather(*(ask(keys) for keys in groups), return_exceptions=True)
        lost: Exception | None = None
        for outcome in outcomes:
            if isinstance(outcome, ConnectionLost | BrokerUnreachable):
                lost = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answers.update(outcome)
        retried = _MOVED if attempts.elapsed_s > client.retry.missing_topic_wait_s else _MOVED_OR_NEW
        pending = {k: v for k, v in pending.items() if k not in answers or answers[k].error_code in retried}
        if not pending:
            break
        for topic, _ in pending:
            client.forget_topic(topic)
        if not await attempts.pause():
            if lost is not None:
                raise lost
            break
    return answers
