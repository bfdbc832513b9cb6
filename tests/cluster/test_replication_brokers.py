"""Three real brokers on a real ZooKeeper: records survive their leaders, replicas agree byte by byte."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.client.connection import Connection
from penstock.cluster import local
from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java
from penstock.protocol import messages

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
    cluster.create("frozen")
    sender = Sender(cluster, "frozen")
    sender.send(10)
    sender.flush()
    leader = cluster.leader("frozen")
    stopped = [broker for broker in (1, 2, 3) if broker != leader]
    for broker in stopped:
        os.kill(cluster.pid(broker), signal.SIGSTOP)
    try:
        impatient = Sender(cluster, "frozen", **{"message.timeout.ms": 8000, "request.timeout.ms": 3000})
        impatient.send(1)
        impatient.flush()
        assert len(impatient.errors) == 1, "the two others stand still: nobody can confirm"
    finally:
        for broker in stopped:
            os.kill(cluster.pid(broker), signal.SIGCONT)
    cluster.until(lambda: cluster.isr("frozen") == [1, 2, 3], "everybody is back in sync")
    sender.send(10)
    sender.flush()
    assert len(sender.acknowledged) == 20
    cluster.until_replicas_agree("frozen")


def test_a_follower_with_a_torn_and_a_diverged_log_comes_back_right(cluster: Cluster) -> None:
    cluster.create("damaged")
    sender = Sender(cluster, "damaged")
    sender.send(300)
    sender.flush()
    victim = next(broker for broker in (1, 2, 3) if broker != cluster.leader("damaged"))
    cluster.kill(victim)
    log = sorted((cluster.local.folder(f"broker-{victim}") / "data" / "damaged-0").glob("*.log"))[-1]
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - 37] + os.urandom(500))
    sender.send(300)
    sender.flush()
    cluster.restart()
    cluster.until_replicas_agree("damaged")
    assert len(read_all(cluster, "damaged")) == 600


def test_deleted_records_go_on_all_replicas(cluster: Cluster) -> None:
    cluster.create("deleted")
    sender = Sender(cluster, "deleted")
    sender.send(3000)
    sender.flush()
    for deleted in cluster.admin.delete_records([TopicPartition("deleted", 0, 2500)]).values():
        deleted.result(30)  # answered when every replica has done it
    assert read_all(cluster, "deleted")[0][0] == 2500
    old_leader = cluster.leader("deleted")
    cluster.kill(old_leader)
    cluster.until(lambda: cluster.leader("deleted") not in (old_leader, -1), "another one leads")
    assert read_all(cluster, "deleted")[0][0] == 2500
    cluster.restart()
    cluster.until(lambda: cluster.isr("deleted") == [1, 2, 3], "everybody is back in sync")


def test_a_controlled_stop_moves_the_leadership_without_an_error(cluster: Cluster) -> None:
    cluster.create("moved")
    sender = Sender(cluster, "moved")
    sender.send(50)
    sender.flush()
    old_leader = cluster.leader("moved")
    os.kill(cluster.pid(old_leader), signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while cluster._runs(old_leader):
        assert time.monotonic() < deadline
        sender.send(5)
        sender.producer.poll(0.02)
    sender.flush()
    assert sender.errors == []
    assert cluster.leader("moved") != old_leader
    cluster.restart()
    cluster.until_replicas_agree("moved")
    assert len(read_all(cluster, "moved")) == sender.count


# --- who may lead, and who is asked ---


def stop_in_peace(cluster: Cluster, broker: int) -> None:
    os.kill(cluster.pid(broker), signal.SIGTERM)
    cluster.until(lambda: not cluster._runs(broker), f"broker {broker} has stopped")


def eligible(cluster: Cluster, topic: str) -> tuple[list[int], list[int]]:
    """(ELR, last known ELR), as any client may ask for them."""

    async def ask() -> tuple[list[int], list[int]]:
        running = next(row for row in local.status(cluster.folder) if row.running and row.name != "zookeeper")
        connection = await Connection.open("127.0.0.1", int(running.address.rpartition(":")[2]))
        try:
            api = messages.api("describe_topic_partitions")
            request = api.Request(topics=[api.TopicRequest(name=topic)])
            answer = await connection.request("describe_topic_partitions", request)
            row = answer.topics[0].partitions[0]
            return sorted(row.eligible_leader_replicas or []), sorted(row.last_known_elr or [])
        finally:
            connection.close()

    return asyncio.run(ask())


def test_after_a_power_loss_the_one_that_stopped_in_peace_leads(cluster: Cluster) -> None:
    """RF 2, min ISR 2: broker 1 stops in peace with all data, broker 2 loses power and its unsynced tail."""
    new = NewTopic("power", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
    cluster.admin.create_topics([new])["power"].result(30)
    cluster.until(lambda: cluster.isr("power") == [1, 2], "both are in sync")
    sender = Sender(cluster, "power")
    sender.send(500)
    sender.flush()
    stop_in_peace(cluster, 1)
    cluster.until(lambda: eligible(cluster, "power") == ([1], []), "broker 1 is eligible")
    cluster.kill(2)
    for path in (cluster.local.folder("broker-2") / "data" / "power-0").glob("*.log"):
        os.truncate(path, 0)
    cluster.until(lambda: eligible(cluster, "power") == ([1, 2], [2]), "the controller knows that 2 is gone")
    cluster.restart_only(2)
    cluster.until(lambda: eligible(cluster, "power") == ([1], [2]), "broker 2 cannot prove that it has everything")
    assert cluster.leader("power") == -1, "it waits for broker 1"
    cluster.restart()
    cluster.until(lambda: cluster.leader("power") == 1 and cluster.isr("power") == [1, 2], "both are in sync again")
    assert [value for _, value in read_all(cluster, "power")] == list(sender.acknowledged)
    assert eligible(cluster, "power") == ([], [])


def test_isr_changes_do_not_wait_for_a_frozen_controller(cluster: Cluster) -> None:
    """The controller is frozen with an ISR change on its way; its successor hears of the next one without delay."""
    controller = cluster.admin.list_topics(timeout=20).controller_id
    leader, follower = others = [broker for broker in (1, 2, 3) if broker != controller]
    new = NewTopic("stalled", 1, replica_assignment=[[leader, controller, follower]])
    cluster.admin.create_topics([new])["stalled"].result(30)
    cluster.until(lambda: len(cluster.isr("stalled")) == 3, "all replicas are in sync")
    admin = AdminClient({"bootstrap.servers": cluster.address(leader), "log_level": 0})

    def in_sync() -> list[int]:
        partitions = admin.list_topics("stalled", timeout=20).topics["stalled"].partitions
        return sorted(partitions[0].isrs) if partitions else []

    producer = Producer({"bootstrap.servers": cluster.address(leader), "acks": "1", "log_level": 0})
    pid = cluster.pid(controller)
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(10):  # what the frozen one lacks: its leader asks it to record that it lags
            producer.produce("stalled", str(number).encode())
        producer.flush(60)
        cluster.until(lambda: in_sync() == others, "the frozen one has left the ISR")
        cluster.kill(follower)
        cluster.restart_only(follower)
        cluster.until(lambda: in_sync() == others, "the follower is in sync again")
    finally:
        os.kill(pid, signal.SIGCONT)
    said = (cluster.local.folder(f"broker-{leader}") / "process.log").read_text()
    assert "did not answer alter_partition" not in said, "the leader waited until its request timed out"
    cluster.until_replicas_agree("stalled")
