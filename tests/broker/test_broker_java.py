"""Kafka's own command-line tools (the Java client) against the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import peers

pytestmark = pytest.mark.java


def tool(name: str, broker: penstock.Broker, *arguments: str, stdin: str | None = None) -> str:
    done = peers.kafka_tool(name, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topics_records_offsets_configs_and_folders(broker: penstock.Broker, topic: str, tmp_path: Path) -> None:
    tool("TopicCommand", broker, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=1000000")
    assert topic in tool("TopicCommand", broker, "--list").split()
    described = tool("TopicCommand", broker, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "retention.ms=1000000" in described

    performed = peers.kafka_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", "compression.type=lz4"),
    )
    assert "5000 records sent" in performed.stdout, performed.stdout + performed.stderr
    offsets = [int(line.rpartition(":")[2]) for line in tool("GetOffsetShell", broker, "--topic", topic).splitlines()]
    assert sum(offsets) == 5000

    consumed = tool(
        "consumer.ConsoleConsumer",
        broker,
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(offsets[0])),
    )
    assert len(consumed.splitlines()) == offsets[0]

    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 10}], "version": 1}))
    assert "low_watermark: 10" in tool("DeleteRecordsCommand", broker, "--offset-json-file", str(plan))
    folders: Any = json.loads(tool("LogDirsCommand", broker, "--describe", "--topic-list", topic).splitlines()[-1])
    (folder,) = folders["brokers"][0]["logDirs"]
    assert {p["partition"] for p in folder["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    tool("TopicCommand", broker, "--delete", "--topic", topic)
