"""Dead letters back to their topics, each once: the records and what is done go into one transaction.

A letter goes back as it was: topic, partition, key, value, headers and timestamp. What is done is kept per partition of
the dead-letter topic as ranges of offsets, so that each letter is redriven, skipped or left by itself. One that its
topic refuses is found by halving the transaction, and left: it keeps none of the others back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.records import LATEST
from penstock.client.sync import SyncClient
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.control.store import settings_for_librdkafka
from penstock.pipelines.formats.dead_letters import (
    EXPECTATION,
    LETTER_SETTINGS,
    PARTITION,
    PIPELINE,
    PREFIX,
    REASON,
    RETRY_SOURCE,
    RETRY_SUFFIX,
    SOURCE,
    STEP,
    TIMESTAMP,
    TOPIC,
)  # fmt: skip
from penstock.pipelines.spark import sink_journal as journal

_TRANSACTION_RECORDS: Final = 1000
_SECONDS: Final = 30.0
_LARGEST_BYTES: Final = 100_000_000  # of one record: what is too large is for the topic to say
# What a topic says of a record, however often it is asked.
_REFUSALS: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG"})
_NOT_READY: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})

Ranges = list[list[int]]
"""[first, end) of offsets, in order, not touching each other."""


class RedriveFailed(Exception):
    """The cluster refused or went away."""


class _Refused(Exception):
    """A topic does not take a record of the transaction, which was undone."""


@dataclass
class Redriven:
    written: int = 0
    skipped: int = 0  # marked as dealt with, as asked
    left: int = 0  # not asked for, nobody knows where they came from, or refused
    refused: dict[str, int] = field(default_factory=dict)  # why a topic does not take letters back, and how many
    restamped: int = 0  # written with the time of now: the topic would refuse or expire the old one
    moved: int = 0  # written to the partition of their key: theirs is not there any more
    topics: dict[str, int] = field(default_factory=dict)  # where to, and how many


@dataclass(frozen=True)
class Wanted:
    """Which letters, and what to do with them."""

    to: str | None = None
    reason: str | None = None
    skip: bool = False

    def target(self, headers: Mapping[str, bytes]) -> str | None:
        """The topic for a letter; None leaves it."""
        if self.reason is not None and self.reason not in headers.get(REASON, b"").decode("utf-8", "replace"):
            return None
        if self.skip:
            return "-"
        if self.to is not None and self.to.endswith(RETRY_SUFFIX):  # read by that pipeline, as if by its source
            is_its_own = self.to == f"{headers.get(PIPELINE, b'').decode()}{RETRY_SUFFIX}"
            return self.to if is_its_own and not {EXPECTATION, STEP} & set(headers) else None
        if self.to is not None:
            return self.to
        if {EXPECTATION, STEP} & set(headers):  # the row is not what the topic held
            return None
        origin = headers.get(TOPIC)
        return origin.decode() if origin else None


def redrive(properties: Mapping[str, str], topic: str, wanted: Wanted, *, dry_run: bool) -> Redriven:
    """Everything up to the topic's end as it is now that is not done yet."""
    from confluent_kafka import KafkaException

    common = settings_for_librdkafka(properties)
    try:
        with SyncClient.from_properties(dict(properties)) as client:
            if not dry_run:
                client.run(journal.ensure_topic)
            return _Redrive(client, common, topic, wanted, None if dry_run else _new_producer(common, topic)).run()
    except KafkaException as error:
        raise RedriveFailed(error.args[0].str()) from None


def _new_producer(common: Mapping[str, Any], topic: str) -> Any:
    """Whoever else redrives this topic is fenced by this, and what it had under way is undone or done."""
    from confluent_kafka import Producer

    settings = {"transactional.id": f"penstock-redrive-{topic}", "transaction.timeout.ms": 60_000}
    # Compressed, because a record may have fitted into its topic only so.
    settings |= {"message.max.bytes": _LARGEST_BYTES, "compression.type": "gzip"}
    producer = Producer({**common, **settings})
    producer.init_transactions(_SECONDS)
    return producer


