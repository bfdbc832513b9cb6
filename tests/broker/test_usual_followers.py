"""Followers whose fetch looks like their last one: the short way says the same, acknowledges only what is so."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, produce_request
from usual_oracle import GeneralWay, general_way

import penstock
from penstock.broker.fetch.usual_follower import UsualFollowerFetch
from penstock.cluster.zookeeper_process import ZooKeeperProcess
from tests.store.conftest import zookeeper

__all__ = ["general_way", "zookeeper"]

UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture(scope="module")
def two(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[penstock.Broker]]:
    folder: Path = tmp_path_factory.mktemp("followers")
    settings = {
        "zookeeper.connect": f"{zookeeper.connect}/followers-{uuid.uuid4().hex[:8]}",
        "default.replication.factor": "2",
        "replica.lag.time.max.ms": "600000",
    }
    brokers = [penstock.Broker(folder / str(n), broker_id=n, settings=settings) for n in (1, 2)]
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


def on_loop(broker: Any, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, broker._loop).result(30)


def leader_of(brokers: list[penstock.Broker], topic: str) -> Any:
    ensure_topic(brokers[0].port, topic)

    async def in_sync() -> int:
        holder = brokers[0]._broker.image_holder
        assert await holder.wait_until(
            lambda image: (p := image.partition(topic, 0)) is not None and len(p.isr) == 2, 30
        )
        return int(holder.image.partition(topic, 0).leader)

    return brokers[on_loop(brokers[0], in_sync()) - 1]


def produce(leader: Any, topic: str, *values: bytes) -> None:
    """Acknowledged by both. A leader may hear of a new topic a moment after whoever was asked to make it."""
    with RawClient(leader.port) as client:
        for value in values:
            code = UNKNOWN_TOPIC_OR_PARTITION
            while code == UNKNOWN_TOPIC_OR_PARTITION:
                answer = client.call("produce", 9, produce_request(topic, batch(value), acks=-1))
                code = answer.responses[0].partition_responses[0].error_code
            assert code == 0


def bytes_of(broker: Any, topic: str) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted((broker._broker.replicas.partitions[topic, 0].log.directory).glob("*.log"))
    )


def test_both_ways_say_the_same_and_both_logs_are_the_same(
    two: list[penstock.Broker], topic: str, general_way: GeneralWay
) -> None:
    leader = leader_of(two, topic)
    other = two[2 - leader._broker.node_id]
    drawn = random.Random(5)
    for _ in range(60):
        produce(leader, topic, drawn.randbytes(drawn.choice((1, 100, 1000, 40_000))))
    assert general_way.differences == []
    assert general_way.by_followers > 60
    assert bytes_of(leader, topic) == bytes_of(other, topic)
    log = leader._broker.replicas.partitions[topic, 0].log
    assert log.high_watermark == log.log_end_offset == 60


def test_what_does_not_hold_any_longer_acknowledges_nothing(two: list[penstock.Broker], topic: str) -> None:
    leader = leader_of(two, topic)
    produce(leader, topic, b"one", b"two", b"three")
    inner: Any = leader._broker

    async def look() -> None:
        (usual,) = [
            session.usual
            for session in inner.fetch_sessions.sessions.values()
            if isinstance(session.usual, UsualFollowerFetch) and session.usual._topic == topic
        ]
        partition = usual._partition
        follower = partition.followers[usual._replica_id]
        assert usual._holds()
        before = (follower.log_end_offset, follower.last_fetch_ms)
        end_offset = partition.log.log_end_offset
        assert not usual._acknowledged(end_offset + 1), "nobody has what is not there"
        usual._replica_epoch -= 1
        assert not usual._acknowledged(end_offset), "of an earlier life of that broker"
        usual._replica_epoch += 1
        assert (follower.log_end_offset, follower.last_fetch_ms) == before

        for holder, name, value in (
            (usual._connection, "broker_id", usual._replica_id + 7),
            (partition, "leader_epoch", partition.leader_epoch + 1),
            (partition, "is_leader", False),
            (partition, "isr", (inner.node_id,)),
            (inner.replicas, "image", replace(inner.replicas.image)),
            (usual._session, "usual", None),
        ):
            was = getattr(holder, name)
            setattr(holder, name, value)
            assert not usual._holds(), name
            setattr(holder, name, was)
        assert usual._holds()

    on_loop(leader, look())
