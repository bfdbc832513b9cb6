"""Real clients, unmodified: what they write, they and the others read back, to the byte."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import ensure_topic

import penstock

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def create(broker: penstock.Broker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin.create_topics([new])[topic].result(20)


def producer(broker: penstock.Broker, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **config})


def read_all(broker: penstock.Broker, topic: str, count: int, partitions: int = 1, **config: Any) -> list[Any]:
    """The first `count` messages over all partitions, read with explicit assignment."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False, **config}
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: list[Any] = []
    deadline = time.monotonic() + 30
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
            for message in consumer.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_back_what_it_wrote_with_every_codec(broker: penstock.Broker, topic: str, codec: str) -> None:
    create(broker, topic)
    source = producer(broker, **{"compression.type": codec})
    for number in range(500):
        source.produce(topic, key=b"k%d" % number, value=b"value %d " % number * 10, headers=[("h", b"%d" % number)])
    assert source.flush(20) == 0

    messages = read_all(broker, topic, 500)

    assert [m.offset() for m in messages] == list(range(500))
    assert [m.value() for m in messages] == [b"value %d " % n * 10 for n in range(500)]
    assert [m.key() for m in messages] == [b"k%d" % n for n in range(500)]
    assert messages[7].headers() == [("h", b"7")]


def test_an_idempotent_producer_with_acks_all_loses_and_repeats_nothing(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic)
    source = producer(broker, **{"enable.idempotence": True, "acks": "all"})
    for number in range(1000):
        source.produce(topic, value=b"%d" % number)
    assert source.flush(20) == 0
    assert [m.value() for m in read_all(broker, topic, 1000)] == [b"%d" % n for n in range(1000)]


def test_tombstones_empty_values_and_missing_keys_stay_apart(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic)
    source = producer(broker)
    for key, value in ((b"k", None), (b"k", b""), (None, b"v"), (b"", b"v")):
        source.produce(topic, key=key, value=value)
    assert source.flush(20) == 0
    assert [(m.key(), m.value()) for m in read_all(broker, topic, 4)] == [
        (b"k", None),
        (b"k", b""),
        (None, b"v"),
        (b"", b"v"),
    ]


def test_keys_choose_partitions_and_explicit_partitions_are_kept(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic, 4)
    source = producer(broker)
    for number in range(200):
        source.produce(topic, key=b"key-%d" % (number % 10), value=b"keyed")
    for index in range(4):
        source.produce(topic, value=b"explicit-%d" % index, partition=index)
    assert source.flush(20) == 0
    messages = read_all(broker, topic, 204, partitions=4)
    by_key: dict[bytes, set[int]] = {}
    for message in messages:
        if message.value() == b"keyed":
            by_key.setdefault(message.key(), set()).add(message.partition())
        else:
            assert message.value() == b"explicit-%d" % message.partition()
    assert all(len(found) == 1 for found in by_key.values())
    assert len(set.union(*by_key.values())) > 1


def test_timestamps_are_kept_and_found_again_by_time(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic)
    now = int(time.time() * 1000)
    source = producer(broker, **{"batch.num.messages": 1})
    for number in range(10):
        source.produce(topic, value=b"%d" % number, timestamp=now + number * 1000)
        source.flush(20)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"})
    try:
        (exact,) = consumer.offsets_for_times([TopicPartition(topic, 0, now + 3000)], 20)
        (between,) = consumer.offsets_for_times([TopicPartition(topic, 0, now + 3001)], 20)
        (beyond,) = consumer.offsets_for_times([TopicPartition(topic, 0, now + 99_000)], 20)
        assert (exact.offset, between.offset, beyond.offset) == (3, 4, -1)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 20) == (0, 10)
    finally:
        consumer.close()
    assert [m.timestamp()[1] for m in read_all(broker, topic, 10)] == [now + n * 1000 for n in range(10)]


def test_log_append_time_is_the_brokers(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    source = producer(broker)
    source.produce(topic, value=b"v", timestamp=1000)
    assert source.flush(20) == 0
    (message,) = read_all(broker, topic, 1)
    kind, stamp = message.timestamp()
    assert kind == 2
    assert before <= stamp <= int(time.time() * 1000)


def test_a_consumer_waits_for_records_that_come_later(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "late", "fetch.wait.max.ms": 10_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        assert consumer.poll(0.3) is None
        source = producer(broker)
        source.produce(topic, value=b"late")
        assert source.flush(20) == 0
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"late"
    finally:
        consumer.close()


def test_records_larger_than_every_limit_of_the_consumer_still_arrive(broker: penstock.Broker, topic: str) -> None:
    create(broker, topic)
    source = producer(broker)
    source.produce(topic, value=b"x" * 700_000)
    assert source.flush(20) == 0
    (message,) = read_all(
        broker, topic, 1, **{"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1000}
    )
    assert message.value() == b"x" * 700_000


def test_kafka_python_writes_and_reads(broker: penstock.Broker, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Partition

    ensure_topic(broker.port, topic)
    sink = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", compression_type="gzip")
    sent = [sink.send(topic, key=b"k", value=b"%d" % n, headers=[("h", b"v")]) for n in range(100)]
    assert [f.get(20).offset for f in sent] == list(range(100))
    sink.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None)
    try:
        consumer.assign([Partition(topic, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < 100:
            assert time.monotonic() < deadline
            for records in consumer.poll(500).values():
                found += [record.value for record in records]
        assert found == [b"%d" % n for n in range(100)]
        assert consumer.beginning_offsets([Partition(topic, 0)]) == {Partition(topic, 0): 0}
        assert consumer.end_offsets([Partition(topic, 0)]) == {Partition(topic, 0): 100}
    finally:
        consumer.close()


def test_aiokafka_writes_and_reads(broker: penstock.Broker, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Partition

    ensure_topic(broker.port, topic)

    async def round_trip() -> list[bytes]:
        sink = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="lz4", enable_idempotence=True)
        await sink.start()
        try:
            for number in range(100):
                await sink.send(topic, b"%d" % number)
        finally:
            await sink.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([Partition(topic, 0)])
            async with asyncio.timeout(30):
                return [(await consumer.getone()).value for _ in range(100)]
        finally:
            await consumer.stop()

    assert asyncio.run(round_trip()) == [b"%d" % n for n in range(100)]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_writes_lists_and_reads(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)

    def kcat(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", broker.bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", topic, "-K", ":", stdin="a:1\nb:2\nc:3\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-f", "%o %k %s\n") == "0 a 1\n1 b 2\n2 c 3\n"
    assert kcat("-C", "-t", topic, "-o", "-1", "-e", "-q") == "3\n"
    assert f'topic "{topic}" with 1 partitions' in kcat("-L")
    assert kcat("-Q", "-t", f"{topic}:0:-1").strip().endswith("offset 3")
