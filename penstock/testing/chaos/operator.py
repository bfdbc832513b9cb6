"""An operator who never rests: replicas move, leaders change, topics grow, are deleted and made anew, settings change.

What he does may fail while things are broken; he goes on with something else. A topic that was made anew must hold what
was acknowledged into it and nothing of the one before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from penstock.client.errors import ClientError
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.testing.chaos.checker import History
from penstock.testing.chaos.workload import COMMON, TOPIC, Client

MOVED = "chaos-moved"
"""Two replicas on three brokers: there is always somewhere to move to."""
ANEW = "chaos-anew"
BROKERS = (1, 2, 3)
MOST_PARTITIONS = 12
RECORDS = 20
TIMEOUT_SECONDS = 20.0


class Operator(Client):
    def __init__(self, connect: Mapping[str, Any], history: History, seed: int) -> None:
        super().__init__("operator", connect, history)
        self._random = random.Random(seed)
        self._admin = AdminClient({**COMMON, **connect})
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._generation = 0

    def work(self) -> None:
        works = {
            "replicas moved": self._move,
            "leaders changed": self._change_leaders,
            "topic made anew": self._make_anew,
            "partitions added": self._grow,
            "settings changed": self._change_settings,
        }
        with SyncClient.from_properties({name: str(value) for name, value in self.connect.items()}) as client:
            self._client = client
            while not self.stopping.is_set():
                name = self._random.choice(sorted(works))
                try:
                    works[name]()
                    self.done[name] += 1
                except (KafkaException, ClientError):
                    self.refused[name] += 1
                self.stopping.wait(self._random.uniform(0.5, 3.0))

    def line(self) -> str:
        done = ", ".join(f"{count} × {name}" for name, count in sorted(self.done.items()))
        return f"under way: {done or 'nothing'}; {sum(self.refused.values())} could not be done at that moment"

    def _move(self) -> None:
        if MOVED not in self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics:
            self._create(MOVED, 3, 2)
        partitions = self._admin.list_topics(MOVED, timeout=TIMEOUT_SECONDS).topics[MOVED].partitions
        self._reassign(MOVED, {index: self._random.sample(BROKERS, 2) for index in partitions})

    def _change_leaders(self) -> None:
        partitions = self._admin.list_topics(TOPIC, timeout=TIMEOUT_SECONDS).topics[TOPIC].partitions
        index = self._random.choice(sorted(partitions))
        self._reassign(TOPIC, {index: self._random.sample(BROKERS, 3)})
        elect = messages.api("elect_leaders")
        asked = [elect.TopicPartitions(topic=TOPIC, partitions=[index])]
        self._client.call_controller(
            "elect_leaders", elect.Request(election_type=0, topic_partitions=asked, timeout_ms=10_000)
        )

    def _reassign(self, topic: str, replicas: dict[int, list[int]]) -> None:
        api = messages.api("alter_partition_reassignments")
        partitions = [api.ReassignablePartition(partition_index=i, replicas=wanted) for i, wanted in replicas.items()]
        request = api.Request(timeout_ms=10_000, topics=[api.ReassignableTopic(name=topic, partitions=partitions)])
        self._client.call_controller("alter_partition_reassignments", request)

    def _create(self, topic: str, partitions: int, replicas: int) -> None:
        wanted = NewTopic(topic, partitions, replicas, config={"min.insync.replicas": "2"})
        self._admin.create_topics([wanted], operation_timeout=TIMEOUT_SECONDS)[topic].result(TIMEOUT_SECONDS)

    def _grow(self) -> None:
        topics = self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        if MOVED not in topics or len(topics[MOVED].partitions) >= MOST_PARTITIONS:
            return
        wanted = NewPartitions(MOVED, len(topics[MOVED].partitions) + 1)
        self._admin.create_partitions([wanted])[MOVED].result(TIMEOUT_SECONDS)

    def _change_settings(self) -> None:
        name, values = self._random.choice(
            [
                ("segment.bytes", ("524288", "1048576", "2097152")),
                ("max.message.bytes", ("1048588", "2097152")),
                ("flush.messages", ("1", "9223372036854775807")),
            ]
        )
        entry = ConfigEntry(name, self._random.choice(values), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)

    def _make_anew(self) -> None:
        if ANEW in self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics:
            self._admin.delete_topics([ANEW], operation_timeout=TIMEOUT_SECONDS)[ANEW].result(TIMEOUT_SECONDS)
        self._create(ANEW, 1, 3)
        self._generation += 1
        acknowledged = self._write(f"anew{self._generation}")
        found = self._read(max(acknowledged, default=-1) + 1)
        for offset, value in acknowledged.items():
            if found.get(offset) != value:
                self.wrong.append(f"{ANEW}@{offset}: {value} was acknowledged, {found.get(offset)} is there")
        strangers = [value for value in found.values() if not value.startswith(f"anew{self._generation}/")]
        if strangers:
            self.wrong.append(f"{ANEW} of generation {self._generation} holds {strangers[:3]}")

    def _write(self, prefix: str) -> dict[int, str]:
        acknowledged: dict[int, str] = {}

        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() is not None and message.offset() >= 0:
                acknowledged[message.offset()] = message.value().decode()

        producer = Producer({**COMMON, **self.connect, "acks": "all", "message.timeout.ms": 20_000})
        for number in range(RECORDS):
            producer.produce(ANEW, f"{prefix}/{number}".encode(), partition=0, on_delivery=delivered)
        producer.flush(25)
        return acknowledged

    def _read(self, end: int) -> dict[int, str]:
        """What is there below `end`; KafkaException if that cannot be read now."""
        consumer = Consumer({**COMMON, **self.connect, "group.id": "operator", "enable.auto.commit": False})
        found: dict[int, str] = {}
        try:
            consumer.assign([TopicPartition(ANEW, 0, OFFSET_BEGINNING)])
            while max(found, default=-1) + 1 < end:
                batch = consumer.consume(100, TIMEOUT_SECONDS)
                if not batch:
                    raise KafkaException("nothing can be read now")
                found |= {m.offset(): m.value().decode() for m in batch if m.error() is None}
        finally:
            consumer.close()
        return found
