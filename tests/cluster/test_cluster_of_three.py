"""Three real brokers on a real ZooKeeper: Kafka's own tools, the znodes that others see, and a fourth broker under
load."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

import penstock
from penstock.client.client import Client
from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.protocol import messages
from penstock.testing import peers

pytestmark = pytest.mark.cluster
WAIT_SECONDS = 60


class Three:
    """Brokers 1, 2, 3 (and more, when asked) in this process."""

    def __init__(self, zookeeper: ZooKeeperProcess, folder: Path) -> None:
        self.chroot = f"/three-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.zookeeper = zookeeper
        self.brokers: dict[int, Any] = {}

    def start(self, broker_id: int) -> Any:
        settings = {
            "zookeeper.connect": self.zookeeper.connect + self.chroot,
            "zookeeper.session.timeout.ms": "4000",
            "offsets.topic.replication.factor": "3",
            "broker.rack": f"rack-{broker_id % 2}",
        }
        broker = penstock.Broker(self.folder / str(broker_id), broker_id=broker_id, settings=settings)
        self.brokers[broker_id] = broker.start()
        return broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self, name: str, partitions: int, factor: int, **config: str) -> None:
        configs = {k.replace("_", "."): v for k, v in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, factor, config=configs)])[name].result(WAIT_SECONDS)


@pytest.fixture(scope="module")
def three(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    cluster = Three(zookeeper, tmp_path_factory.mktemp("three"))
    try:
        for broker_id in (1, 2, 3):
            cluster.start(broker_id)
        yield cluster
    finally:
        for broker in reversed(list(cluster.brokers.values())):
            broker.stop()


def tool(name: str, three: Three, *arguments: str) -> str:
    done = peers.kafka_tool(name, "--bootstrap-server", three.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


# --- the tree ---


def test_the_znodes_are_kafkas(three: Three) -> None:
    three.create("seen", 2, 3, retention_ms="5000")
    client = KazooClient(hosts=three.zookeeper.connect + three.chroot)
    client.start()
    try:

        def read(path: str) -> Any:
            return json.loads(client.get(path)[0])

        assert sorted(client.get_children("/brokers/ids")) == ["1", "2", "3"]
        broker = read("/brokers/ids/2")
        host, _, port = three.brokers[2].bootstrap.rpartition(":")
        assert (broker["version"], broker["host"], broker["port"]) == (5, host, int(port))
        assert broker["endpoints"] == [f"PLAINTEXT://{host}:{port}"] and broker["rack"] == "rack-0"
        assert broker["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}
        controller = read("/controller")
        assert controller["version"] == 2 and controller["brokerid"] in (1, 2, 3)
        assert isinstance(controller["timestamp"], str) and controller["kraftControllerEpoch"] == -1
        assert int(client.get("/controller_epoch")[0]) >= 1
        topic = read("/brokers/topics/seen")
        assert topic["version"] == 3 and sorted(topic["partitions"]) == ["0", "1"]
        assert len(base64.urlsafe_b64decode(topic["topic_id"] + "==")) == 16
        assert topic["adding_replicas"] == {} and topic["removing_replicas"] == {}
        state, stat = client.get("/brokers/topics/seen/partitions/0/state")
        fields = json.loads(state)
        assert (fields["version"], fields["leader_epoch"], stat.version) == (1, 0, 0)
        assert fields["leader"] == topic["partitions"]["0"][0] and sorted(fields["isr"]) == [1, 2, 3]
        assert read("/config/topics/seen") == {"version": 1, "config": {"retention.ms": "5000"}}
        cluster = read("/cluster/id")
        assert cluster["version"] == "1" and len(cluster["id"]) == 22
        for path in ("/brokers/seqid", "/admin/delete_topics", "/isr_change_notification", "/latest_producer_id_block"):
            assert client.exists(path) is not None, path
        three.admin.delete_topics(["seen"])["seen"].result(WAIT_SECONDS)
        assert client.exists("/brokers/topics/seen") is None and client.exists("/config/topics/seen") is None
    finally:
        client.stop()
        client.close()


def test_replicas_are_spread_over_racks(three: Three) -> None:
    three.create("racks", 12, 2)
    found = three.admin.list_topics("racks", timeout=10).topics["racks"].partitions.values()
    assert all({b % 2 for b in p.replicas} == {0, 1} for p in found)


# --- Kafka's tools ---


@pytest.mark.java
def test_kafkas_tools_describe_move_elect_and_configure(three: Three, tmp_path: Path) -> None:
    topics, reassign = (
        "org.apache.kafka.tools.TopicCommand",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    )
    three.create("tooled", 2, 3)
    described = tool(topics, three, "--describe", "--topic", "tooled")
    assert "ReplicationFactor: 3" in described and described.count("Isr:") == 2
    plan = {
        "version": 1,
        "partitions": [
            {"topic": "tooled", "partition": 0, "replicas": [1, 2]},
            {"topic": "tooled", "partition": 1, "replicas": [3, 2, 1]},
        ],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    started = tool(reassign, three, "--execute", "--reassignment-json-file", str(path), "--throttle", "50000000")
    assert "Successfully started partition reassignments" in started
    deadline = time.monotonic() + WAIT_SECONDS
    while "is completed" not in (shown := tool(reassign, three, "--verify", "--reassignment-json-file", str(path))):
        assert time.monotonic() < deadline, shown
    described = tool(topics, three, "--describe", "--topic", "tooled")
    assert "Replicas: 1,2\t" in described and "Replicas: 3,2,1\t" in described
    elected = tool(
        "org.apache.kafka.tools.LeaderElectionCommand", three, "--election-type", "preferred", "--all-topic-partitions"
    )
    assert "Error" not in elected
    leaders = {
        i: p.leader for i, p in three.admin.list_topics("tooled", timeout=10).topics["tooled"].partitions.items()
    }
    assert leaders == {0: 1, 1: 3}
    configs = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", "tooled")
    tool(configs, three, *entity, "--alter", "--add-config", "cleanup.policy=[compact,delete],retention.ms=900000")
    assert "cleanup.policy=compact,delete" in tool(configs, three, *entity, "--describe")


@pytest.mark.java
def test_kafkas_tools_plan_measure_and_verify_replicas(three: Three, tmp_path: Path) -> None:
    three.create("verified", 2, 3)
    producer = Producer({"bootstrap.servers": three.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("verified", str(number).encode(), partition=number % 2)
    assert producer.flush(WAIT_SECONDS) == 0

    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "verified"}]}))
    generated = tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        three,
        *("--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "1,2,3"),
    )
    assert "Proposed partition reassignment configuration" in generated and '"topic":"verified"' in generated

    described = tool("org.apache.kafka.tools.LogDirsCommand", three, "--describe", "--topic-list", "verified")
    found = json.loads(next(line for line in described.splitlines() if line.startswith("{")))
    replicas = [p for b in found["brokers"] for d in b["logDirs"] for p in d["partitions"]]
    assert sorted(p["partition"] for p in replicas) == ["verified-0"] * 3 + ["verified-1"] * 3
    assert all(p["size"] > 0 and p["offsetLag"] == 0 for p in replicas)

    # It compares the bytes of all replicas for as long as it is left alone; one report is enough.
    arguments = ["--broker-list", three.bootstrap, "--topics-include", "verified", "--report-interval-ms", "500"]
    name = "org.apache.kafka.tools.ReplicaVerificationTool"
    command = peers.java_command(peers.kafka_jars(), name, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            reports = (line for line in process.stdout if "max lag is" in line or "Exception" in line)
            report = next(reports, "it ended without a report")
        finally:
            process.kill()
    assert "max lag is 0 for partition" in report


@pytest.mark.java
def test_kafkas_tool_shows_what_cannot_be_reached_and_what_lacks_replicas(three: Three) -> None:
    assign = {"lone": [[3]], "safe": [[1, 2, 3]]}
    new = [NewTopic(name, len(replicas), replica_assignment=replicas) for name, replicas in assign.items()]
    for created in three.admin.create_topics(new).values():
        created.result(WAIT_SECONDS)

    def shown(option: str) -> str:
        described = tool("org.apache.kafka.tools.TopicCommand", three, "--describe", option)
        return "\n".join(line for line in described.splitlines() if "Topic: lone" in line or "Topic: safe" in line)

    assert shown("--unavailable-partitions") == shown("--under-replicated-partitions") == ""
    three.brokers.pop(3).stop()
    try:
        unavailable = shown("--unavailable-partitions")
        assert "Topic: lone\tPartition: 0\tLeader: none" in unavailable and "safe" not in unavailable
        assert "\tElr: 3\tLastKnownElr: 3" in unavailable, "who may lead again"
        lacking = shown("--under-replicated-partitions")
        assert "Topic: safe" in lacking and "Isr: 1,2" in lacking
    finally:
        three.start(3)
    deadline = time.monotonic() + WAIT_SECONDS
    while left := shown("--unavailable-partitions") + shown("--under-replicated-partitions"):
        assert time.monotonic() < deadline, left


# --- a fourth broker under load ---


def test_partitions_move_to_a_new_broker_while_clients_write(three: Three) -> None:
    three.create("loaded", 4, 3, min_insync_replicas="2")
    stop, failures, sent = threading.Event(), [], []
    producer = Producer({"bootstrap.servers": three.bootstrap, "acks": "all", "enable.idempotence": True})

    def load() -> None:
        number = 0
        while not stop.is_set():
            producer.produce(
                "loaded",
                str(number).encode(),
                partition=number % 4,
                on_delivery=lambda error, m: failures.append(error) if error else sent.append(int(m.value())),
            )
            number += 1
            producer.poll(0.001)
        producer.flush(WAIT_SECONDS)

    writer = threading.Thread(target=load)
    writer.start()
    try:
        three.start(4)
        asyncio.run(_move(three, {0: [4, 1, 2], 1: [2, 4, 3]}))
    finally:
        stop.set()
        writer.join()
    assert failures == [] and sent
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition("loaded", index, 0) for index in range(4)])
    read: list[int] = []
    while len(read) < len(sent):
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None and message.error() is None
        read.append(int(message.value()))
    consumer.close()
    assert sorted(read) == sorted(sent)


async def _move(three: Three, targets: dict[int, list[int]]) -> None:
    api = messages.api("alter_partition_reassignments")
    rows = [api.ReassignablePartition(partition_index=i, replicas=replicas) for i, replicas in targets.items()]
    request = api.Request(topics=[api.ReassignableTopic(name="loaded", partitions=rows)], timeout_ms=30_000)
    async with Client(three.bootstrap) as client:
        answer = await client.call_controller("alter_partition_reassignments", request)
        assert [p.error_code for p in answer.responses[0].partitions] == [0] * len(rows)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                view = await client.metadata(["loaded"])
                found = view.topics["loaded"].partitions
                if all(list(found[i].replicas) == r and set(found[i].isr) == set(r) for i, r in targets.items()):
                    return
                await asyncio.sleep(0.05)
