"""Kafka's own Java tools against our groups: console consumer, consumer-groups, formatters of the internal topic."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.broker.embedded import EmbeddedBroker
from penstock.client.sync import SyncClient
from penstock.coordinator.java_hash import partition_of
from penstock.testing.peers import java_command, kafka_jars, kafka_tool

pytestmark = pytest.mark.java

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "num.partitions": "2",
    }
    with EmbeddedBroker(settings=settings) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", key=str(number), value=f"order {number}", partition=number % 2)
        assert producer.flush(120) == 0
        yield running


def consume(broker: EmbeddedBroker, group: str, *more: str) -> subprocess.CompletedProcess[str]:
    return kafka_tool(
        CONSOLE_CONSUMER,
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "orders",
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        str(RECORDS),
        "--timeout-ms",
        "120000",
        *more,
    )


def groups(broker: EmbeddedBroker, *arguments: str) -> str:
    done = kafka_tool(GROUP_TOOL, "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Error:" not in done.stdout, done.stdout
    return done.stdout


def current_offsets(described: str, topic: str = "orders") -> dict[int, str]:
    """Partition → committed offset, from a described group."""
    rows = [line.split() for line in described.splitlines() if f" {topic} " in line]
    return {int(row[2]): row[3] for row in rows}


def reset(broker: EmbeddedBroker, *how: str) -> dict[int, int]:
    """Partition → new offset."""
    done = groups(broker, "--reset-offsets", "--group", "tool", "--topic", "orders", *how, "--execute")
    rows = [line.split() for line in done.splitlines() if " orders " in line]
    return {int(row[2]): int(row[3]) for row in rows}


def test_console_consumer_reads_in_a_classic_group_and_the_group_tool_shows_it(broker: EmbeddedBroker) -> None:
    done = consume(broker, "classic", "--command-property", "group.protocol=classic")
    assert sorted(done.stdout.split("\n")[:-1]) == sorted(f"order {number}" for number in range(RECORDS)), done.stderr

    assert "classic" in groups(broker, "--list").split()
    described = groups(broker, "--describe", "--group", "classic")
    assert current_offsets(described) == {0: "10", 1: "10"}
    state = groups(broker, "--describe", "--group", "classic", "--state")
    assert "Empty" in state


def test_console_consumer_reads_in_a_consumer_group(broker: EmbeddedBroker) -> None:
    done = consume(broker, "modern", "--command-property", "group.protocol=consumer")
    assert sorted(done.stdout.split("\n")[:-1]) == sorted(f"order {number}" for number in range(RECORDS)), done.stderr

    listed = groups(broker, "--list", "--type", "consumer")
    assert listed.split()[-2:] == ["modern", "Consumer"] or "modern" in listed.split()
    assert current_offsets(groups(broker, "--describe", "--group", "modern")) == {0: "10", 1: "10"}


def test_a_running_java_consumer_is_described_with_its_partitions(broker: EmbeddedBroker) -> None:
    command = java_command(
        kafka_jars(),
        CONSOLE_CONSUMER,
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "orders",
        "--group",
        "running",
        "--from-beginning",
        "--command-property",
        "group.protocol=consumer",
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        for _ in range(RECORDS):
            assert process.stdout.readline().startswith("order ")
        members = groups(broker, "--describe", "--group", "running", "--members", "--verbose")
        assert "orders:0,1" in members.replace(" ", "")
    finally:
        process.kill()
        process.wait(30)


def test_offsets_are_reset_in_every_mode_and_deleted(broker: EmbeddedBroker, tmp_path: Path) -> None:
    consume(broker, "tool", "--command-property", "group.protocol=classic")

    assert reset(broker, "--to-earliest") == {0: 0, 1: 0}
    assert reset(broker, "--to-offset", "4") == {0: 4, 1: 4}
    assert reset(broker, "--shift-by", "2") == {0: 6, 1: 6}
    assert reset(broker, "--shift-by", "-3") == {0: 3, 1: 3}
    assert reset(broker, "--to-latest") == {0: 10, 1: 10}
    assert reset(broker, "--to-datetime", "2000-01-01T00:00:00.000") == {0: 0, 1: 0}
    assert reset(broker, "--by-duration", "PT1H") == {0: 0, 1: 0}
    assert reset(broker, "--to-current") == {0: 0, 1: 0}
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,7\norders,1,2\n")
    assert reset(broker, "--from-file", str(plan)) == {0: 7, 1: 2}
    assert reset(broker, "--to-earliest") == {0: 0, 1: 0}

    groups(broker, "--delete-offsets", "--group", "tool", "--topic", "orders:1")
    assert current_offsets(groups(broker, "--describe", "--group", "tool")) == {0: "0"}
    groups(broker, "--delete", "--group", "tool")
    assert "tool" not in groups(broker, "--list").split()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_producer_and_consumer_agree(broker: EmbeddedBroker, protocol: str) -> None:
    """The tools of Kafka's own system tests: they tell in JSON what they sent, read and committed."""
    topic, group = f"verified-{protocol}", f"verifier-{protocol}"
    common = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", "500"]
    sent = told(kafka_tool("VerifiableProducer", *common, "--throughput", "-1").stdout)
    acknowledged = [event["value"] for event in sent if event["name"] == "producer_send_success"]
    assert sorted(acknowledged, key=int) == [str(number) for number in range(500)]

    options = ["--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest", "--verbose"]
    read = told(kafka_tool("VerifiableConsumer", *common, *options).stdout)
    assert sorted((event["value"] for event in read if event["name"] == "record_data"), key=int) == sorted(
        acknowledged, key=int
    )
    commits = [event for event in read if event["name"] == "offsets_committed"]
    assert commits and all(event["success"] for event in commits)
    described = groups(broker, "--describe", "--group", group)
    assert sum(int(offset) for offset in current_offsets(described, topic).values()) == 500


def told(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_kafkas_formatters_read_our_internal_topic(broker: EmbeddedBroker) -> None:
    consume(broker, "formatted", "--command-property", "group.protocol=classic")
    partition = partition_of("formatted", 50)
    place = ("__consumer_offsets", partition)
    with SyncClient(broker.bootstrap) as client:
        end = client.list_offsets({place: -1})[place].offset
    for formatter, expected in (
        ("OffsetsMessageFormatter", '"offset":10'),
        ("GroupMetadataMessageFormatter", '"protocolType":"consumer"'),
    ):
        done = kafka_tool(
            CONSOLE_CONSUMER,
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            "__consumer_offsets",
            "--partition",
            str(partition),
            "--offset",
            "earliest",
            "--max-messages",
            str(end),
            "--timeout-ms",
            "120000",
            "--formatter",
            f"org.apache.kafka.tools.consumer.{formatter}",
        )
        ours = [line for line in done.stdout.splitlines() if '"group":"formatted"' in line]
        assert any(expected in line for line in ours), done.stdout[-2000:] + done.stderr[-2000:]