class _Redrive:
    def __init__(
        self, client: SyncClient, common: dict[str, Any], topic: str, wanted: Wanted, producer: Any | None
    ) -> None:
        self._client, self._common, self._topic = client, common, topic
        self._wanted, self._producer = wanted, producer
        self._result = Redriven()
        self._done: dict[int, Ranges] = {}
        self._targets: dict[str, _Target | None] = {}
        self._topic_id = self._id_of(topic)

    def run(self) -> Redriven:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                **self._common,
                "group.id": f"penstock-redrive-{self._topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = list(consumer.list_topics(self._topic, timeout=_SECONDS).topics[self._topic].partitions)
            old = _committed(consumer, [TopicPartition(self._topic, index) for index in partitions])
            self._done = {item.partition: self._ranges(item.partition, item.offset) for item in old}
            begins = {index: _first_open(self._done[index]) for index in partitions}
            ends = self._ends(partitions)
            consumer.assign([TopicPartition(self._topic, index, begins[index]) for index in partitions])
            batch: list[tuple[str, Any]] = []
            for message in _letters(consumer, {index: end for index, end in ends.items() if begins[index] < end}):
                if _holds(self._done[message.partition()], message.offset()):
                    continue
                target = self._wanted.target(dict(message.headers() or []))
                if target is None:
                    self._result.left += 1
                    continue
                if not self._wanted.skip and self._target(target) is None:
                    self._refuse(f"there is no topic {target}")
                    continue
                batch.append((target, message))
                if len(batch) == _TRANSACTION_RECORDS:
                    self._write(batch)
                    batch = []
            if batch:
                self._write(batch)
        finally:
            consumer.close()
        return self._result

    def _ends(self, partitions: list[int]) -> dict[int, int]:
        """Up to where committed letters lie now. What comes later, perhaps because of us, waits for the next time."""
        wanted = {(self._topic, index): LATEST for index in partitions}
        found = self._client.list_offsets(wanted, read_committed=True)
        return {index: answer.offset for (_, index), answer in found.items()}

    def _key(self, partition: int) -> str:
        return f"redrive#{self._topic}#{partition}"

    def _ranges(self, partition: int, old_offset: int) -> Ranges:
        """What is done; version 0.1.0 kept one offset per partition, in a group."""
        kept = self._client.run(lambda inner: journal.value_of(inner, self._key(partition), settled=True))
        if kept is not None:
            known = json.loads(kept)
            # A topic that was deleted and made again has other letters at the same offsets.
            is_another = known.get("topic_id", self._topic_id) != self._topic_id
            ranges: Ranges = [] if is_another else known["done"]
            return ranges
        return [[0, old_offset]] if old_offset > 0 else []

    def _write(self, batch: list[tuple[str, Any]]) -> None:
        """In one transaction; in two halves, one after the other, if a topic refuses something of it."""
        after = {partition: [list(item) for item in ranges] for partition, ranges in self._done.items()}
        for partition, ranges in after.items():
            _add(ranges, [message.offset() for _, message in batch if message.partition() == partition])
        try:
            if self._producer is not None:
                self._transact(batch, after)
        except _Refused as refusal:
            if len(batch) == 1:
                self._refuse(f"{batch[0][0]} says: {refusal}")
                return
            middle = len(batch) // 2
            self._write(batch[:middle])
            self._write(batch[middle:])
            return
        self._count(batch)
        self._done = after

    def _transact(self, batch: list[tuple[str, Any]], after: dict[int, Ranges]) -> None:
        from confluent_kafka import KafkaException

        assert self._producer is not None
        refusals: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None and error.name() in _REFUSALS:
                refusals.append(error.str().rpartition("Broker: ")[2].partition(" (")[0])

        self._producer.begin_transaction()
        try:
            for target, message in batch:
                if not self._wanted.skip:
                    self._send(target, message, delivered)
            for partition in sorted({message.partition() for _, message in batch}):
                key = self._key(partition)
                value = json.dumps({"done": after[partition], "topic_id": self._topic_id})
                self._producer.produce(journal.TOPIC, value, key, partition=journal.partition_of(key))
            self._producer.commit_transaction(_SECONDS)
        except KafkaException:
            self._producer.abort_transaction(_SECONDS)
            if refusals:
                # This one would count on from the record that was refused, which no broker takes.
                self._producer = _new_producer(self._common, self._topic)
                raise _Refused(refusals[0]) from None
            raise

    def _refuse(self, reason: str) -> None:
        self._result.left += 1
        self._result.refused[reason] = self._result.refused.get(reason, 0) + 1

    def _count(self, batch: list[tuple[str, Any]]) -> None:
        if self._wanted.skip:
            self._result.skipped += len(batch)
            return
        self._result.written += len(batch)
        for target, message in batch:
            self._result.topics[target] = self._result.topics.get(target, 0) + 1
            placed = self._place(target, dict(message.headers() or []))
            self._result.moved += placed.is_moved
            self._result.restamped += placed.is_restamped

    def _place(self, topic: str, headers: Mapping[str, bytes]) -> _Placed:
        target = self._target(topic)
        assert target is not None
        return target.place(headers, keeps=self._wanted.to is None)

    def _target(self, topic: str) -> _Target | None:
        """None if there is no such topic."""
        if topic not in self._targets:
            if topic.endswith(RETRY_SUFFIX) and self._id_of(topic) is None:
                if self._producer is None:
                    return _Target(1, 0)
                self._client.run(lambda inner: ensure_topic(inner, topic, settings=LETTER_SETTINGS))
            self._targets[topic] = _Target.look_at(self._client, self._common, topic)
        return self._targets[topic]

    def _id_of(self, topic: str) -> str | None:
        known = self._client.metadata([topic]).topics.get(topic)
        return None if known is None or known.error_code else str(known.topic_id)

    def _send(self, topic: str, message: Any, delivered: Callable[[Any, Any], None]) -> None:
        assert self._producer is not None
        told = dict(message.headers() or [])
        ours = (PREFIX, RETRY_SOURCE)
        headers = [(name, value) for name, value in message.headers() or [] if not name.startswith(ours)]
        if topic.endswith(RETRY_SUFFIX) and SOURCE in told:
            headers.append((RETRY_SOURCE, told[SOURCE]))
        placed = self._place(topic, told)
        more: dict[str, Any] = {} if placed.partition is None else {"partition": placed.partition}
        if placed.timestamp_ms is not None:
            more["timestamp"] = placed.timestamp_ms
        self._producer.produce(topic, message.value(), message.key(), headers=headers, on_delivery=delivered, **more)
        self._producer.poll(0)


