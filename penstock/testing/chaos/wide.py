"""A topic of many partitions beside the busy ones: each fault moves many leaders, and the one record of each partition
must stay where it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WIDE = "wide"
PATIENCE_SECONDS = 120.0


class WideTopic:
    def __init__(self, connect: Mapping[str, Any], partitions: int) -> None:
        self._connect = dict(connect)
        self._partitions = partitions

    def begin(self) -> None:
        if not self._partitions:
            return
        admin = AdminClient(self._connect)
        wanted = NewTopic(WIDE, self._partitions, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[WIDE].result(PATIENCE_SECONDS)
        producer = Producer({**self._connect, "enable.idempotence": True, "delivery.timeout.ms": 120_000})
        for index in range(self._partitions):
            producer.produce(WIDE, _value(index), partition=index)
        left = producer.flush(PATIENCE_SECONDS)
        if left:
            raise TimeoutError(f"{left} of {self._partitions} partitions took no record")

    def wrong(self) -> list[str]:
        """Which partitions do not hold exactly their record."""
        if not self._partitions:
            return []
        settings = {
            **self._connect,
            "group.id": "wide",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer = Consumer(settings)
        found: dict[int, list[bytes | None]] = {index: [] for index in range(self._partitions)}
        try:
            consumer.assign([TopicPartition(WIDE, index, OFFSET_BEGINNING) for index in found])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not all(found.values()) and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is not None and not message.error():
                    found[message.partition()].append(message.value())
        finally:
            consumer.close()
        return [
            f"{WIDE}-{index} holds {values}" for index, values in found.items() if values != [_value(index).encode()]
        ]


def _value(index: int) -> str:
    return f"the one of partition {index}"
