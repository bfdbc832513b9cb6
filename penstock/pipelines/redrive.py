"""Dead letters back to their topics, each once: the records and how far we are go into one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipelines.control.store import settings_for_librdkafka
from penstock.pipelines.formats.dead_letters import EXPECTATION, PREFIX, REASON, TOPIC

_TRANSACTION_RECORDS: Final = 1000
_SECONDS: Final = 30.0


class RedriveFailed(Exception):
    """The cluster refused or went away."""


@dataclass
class Redriven:
    written: int = 0
    skipped: int = 0


def redrive(
    properties: Mapping[str, str], topic: str, *, to: str | None, reason: str | None, dry_run: bool
) -> Redriven:
    """Everything up to the topic's end as it is now. Progress is the offset of the group `penstock-redrive-<topic>`."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    group = f"penstock-redrive-{topic}"
    common = settings_for_librdkafka(properties)
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    result = Redriven()
    try:
        partitions = list(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
        committed = consumer.committed([TopicPartition(topic, index) for index in partitions], timeout=_SECONDS)
        for item in committed:
            if item.offset < 0:
                item.offset = 0
        consumer.assign(committed)
        producer = None
        if not dry_run:
            producer = Producer({**common, "transactional.id": group, "transaction.timeout.ms": 60_000})
            producer.init_transactions(_SECONDS)
        _loop(consumer, producer, len(partitions), result, to, reason)
    except KafkaException as error:
        raise RedriveFailed(error.args[0].str()) from None
    finally:
        consumer.close()
    return result


def _loop(consumer: Any, producer: Any, partitions: int, result: Redriven, to: str | None, reason: str | None) -> None:
    ended: set[int] = set()
    while len(ended) < partitions:
        taken: dict[int, int] = {}
        outgoing: list[tuple[str, Any]] = []
        while len(ended) < partitions and len(outgoing) < _TRANSACTION_RECORDS:
            message = consumer.poll(_SECONDS)
            if message is None:
                raise RedriveFailed(f"no answer within {_SECONDS:.0f} s")
            if message.error():
                if message.error().name() != "_PARTITION_EOF":
                    raise RedriveFailed(message.error().str())
                ended.add(message.partition())
                continue
            target = _target(message, to, reason)
            taken[message.partition()] = message.offset() + 1
            if target is None:
                result.skipped += 1
            else:
                outgoing.append((target, message))
        result.written += len(outgoing)
        if producer is not None and taken:
            _write(consumer, producer, outgoing, taken)


def _target(message: Any, to: str | None, reason: str | None) -> str | None:
    headers = dict(message.headers() or [])
    if reason is not None and reason not in headers.get(REASON, b"").decode("utf-8", "replace"):
        return None
    if to is not None:
        return to
    if EXPECTATION in headers:  # the row is not what the topic held
        return None
    origin = headers.get(TOPIC)
    return origin.decode() if origin else None


def _write(consumer: Any, producer: Any, outgoing: list[tuple[str, Any]], taken: Mapping[int, int]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    producer.begin_transaction()
    try:
        for target, message in outgoing:
            headers = [(name, value) for name, value in message.headers() or [] if not name.startswith(PREFIX)]
            producer.produce(target, message.value(), message.key(), headers=headers)
            producer.poll(0)
        name = consumer.assignment()[0].topic
        offsets = [TopicPartition(name, index, offset) for index, offset in taken.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _SECONDS)
        producer.commit_transaction(_SECONDS)
    except KafkaException:
        producer.abort_transaction(_SECONDS)
        raise
