"""Topics as another make's clients see them: made, filled, read to the end, and what is left open on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Final

ANY_PARTITION: Final = -1


def create_topics(bootstrap: str, topics: dict[str, int]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        future.result(60)


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """Values 0 … rows-1."""
    write(bootstrap, topic, ((ANY_PARTITION, None, b"%d" % index) for index in range(rows)))


def write(bootstrap: str, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
    """(partition, key, value), each once, with another make's producer."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for index, (partition, key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(1)
        if index % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all rows could be written")


def read_committed(bootstrap: str, topic: str) -> Iterator[bytes]:
    """All values, with another make's consumer; fails when an open transaction holds the end back."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"check-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(10_000, timeout=60) or [None]:
                if message is None:
                    raise TimeoutError(f"{topic} has no end: an open transaction holds it back")
                if message.error():
                    ended.add(message.partition())
                else:
                    yield message.value()
    finally:
        consumer.close()


def open_transactions(bootstrap: str) -> int:
    from penstock.client.sync import SyncClient
    from penstock.pipelines.spark import sink_transactions

    with SyncClient(bootstrap) as client:
        return len(client.run(lambda inner: sink_transactions.open_under_prefix(inner, "")))
