"""Kafka's DumpLogSegments decodes every kind of record that our groups write."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.embedded import EmbeddedBroker
from penstock.testing.peers import kafka_tool

pytestmark = pytest.mark.java


def settle(*consumers: Consumer) -> None:
    deadline = time.monotonic() + 240
    while not all(consumer.assignment() for consumer in consumers):
        assert time.monotonic() < deadline, "the group never settles"
        for consumer in consumers:
            consumer.poll(0.02)


def test_dump_log_segments_reads_what_we_wrote(tmp_path: Path) -> None:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "offsets.topic.num.partitions": "1",
    }
    with EmbeddedBroker(tmp_path, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("dumped", 4, 1)])["dumped"].result(120)
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "dump", "enable.auto.commit": False}
        classic = Consumer(
            config
            | {
                "group.protocol": "classic",
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 200,
                "group.instance.id": "static",
            }
        )
        classic.subscribe(["dumped"])
        settle(classic)
        modern = Consumer(config | {"group.protocol": "consumer"})
        modern.subscribe(["^dump.*"])
        settle(classic, modern)
        modern.close()
        classic.close()
    (segment,) = tmp_path.rglob("__consumer_offsets-0/*.log")
    done = kafka_tool("DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    assert done.returncode == 0, done.stderr
    assert "Could not decode" not in done.stdout
    for expected in (
        '"protocolType":"consumer"',  # type 2
        '"type":"3"',
        '"type":"5"',
        '"subscribedTopicRegex":"',
        '"regularExpression":"',
        '"classicMemberMetadata":{"sessionTimeoutMs":',
        '"type":"6"',
        '"type":"7"',
        '"type":"8"',
        '"type":"16"',
    ):
        assert expected in done.stdout, (expected, done.stdout[-4000:])
