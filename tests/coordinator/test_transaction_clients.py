"""Unmodified clients in transactions: librdkafka, the Java client, Kafka's own transactions tool."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.client.sync import SyncClient
from penstock.testing import peers
from penstock.testing.raw_transactions import RawProducer, create_topic, described, until, values


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    settings = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "transaction.partition.verification.enable": "false",  # so that a transaction can be made to hang
    }
    with penstock.Broker(settings=settings) as started:
        yield started


@pytest.fixture
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: SyncClient, request: pytest.FixtureRequest) -> str:
    create_topic(client, request.node.name)
    return str(request.node.name)


def transactional(broker: Any, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(120)
    return producer


def read(broker: Any, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """`count` values from the start, and whatever comes right behind them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-{topic}-{isolation}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                if len(found) >= count:
                    break
                continue
            assert message.error() is None, message.error()
            found.append(message.value().decode())
        return found
    finally:
        consumer.close()


def test_librdkafka_commits_and_aborts(broker: Any, topic: str) -> None:
    producer = transactional(broker, topic)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, f"{number}", partition=0)
        if number % 2:
            producer.flush(120)
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)
    assert read(broker, topic, 3) == ["0", "2", "4"]
    assert read(broker, topic, 6, "read_uncommitted") == ["0", "1", "2", "3", "4", "5"]


def test_librdkafka_fences_the_producer_before(broker: Any, topic: str) -> None:
    zombie = transactional(broker, topic)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie", partition=0)
    zombie.flush(120)
    newcomer = transactional(broker, topic)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(120)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    newcomer.begin_transaction()
    newcomer.produce(topic, "newcomer", partition=0)
    newcomer.commit_transaction(120)
    assert read(broker, topic, 1) == ["newcomer"]


def test_librdkafka_consumes_transforms_and_produces(broker: Any, client: SyncClient, topic: str) -> None:
    """Half of the transactions are aborted and done again: each input shows once in the output."""
    create_topic(client, f"{topic}-out")
    feeder = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        feeder.produce(topic, f"{number}", partition=0)
    feeder.flush(120)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    producer = transactional(broker, topic)
    done, attempts = 0, 0
    deadline = time.monotonic() + 240
    while done < 100 and time.monotonic() < deadline:
        messages = consumer.consume(10, 1.0)
        if not messages:
            continue
        attempts += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(f"{topic}-out", b"out " + message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        if attempts % 2:
            producer.abort_transaction(120)
            for partition in consumer.committed(consumer.assignment(), 120):
                partition.offset = max(partition.offset, 0)
                consumer.seek(partition)
        else:
            producer.commit_transaction(120)
            done += len(messages)
    consumer.close()
    assert read(broker, f"{topic}-out", 100) == [f"out {number}" for number in range(100)]


@pytest.mark.java
def test_the_java_client_copies_exactly_once(broker: Any, client: SyncClient, topic: str) -> None:
    """Kafka's TransactionalMessageCopier: transaction.version 2, half of the transactions aborted at random."""
    create_topic(client, f"{topic}-out")
    feeder = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(500):
        feeder.produce(topic, f"{number}", partition=0)
    feeder.flush(120)
    copied = peers.kafka_tool(
        "TransactionalMessageCopier",
        "--broker-list", broker.bootstrap,
        "--input-topic", topic,
        "--input-partition", "0",
        "--output-topic", f"{topic}-out",
        "--transactional-id", topic,
        "--consumer-group", topic,
        "--transaction-size", "50",
        "--max-messages", "500",
        "--enable-random-aborts",
    )  # fmt: skip
    assert copied.returncode == 0, copied.stdout + copied.stderr
    assert values(client, f"{topic}-out") == [f"{number}" for number in range(500)]


@pytest.mark.java
def test_kafkas_transactions_tool_finds_and_aborts_what_hangs(broker: Any, client: SyncClient, topic: str) -> None:
    def tool(*arguments: str) -> str:
        done = peers.kafka_tool("TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    producer = RawProducer(client, topic, implicit=False)
    assert producer.send(topic, 0, "hangs") == 0
    busy = RawProducer(client, f"{topic}-busy")
    assert busy.send(topic, 0, "known to its coordinator") == 0

    listing = tool("list")
    assert any(line.split()[0] == f"{topic}-busy" and "Ongoing" in line for line in listing.splitlines() if line)
    description = tool("describe", "--transactional-id", f"{topic}-busy")
    assert "Ongoing" in description
    assert f"{topic}-0" in description
    producers = tool("describe-producers", "--topic", topic, "--partition", "0")
    assert str(producer.producer_id) in producers

    # A transaction younger than the limit is not suspicious; -1 minutes makes every one old enough.
    hanging = tool("find-hanging", "--topic", topic, "--partition", "0", "--max-transaction-timeout", "-1")
    rows = [line.split() for line in hanging.splitlines() if line.startswith(topic)]
    assert [int(row[2]) for row in rows] == [producer.producer_id], hanging
    start_offset = rows[0][5]
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", start_offset)
    assert busy.end(True) == 0
    until(lambda: described(client, f"{topic}-busy").transaction_state == "CompleteCommit", "markers")
    assert values(client, topic) == ["known to its coordinator"]
