"""Clients: idempotent producers with acks=all, a transactional producer, a reader, and the last look at everything."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from penstock.testing.chaos.checker import History

TOPIC = "chaos"
PARTITIONS = 6
COMMON = {
    "log_level": 0,
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
}


class Client(threading.Thread, ABC):
    """A thread that works until told to stop. A fault of its own is kept and judged in the end."""

    def __init__(self, name: str, connect: Mapping[str, Any], history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.connect = connect
        self.history = history
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    @abstractmethod
    def work(self) -> None: ...


class IdempotentProducer(Client):
    """Many batches in flight. After a fatal error it goes on under another name: the old one's fate is judged."""

    def __init__(self, number: int, connect: Mapping[str, Any], history: History, rate: int, seed: int) -> None:
        super().__init__(f"producer{number}", connect, history)
        self._rate = rate
        self._random = random.Random(seed * 1000 + number)
        self.lives = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self.lives += 1
            self._one_life(f"p{self.name[8:]}.{self.lives}")

    def _one_life(self, identity: str) -> None:
        producer = Producer(
            {
                **COMMON,
                **self.connect,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.max.ms": 500,
            }
        )
        sequence = 0
        fatal = threading.Event()
        while not self.stopping.is_set() and not fatal.is_set():
            value = f"{identity}/{sequence}"
            sequence += 1
            partition = self._random.randrange(PARTITIONS)

            def delivered(error: Any, message: Any, value: str = value) -> None:
                if error is None:
                    self.history.acknowledge(value, message.partition(), message.offset(), time.monotonic())
                else:
                    self.history.fail()
                    if error.fatal() or error.txn_requires_abort():
                        fatal.set()

            self.history.send(value)
            try:
                producer.produce(TOPIC, value.encode(), partition=partition, on_delivery=delivered)
            except BufferError:
                producer.poll(0.1)
            except KafkaException:
                fatal.set()
            producer.poll(self._random.expovariate(self._rate))
        with contextlib.suppress(KafkaException):  # after a fatal error: its callbacks have told what came of it
            producer.flush(150)


class TransactionalProducer(Client):
    """Small transactions, some of them aborted."""

    def __init__(self, connect: Mapping[str, Any], history: History, seed: int) -> None:
        super().__init__("transactions", connect, history)
        self._random = random.Random(seed)
        self.committed = 0
        self.aborted = 0

    def work(self) -> None:
        number = 0
        while not self.stopping.is_set():
            number += 1
            try:
                self._one_life(f"txn{number}")
            except KafkaException:
                self.stopping.wait(0.5)

    def _one_life(self, identity: str) -> None:
        producer = Producer(
            {
                **COMMON,
                **self.connect,
                "transactional.id": "chaos",
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(60)
        sequence = 0
        while not self.stopping.is_set():
            values = []
            producer.begin_transaction()
            for _ in range(self._random.randint(1, 5)):
                value = f"{identity}/{sequence}"
                sequence += 1
                values.append(value)
                self.history.send(value)
                producer.produce(TOPIC, value.encode(), partition=self._random.randrange(PARTITIONS))
            if self._random.random() < 0.3:
                self._abort(producer, values)
            else:
                self._commit(producer, values)
            self.stopping.wait(self._random.expovariate(10))

    def _abort(self, producer: Any, values: list[str]) -> None:
        # Once the application wants an abort the values may never become visible, whatever happens next.
        self.history.end(values, committed=False)
        producer.abort_transaction(60)
        self.aborted += 1

    def _commit(self, producer: Any, values: list[str]) -> None:
        try:
            producer.commit_transaction(60)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._abort(producer, values)
                return
            raise  # unknown: either all of them are there or none
        self.history.end(values, committed=True)
        for value in values:
            self.history.acknowledge(value, -1, -1, time.monotonic())
        self.committed += 1


class Reader(Client):
    """Follows all partitions with read_committed and keeps what it sees."""

    def __init__(self, connect: Mapping[str, Any], history: History) -> None:
        super().__init__("reader", connect, history)

    def work(self) -> None:
        consumer = _consumer(self.connect)
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        self.history.see(message.partition(), message.offset(), message.value().decode())
        finally:
            consumer.close()


def _consumer(connect: Mapping[str, Any]) -> Consumer:
    return Consumer(
        {
            **COMMON,
            **connect,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
        }
    )


def read_everything(connect: Mapping[str, Any], timeout_s: float) -> dict[int, list[tuple[int, str]]]:
    """All partitions from their beginnings to their ends (of now)."""
    consumer = _consumer(connect)
    deadline = time.monotonic() + timeout_s
    rows: dict[int, list[tuple[int, str]]] = {p: [] for p in range(PARTITIONS)}
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in rows}
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in rows])
        while any(
            position.offset < ends[position.partition] and ends[position.partition] > 0
            for position in consumer.position([TopicPartition(TOPIC, p) for p in rows])
        ):
            if time.monotonic() > deadline:
                positions = consumer.position([TopicPartition(TOPIC, p) for p in rows])
                raise TimeoutError(f"the final read stands at {[p.offset for p in positions]} of {ends}")
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    rows[message.partition()].append((message.offset(), message.value().decode()))
    finally:
        consumer.close()
    return rows
