"""Three real brokers on a real ZooKeeper: records survive their leaders, replicas agree byte by byte."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster import local
from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java

pytestmark = pytest.mark.cluster
DEADLINE_SECONDS = 90.0
SETTINGS = {"replica.lag.time.max.ms": "3000", "zookeeper.session.timeout.ms": "4000", "log.segment.bytes": "1048576"}


def free_base_port() -> int:
    for base in range(23000 + os.getpid() % 3000, 32000, 7):
        held = []
        try:
            for port in (base, base + 1, base + 2, base + 1000):
                one = socket.socket()
                held.append(one)
                one.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise RuntimeError("no free ports")


class Cluster:
    def __init__(self, folder: Path, settings: dict[str, str] = SETTINGS) -> None:
        self.folder = folder
        self.settings = settings
        self.local = local.start(folder, 3, base_port=free_base_port(), settings=settings)
        self.admin = AdminClient({"bootstrap.servers": self.local.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return self.local.bootstrap

    def create(self, topic: str, partitions: int = 1, min_isr: int = 2) -> None:
        new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": str(min_isr)})
        self.admin.create_topics([new])[topic].result(30)
        self.until(lambda: len(self.isr(topic)) == 3, "all replicas are in sync")

    def leader(self, topic: str) -> int:
        return int(self.admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader)

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
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
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


def test_acknowledged_records_survive_the_kill_of_their_leader(cluster: Cluster) -> None:
    cluster.create("killed")
    sender = Sender(cluster, "killed")
    sender.send(500)
    sender.flush()
    old_leader = cluster.leader("killed")
    sender.send(500)
    cluster.kill(old_leader)
    sender.send(500)
    sender.flush()
    assert sender.errors == []
    assert len(sender.acknowledged) == 1500
    assert cluster.leader("killed") != old_leader
    assert len(cluster.isr("killed")) == 2
    cluster.restart()
    cluster.until_replicas_agree("killed")
    read = read_all(cluster, "killed")
    assert [value for _, value in read] == sorted(sender.acknowledged, key=sender.acknowledged.__getitem__)
    assert {value: offset for offset, value in read} == sender.acknowledged


def test_below_min_isr_nothing_is_acknowledged_and_it_heals_by_itself(cluster: Cluster) -> None:
    controller = cluster.admin.list_topics(timeout=20).controller_id
    leader, follower = others = [broker for broker in (1, 2, 3) if broker != controller]
    new = NewTopic("frozen", 1, replica_assignment=[[leader, controller, follower]])
    cluster.admin.create_topics([new])["frozen"].result(30)
    cluster.until(lambda: len(cluster.isr("frozen")) == 3, "all replicas are in sync")
    pid = cluster.pid(controller)
    os.kill(pid, signal.SIGSTOP)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.address(leader), "log_level": 0})
        cluster.until(
            lambda: (
                sorted(admin.list_topics("frozen", timeout=20).topics["frozen"].partitions[0].isrs) == sorted(others)
            ),
            "the frozen one has left the ISR",
        )
        cluster.kill(follower)
        cluster.restart_only(follower)
        cluster.until(
            lambda: (
                sorted(admin.list_topics("frozen", timeout=20).topics["frozen"].partitions[0].isrs) == sorted(others)
            ),
            "the follower is in sync again",
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    said = (cluster.local.folder(f"broker-{leader}") / "process.log").read_text()
    assert "did not answer AlterPartition" not in said, "the leader waited until its request timed out"
    cluster.until_replicas_agree("frozen")