@dataclass(frozen=True)
class _Placed:
    partition: int | None
    timestamp_ms: int | None
    is_moved: bool
    is_restamped: bool


@dataclass(frozen=True)
class _Target:
    """A topic that takes letters back: how many partitions it has, and how old a record may be."""

    partitions: int
    oldest_ms: int

    @classmethod
    def look_at(cls, client: SyncClient, common: Mapping[str, Any], topic: str) -> _Target | None:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        known = client.metadata([topic]).topics.get(topic)
        if known is None or known.error_code:
            return None
        admin = AdminClient(dict(common))
        resource = ConfigResource(ResourceType.TOPIC, topic)
        settings = {name: item.value for name, item in admin.describe_configs([resource])[resource].result(30).items()}
        limits = [int(settings.get("message.timestamp.before.max.ms", 2**63 - 1))]
        if "delete" in settings.get("cleanup.policy", "delete"):
            limits.append(int(settings.get("retention.ms", -1)))
        age_ms = min((limit for limit in limits if limit >= 0), default=2**63 - 1)
        return cls(len(known.partitions), max(0, int(time.time() * 1000) - age_ms))

    def place(self, headers: Mapping[str, bytes], *, keeps: bool) -> _Placed:
        """Where and when it was, if the topic still takes that; another topic has partitions of its own."""
        partition = _number(headers.get(PARTITION)) if keeps else None
        is_moved = partition is not None and partition >= self.partitions
        timestamp = _number(headers.get(TIMESTAMP))
        is_restamped = timestamp is not None and timestamp < self.oldest_ms
        return _Placed(None if is_moved else partition, None if is_restamped else timestamp, is_moved, is_restamped)


def _number(text: bytes | None) -> int | None:
    """A header that was damaged says nothing: its record goes by key, with the time of now."""
    return int(text) if text is not None and text.isdigit() else None


def _committed(consumer: Any, wanted: list[Any]) -> list[Any]:
    """What the group of version 0.1.0 has; a coordinator that has just been chosen needs a moment."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            found: list[Any] = consumer.committed(wanted, timeout=_SECONDS)
            return found
        except KafkaException as error:
            if error.args[0].name() not in _NOT_READY or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _letters(consumer: Any, ends: Mapping[int, int]) -> Iterator[Any]:
    """Up to `ends`. A marker may lie right before one: then it shows as a later letter, or as the topic's end."""
    open_ends = dict(ends)
    while open_ends:
        message = consumer.poll(_SECONDS)
        if message is None:
            raise RedriveFailed(f"no answer within {_SECONDS:.0f} s")
        error, partition = message.error(), message.partition()
        if error and error.name() != "_PARTITION_EOF":
            raise RedriveFailed(error.str())
        if not error and message.offset() < ends.get(partition, 0):
            yield message
        if error or message.offset() >= ends.get(partition, 0) - 1:
            open_ends.pop(partition, None)


# --- ranges ---


def _first_open(ranges: Ranges) -> int:
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0


def _holds(ranges: Ranges, offset: int) -> bool:
    return any(first <= offset < end for first, end in ranges)


def _add(ranges: Ranges, offsets: list[int]) -> None:
    ranges += [[offset, offset + 1] for offset in offsets]
    ranges.sort()
    joined: Ranges = []
    for first, end in ranges:
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([first, end])
    ranges[:] = joined
