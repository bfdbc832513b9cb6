"""Unmodified clients in groups on a real broker: confluent-kafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.embedded import EmbeddedBroker
from penstock.coordinator.group.journal import JOURNAL_TOPIC

PARTITIONS = 6
RECORDS = 300
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        fill(running)
        yield running


def fill(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("t", value=str(number), partition=number % PARTITIONS)
    assert producer.flush(120) == 0


def member(broker: EmbeddedBroker, group: str, protocol: str, **more: Any) -> Consumer:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        config |= {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200}
    consumer = Consumer(config | more)
    consumer.subscribe(["t"])
    return consumer


def until(what: Callable[[], bool], step: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never happens"
        step()


def read(consumers: Sequence[Consumer], seen: list[str]) -> None:
    for consumer in consumers:
        message = consumer.poll(0.02)
        if message is not None and message.error() is None:
            seen.append(message.value().decode())


def settle(*consumers: Consumer, seen: list[str] | None = None) -> None:
    """Poll until all partitions are spread over all consumers."""
    values: list[str] = [] if seen is None else seen

    def spread() -> bool:
        shares = [[p.partition for p in consumer.assignment()] for consumer in consumers]
        return all(shares) and sorted(p for share in shares for p in share) == list(range(PARTITIONS))

    until(spread, lambda: read(consumers, values))


def kind(broker: EmbeddedBroker, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return str(admin.describe_consumer_groups([group])[group].result(120).type.name)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumers_share_come_and_go(broker: EmbeddedBroker, protocol: str) -> None:
    group = f"share-{protocol}"
    seen: list[str] = []
    first = member(broker, group, protocol)
    settle(first, seen=seen)
    second = member(broker, group, protocol)
    settle(first, second, seen=seen)
    until(lambda: len(set(seen)) == RECORDS, lambda: read((first, second), seen))
    for consumer in (first, second):
        ends = [TopicPartition("t", p.partition, RECORDS // PARTITIONS) for p in consumer.assignment()]
        assert all(position.error is None for position in consumer.commit(offsets=ends, asynchronous=False))
    second.close()
    settle(first)
    first.close()
    later = member(broker, group, protocol)
    settle(later)
    positions = later.committed([TopicPartition("t", index) for index in range(PARTITIONS)])
    assert [position.offset for position in positions] == [RECORDS // PARTITIONS] * PARTITIONS
    later.close()


def test_a_group_migrates_to_the_new_protocol_and_back_without_stopping(broker: EmbeddedBroker) -> None:
    old = member(broker, "migrating", "classic")
    settle(old)
    assert kind(broker, "migrating") == "CLASSIC"
    new = member(broker, "migrating", "consumer")
    settle(old, new)
    assert kind(broker, "migrating") == "CONSUMER"
    new.close()
    settle(old)
    assert kind(broker, "migrating") == "CLASSIC"
    old.close()


def test_a_static_member_restarts_without_a_rebalance(broker: EmbeddedBroker) -> None:
    first = member(broker, "static", "classic", **{"group.instance.id": "one"})
    other = member(broker, "static", "classic", **{"group.instance.id": "two"})
    settle(first, other)
    share = sorted(position.partition for position in first.assignment())
    first.close()
    again = member(broker, "static", "classic", **{"group.instance.id": "one"})
    until(lambda: bool(again.assignment()), lambda: [consumer.poll(0.02) for consumer in (again, other)])
    assert sorted(position.partition for position in again.assignment()) == share
    again.close()
    other.close()


def test_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, settings=SETTINGS) as broker:
        fill(broker)
        consumer = member(broker, "durable", "classic")
        settle(consumer)
        consumer.commit(offsets=[TopicPartition("t", 3, 17)], asynchronous=False)
        consumer.close()
    with EmbeddedBroker(tmp_path, settings=SETTINGS) as broker:
        consumer = member(broker, "durable", "consumer")
        settle(consumer)
        assert consumer.committed([TopicPartition("t", 3)])[0].offset == 17
        consumer.close()


def test_the_journal_tells_who_caused_a_rebalance(broker: EmbeddedBroker) -> None:
    first = member(broker, "journalled", "classic")
    settle(first)
    second = member(broker, "journalled", "classic")
    settle(first, second)
    second.close()
    settle(first)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "journal reader"})
    reader.assign([TopicPartition(JOURNAL_TOPIC, 0, 0)])
    entries: list[dict[str, Any]] = []

    def read_journal() -> None:
        message = reader.poll(0.2)
        if message is not None and message.error() is None and message.key() == b"journalled":
            entries[:] = json.loads(message.value())
        first.poll(0)

    until(lambda: any(cause["kind"] == "left" for entry in entries for cause in entry["causes"]), read_journal)
    assert entries[0]["causes"][0]["kind"] == "joined"
    assert {entry["members"] for entry in entries} == {1, 2}
    assert any(entry["moved"] for entry in entries)
    assert [entry["generation"] for entry in entries] == sorted(entry["generation"] for entry in entries)
    reader.close()
    first.close()


def test_kafka_python_consumers_share_a_topic(broker: EmbeddedBroker) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "kafka-python",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 200,
    }
    consumers = [KafkaConsumer("t", **options) for _ in range(2)]
    seen: set[bytes] = set()

    def read_all() -> None:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=50).values():
                seen.update(record.value for record in records)

    until(lambda: all(consumer.assignment() for consumer in consumers) and len(seen) == RECORDS, read_all)

    def commit_all() -> bool:
        try:
            for consumer in consumers:
                consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            return False  # the client says so while it rejoins; it must poll on
        return sum(consumers[0].committed(position) or 0 for position in _all_positions()) == RECORDS

    until(commit_all, read_all)
    for consumer in consumers:
        consumer.close()


def _all_positions() -> Sequence[Any]:
    from kafka import TopicPartition as Position

    return [Position("t", index) for index in range(PARTITIONS)]


def test_aiokafka_consumers_share_a_topic(broker: EmbeddedBroker) -> None:
    from aiokafka import AIOKafkaConsumer

    async def story() -> int:
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=broker.bootstrap,
                group_id="aiokafka",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        seen: set[bytes] = set()
        deadline = time.monotonic() + 240
        while len(seen) < RECORDS or not all(consumer.assignment() for consumer in consumers):
            assert time.monotonic() < deadline
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    seen.update(record.value for record in records)
        for consumer in consumers:
            await consumer.commit()
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
        return len(seen)

    assert asyncio.run(story()) == RECORDS
