"""Dead letters back to their topics, each once: the records and what is done go into one transaction.

A letter goes back as it was: topic, partition, key, value, headers and timestamp. What is done is kept per partition of
the dead-letter topic as ranges of offsets, so that each letter is redriven, skipped or left by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.sync import SyncClient
from penstock.pipelines.control.store import settings_for_librdkafka
from penstock.pipelines.formats.dead_letters import EXPECTATION, PARTITION, PREFIX, REASON, TIMESTAMP, TOPIC
from penstock.pipelines.spark import sink_journal as journal

_TRANSACTION_RECORDS: Final = 1000
_SECONDS: Final = 30.0

Ranges = list[list[int]]
"""[first, end) of offsets, in order, not touching each other."""


class RedriveFailed(Exception):
    """The cluster refused or went away."""


@dataclass
class Redriven:
    written: int = 0
    skipped: int = 0  # marked as dealt with, as asked
    left: int = 0  # not asked for, or nobody knows where they came from
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
        if self.to is not None or self.skip:
            return self.to or "-"
        if EXPECTATION in headers:  # the row is not what the topic held
            return None
        origin = headers.get(TOPIC)
        return origin.decode() if origin else None


def redrive(properties: Mapping[str, str], topic: str, wanted: Wanted, *, dry_run: bool) -> Redriven:
    """Everything up to the topic's end as it is now that is not done yet."""
    from confluent_kafka import KafkaException, Producer

    common = settings_for_librdkafka(properties)
    producer = None
    try:
        with SyncClient.from_properties(dict(properties)) as client:
            if not dry_run:
                client.run(journal.ensure_topic)
                # Whoever else redrives this topic is fenced by this, and what it had under way is undone or done.
                identity = f"penstock-redrive-{topic}"
                producer = Producer({**common, "transactional.id": identity, "transaction.timeout.ms": 60_000})
                producer.init_transactions(_SECONDS)
            return _Redrive(client, common, topic, wanted, producer).run()
    except KafkaException as error:
        raise RedriveFailed(error.args[0].str()) from None


class _Redrive:
    def __init__(
        self, client: SyncClient, common: dict[str, Any], topic: str, wanted: Wanted, producer: Any | None
    ) -> None:
        self._client, self._common, self._topic = client, common, topic
        self._wanted, self._producer = wanted, producer
        self._result = Redriven()
        self._done: dict[int, Ranges] = {}
        self._targets: dict[str, _Target] = {}

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
            old = consumer.committed([TopicPartition(self._topic, index) for index in partitions], timeout=_SECONDS)
            self._done = {item.partition: self._ranges(item.partition, item.offset) for item in old}
            begins = [TopicPartition(self._topic, index, _first_open(self._done[index])) for index in partitions]
            consumer.assign(begins)
            batch: list[tuple[str, Any]] = []
            for message in _letters(consumer, len(partitions)):
                if _holds(self._done[message.partition()], message.offset()):
                    continue
                target = self._wanted.target(dict(message.headers() or []))
                if target is None:
                    self._result.left += 1
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

    def _key(self, partition: int) -> str:
        return f"redrive#{self._topic}#{partition}"

    def _ranges(self, partition: int, old_offset: int) -> Ranges:
        """What is done; version 0.1.0 kept one offset per partition, in a group."""
        kept = self._client.run(lambda inner: journal.value_of(inner, self._key(partition), settled=True))
        if kept is not None:
            ranges: Ranges = json.loads(kept)["done"]
            return ranges
        return [[0, old_offset]] if old_offset > 0 else []

    def _write(self, batch: list[tuple[str, Any]]) -> None:
        from confluent_kafka import KafkaException

        after = {partition: [list(item) for item in ranges] for partition, ranges in self._done.items()}
        for partition, ranges in after.items():
            _add(ranges, [message.offset() for _, message in batch if message.partition() == partition])
        if self._producer is None:
            self._count(batch)
            self._done = after
            return
        self._producer.begin_transaction()
        try:
            for target, message in batch:
                if not self._wanted.skip:
                    self._send(target, message)
            for partition in sorted({message.partition() for _, message in batch}):
                key = self._key(partition)
                value = json.dumps({"done": after[partition]})
                self._producer.produce(journal.TOPIC, value, key, partition=journal.partition_of(key))
            self._producer.commit_transaction(_SECONDS)
        except KafkaException:
            self._producer.abort_transaction(_SECONDS)
            raise
        self._count(batch)
        self._done = after

    def _count(self, batch: list[tuple[str, Any]]) -> None:
        if self._wanted.skip:
            self._result.skipped += len(batch)
            return
        self._result.written += len(batch)
        for target, message in batch:
            self._result.topics[target] = self._result.topics.get(target, 0) + 1
            placed = self._target(target).place(dict(message.headers() or []), keeps=self._wanted.to is None)
            self._result.moved += placed.is_moved
            self._result.restamped += placed.is_restamped

    def _target(self, topic: str) -> _Target:
        if topic not in self._targets:
            self._targets[topic] = _Target.look_at(self._client, self._common, topic)
        return self._targets[topic]

    def _send(self, topic: str, message: Any) -> None:
        assert self._producer is not None
        told = dict(message.headers() or [])
        headers = [(name, value) for name, value in message.headers() or [] if not name.startswith(PREFIX)]
        placed = self._target(topic).place(told, keeps=self._wanted.to is None)
        more: dict[str, Any] = {} if placed.partition is None else {"partition": placed.partition}
        if placed.timestamp_ms is not None:
            more["timestamp"] = placed.timestamp_ms
        self._producer.produce(topic, message.value(), message.key(), headers=headers, **more)
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
    def look_at(cls, client: SyncClient, common: Mapping[str, Any], topic: str) -> _Target:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        known = client.metadata([topic]).topics.get(topic)
        if known is None or known.error_code:
            raise RedriveFailed(f"there is no topic {topic} to write letters to")
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


def _letters(consumer: Any, partitions: int) -> Iterator[Any]:
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(_SECONDS)
        if message is None:
            raise RedriveFailed(f"no answer within {_SECONDS:.0f} s")
        if not message.error():
            yield message
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
        else:
            raise RedriveFailed(message.error().str())


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
