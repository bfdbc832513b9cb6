"""What a read_committed reader sees of an output: bit by bit while it is written, and all of it for the verdict."""

from __future__ import annotations

import time
from typing import Any

from penstock.testing.clients import loops

LOOK_SECONDS = 2.0
READ_SECONDS = 300.0


class Progress:
    """How many different records an output has. Each look goes on where the last one stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = _consumer(bootstrap, topic, partitions)
        self._values: set[bytes] = set()

    @property
    def seen(self) -> int:
        return len(self._values)

    def advance(self) -> None:
        """What has come since the last look, for as long as there is more; never much longer than a moment."""
        deadline = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < deadline:
            found = [one.value() for one in self._consumer.consume(10_000, 0.2) if one.error() is None]
            if not found:
                return
            self._values.update(found)

    def close(self) -> None:
        self._consumer.close()


def read(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Values by partition, up to the end of now."""
    consumer = _consumer(bootstrap, topic, partitions)
    values: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + READ_SECONDS
    while len(ended) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} could not be read to its end in {READ_SECONDS:g} s")
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                values[message.partition()].append(message.value())
                ended.discard(message.partition())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    consumer.close()
    return values


def _consumer(bootstrap: str, topic: str, partitions: int) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verdict",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **loops.CLIENT,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return consumer
