"""The two ends of the chain of `eos_chain`: its topics, what is fed into it, the reader that counts what came out."""

from __future__ import annotations

import time
from array import array

STAGES = 3
PARTITIONS = 2
TRANSFORMED = b"|stage"  # every stage adds one
# librdkafka 2.16 forgets its brokers when all are down, but not who coordinated a group: it then waits for ever for a
# broker object that is gone. Without re-bootstrap it keeps them.
CLIENT = {"metadata.recovery.strategy": "none"}


def create_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"stage-{stage}", PARTITIONS, 1) for stage in range(STAGES + 1)]
    for created in admin.create_topics(topics).values():
        created.result(60)


def feed(bootstrap: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce("stage-0", b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(600):
        raise TimeoutError("the input could not be written")


class Reader:
    """Reads one topic of the chain and counts how often each record is there."""

    def __init__(self, bootstrap: str, stage: int, records: int, isolation: str = "read_committed") -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._suffix = TRANSFORMED * stage
        self._most = min(10_000, max(records // 100, 1))
        self._counts = array("H", bytes(2 * records))
        self._missing = records
        self._ended: set[int] = set()
        self.total = self.damaged = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{stage}-{isolation}",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                **CLIENT,
                "log_level": 0,  # a broker that is gone for a moment is what this is about
            }
        )
        self._consumer.assign([TopicPartition(f"stage-{stage}", p, 0) for p in range(PARTITIONS)])

    def read(self, seconds: float) -> int:
        """Take what is there; how many events came."""
        events = self._consumer.consume(self._most, seconds)
        for message in events:
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF":
                    self._ended.add(message.partition())
                continue
            self._ended.discard(message.partition())
            number, separator, rest = message.value().partition(b"|")
            if separator + rest != self._suffix:
                self.damaged += 1
                continue
            index = int(number)
            self.total += 1
            if not self._counts[index]:
                self._missing -= 1
            self._counts[index] += 1
        return len(events)

    def read_to_end(self, deadline_seconds: float = 600.0) -> None:
        deadline = time.monotonic() + deadline_seconds
        while len(self._ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise TimeoutError("a topic of the chain has no end: a transaction is still open in it")
            self.read(1.0)

    def has_all(self) -> bool:
        return self._missing == 0

    def missing(self) -> int:
        return self._missing

    def repeated(self) -> int:
        return sum(1 for count in self._counts if count > 1)

    def close(self) -> None:
        self._consumer.close()
