"""One node with data becomes three: its tree moves to ZooKeeper, two brokers join, replicas spread, the first one
dies."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.base.settings import Settings
from penstock.client.client import Client
from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.protocol import messages
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.migrate import MigrationRefused, migrate_to_zookeeper
from tests.store.conftest import zookeeper_settings

WAIT_SECONDS = 60
PARTITIONS = 3


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)


def produce(bootstrap: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    failures: list[Any] = []
    for number in values:
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> set[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[int] = []
    try:
        while len(found) < count:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None and message.error() is None, (
                f"{len(found)} of {count}: {message and message.error()}"
            )
            found.append(int(message.value()))
    finally:
        consumer.close()
    assert len(found) == len(set(found))
    return set(found)


def replicate_to_all(bootstrap: str, topic: str) -> None:
    """Reassign every partition to brokers 1, 2, 3 and wait until all of them are in sync."""
    api = messages.api("alter_partition_reassignments")
    rows = [api.ReassignablePartition(partition_index=i, replicas=[2, 3, 1]) for i in range(PARTITIONS)]
    request = api.Request(topics=[api.ReassignableTopic(name=topic, partitions=rows)], timeout_ms=30_000)

    async def story() -> None:
        async with Client(bootstrap) as client:
            answer = await client.call_controller("alter_partition_reassignments", request)
            assert [p.error_code for p in answer.responses[0].partitions] == [0] * PARTITIONS

            async def done() -> bool:
                view = await client.metadata([topic])
                return all(
                    sorted(p.isr) == [1, 2, 3] and sorted(p.replicas) == [1, 2, 3]
                    for p in view.topics[topic].partitions.values()
                )

            await eventually(done)

    asyncio.run(story())


def test_a_node_with_data_grows_into_a_replicated_cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    topic, chroot = "grown", f"/grow-{uuid.uuid4().hex[:8]}"
    with penstock.Broker(tmp_path / "one") as single:
        admin = AdminClient({"bootstrap.servers": single.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})])[topic].result(WAIT_SECONDS)
        produce(single.bootstrap, topic, range(300))
        cluster_id = admin.list_topics(timeout=WAIT_SECONDS).cluster_id

    moved = asyncio.run(migrate_to_zookeeper(tmp_path / "one" / "penstock.db", zookeeper_settings(zookeeper, chroot)))
    assert moved.topics == 1 and moved.left_behind is not None and moved.left_behind.exists()

    settings = {
        "zookeeper.connect": zookeeper.connect + chroot,
        "zookeeper.session.timeout.ms": "4000",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    brokers = [
        penstock.Broker(tmp_path / "one", settings=settings),  # its folder remembers its id
        penstock.Broker(tmp_path / "two", broker_id=2, settings=settings),
        penstock.Broker(tmp_path / "three", broker_id=3, settings=settings),
    ]
    try:
        for broker in brokers:
            broker.start()
        first, second, third = brokers
        found = AdminClient({"bootstrap.servers": second.bootstrap}).list_topics(timeout=WAIT_SECONDS)
        assert found.cluster_id == cluster_id and set(found.brokers) == {1, 2, 3}
        replicate_to_all(second.bootstrap, topic)
        produce(third.bootstrap, topic, range(300, 600))
        first.stop()
        produce(third.bootstrap, topic, range(600, 900))
        assert consume(second.bootstrap, topic, 900) == set(range(900))
    finally:
        for broker in reversed(brokers):
            broker.stop()


def test_migration_refuses_a_tree_that_belongs_to_somebody(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    settings = zookeeper_settings(zookeeper, f"/twice-{uuid.uuid4().hex[:8]}")
    source = tmp_path / "penstock.db"

    async def make_source() -> None:
        store = EmbeddedStore(EmbeddedDatabase(source))
        await store.start()
        await store.ensure_path("/brokers/topics/t")
        await store.ensure_path("/cluster")
        await store.create("/cluster/id", b'{"version":"1","id":"x"}')
        await store.create("/controller", b"{}")
        await store.close()

    asyncio.run(make_source())
    first = asyncio.run(migrate_to_zookeeper(source, settings, keep_source=True))
    assert first.topics == 1 and source.exists()
    with pytest.raises(MigrationRefused, match="empty chroot"):
        asyncio.run(migrate_to_zookeeper(source, settings))
    with pytest.raises(MigrationRefused, match="no store file"):
        asyncio.run(migrate_to_zookeeper(tmp_path / "missing.db", settings))
    assert isinstance(settings, Settings)
