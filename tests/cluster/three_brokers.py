"""Three real brokers on a real ZooKeeper for stories about replication, a producer that remembers, a reader of all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster import local
from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java
from penstock.testing.ports import free_port, free_ports

DEADLINE_SECONDS = 90.0
SETTINGS = {"replica.lag.time.max.ms": "3000", "zookeeper.session.timeout.ms": "4000", "log.segment.bytes": "1048576"}


class Cluster:
    def __init__(self, folder: Path, settings: dict[str, str] = SETTINGS) -> None:
        self.folder = folder
        self.settings = settings
        self.local = local.start(folder, 3, base_port=free_ports(3), zookeeper_port=free_port(), settings=settings)
        self.admin = AdminClient({"bootstrap.servers": self.local.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return self.local.bootstrap

    def create(self, topic: str, partitions: int = 1, min_isr: int = 2) -> None:
        new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": str(min_isr)})
        self.admin.create_topics([new])[topic].result(30)
        self.until(lambda: len(self.isr(topic)) == 3, "all replicas are in sync")

    def leader(self, topic: str) -> int:
        """-1 also while the broker that is asked has not heard of the topic yet."""
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        return int(partitions[0].leader) if partitions else -1

    def isr(self, topic: str) -> list[int]:
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        return sorted(partitions[0].isrs) if partitions else []

    def pid(self, broker: int) -> int:
        row = next(row for row in local.status(self.folder) if row.name == f"broker-{broker}")
        assert row.pid is not None
        return row.pid

    def kill(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGKILL)
        self.until(lambda: not self._runs(broker), "the broker is gone")

    def kill_leader(self, topic: str) -> None:
        self.kill(self.leader(topic))
        self.until(lambda: len(self.isr(topic)) == 2, "the others go on")
        self.restart()

    def freeze_a_follower(self, topic: str) -> None:
        """Until it is out of the ISR."""
        pid = self.pid(next(broker for broker in self.isr(topic) if broker != self.leader(topic)))
        os.kill(pid, signal.SIGSTOP)
        try:
            self.until(lambda: len(self.isr(topic)) == 2, "it is out of the ISR")
        finally:
            os.kill(pid, signal.SIGCONT)

    def _runs(self, broker: int) -> bool:
        return any(row.name == f"broker-{broker}" and row.pid is not None for row in local.status(self.folder))

    def restart(self) -> None:
        """Start whatever does not run."""
        local.start(self.folder, 3, self.local.base_port, self.local.zookeeper_port, self.settings)

    def restart_only(self, broker: int) -> None:
        """Start one broker; what else does not run stays down."""
        local._start_broker(self.local, broker)
        local._wait_for_broker(self.local, broker, time.monotonic() + DEADLINE_SECONDS)

    def address(self, broker: int) -> str:
        return f"127.0.0.1:{self.local.broker_port(broker)}"

    def log_bytes(self, broker: int, topic: str) -> bytes:
        folder = self.local.folder(f"broker-{broker}") / "data" / f"{topic}-0"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """What a client could not ask, because the brokers that it knew were killed, it asks again."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        unasked: KafkaException | None = None
        while True:
            try:
                if condition():
                    return
            except KafkaException as error:
                unasked = error
            assert time.monotonic() < deadline, f"waited in vain until {what} (last error: {unasked})"
            time.sleep(0.05)

    def until_replicas_agree(self, topic: str) -> None:
        self.until(lambda: self.isr(topic) == [1, 2, 3], f"all replicas of {topic} are in sync")
        self.until(
            lambda: self.log_bytes(1, topic) == self.log_bytes(2, topic) == self.log_bytes(3, topic),
            f"all replicas of {topic} hold the same bytes",
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_java()
        find_jars()
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("replication")
    started = Cluster(folder)
    yield started
    local.stop(folder)


class Sender:
    """An idempotent producer with acks=all that remembers what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, **settings: object) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, int] = {}
        self.errors: list[KafkaError] = []
        base = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        self.producer = Producer({**base, "linger.ms": 2, **settings})
        self.count = 0

    def send(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            value = f"{self.count}:".encode().ljust(size, b".")
            self.count += 1
            self.producer.produce(self.topic, value, partition=0, on_delivery=self._delivered)
            self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.value()] = message.offset()  # type: ignore[attr-defined]

    def flush(self) -> None:
        assert self.producer.flush(DEADLINE_SECONDS) == 0


def read_all(cluster: Cluster, topic: str) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        rows: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not rows or rows[-1][0] < end - 1:
            assert time.monotonic() < deadline
            rows += [(m.offset(), m.value()) for m in consumer.consume(1000, 0.2) if m.error() is None]
        return rows
    finally:
        consumer.close()
