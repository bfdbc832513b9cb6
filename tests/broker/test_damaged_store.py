"""A store that cannot be read, or is not the one it was: no replica is deleted for it, and other topics go on."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.cli.main import run as penstock_command
from penstock.cluster import znodes
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.testing.ports import free_port


def make(folder: Path, **settings: str) -> penstock.Broker:
    store = {"penstock.store.path": str(folder / "store.db"), "penstock.metrics.listener": f"127.0.0.1:{free_port()}"}
    return penstock.Broker(folder / "data", settings=store | {n.replace("_", "."): v for n, v in settings.items()})


def fill(broker: penstock.Broker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(30)
    write(broker, *topics)


def write(broker: penstock.Broker, *topics: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic in topics:
        producer.produce(topic, b"precious")
    assert producer.flush(30) == 0


def count(broker: penstock.Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return int(high)


def diagnosis(broker: penstock.Broker, capsys: Any) -> list[dict[str, Any]]:
    capsys.readouterr()
    penstock_command(["doctor", "--json", "-b", broker.bootstrap])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def scrape(broker: penstock.Broker) -> bytes:
    host, port = broker._broker.metrics_server.sockets[0].getsockname()
    with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
        return bytes(answer.read())


def topics(broker: penstock.Broker) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return {name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")}


def change(folder: Path, path: str, data: bytes) -> bytes:
    """Write a node of a stopped broker's store; what it said before."""

    async def run() -> bytes:
        store = EmbeddedStore(EmbeddedDatabase(folder / "store.db"))
        await store.start()
        before = (await store.get(path)).data
        await store.set(path, data)
        await store.close()
        return before

    return asyncio.run(run())


@pytest.mark.parametrize(
    "path", [znodes.topic_path("t"), znodes.state_path("t", 0), znodes.config_path(("topic", "t"))]
)
def test_a_node_that_cannot_be_read_costs_only_its_topic(tmp_path: Path, path: str, capsys: Any) -> None:
    with make(tmp_path) as broker:
        fill(broker, "t", "other")
    whole = change(tmp_path, path, b'{"version":3,"topic')
    with make(tmp_path) as broker:
        assert topics(broker) == {"other"}
        write(broker, "other")
        assert count(broker, "other") == 2
        fill(broker, "third")
        metrics = scrape(broker)
        assert b'penstock_unreadable_topics{topic="t"} 1.0' in metrics
        (finding,) = [row for row in diagnosis(broker, capsys) if row["check"] == "records"]
        assert finding["severity"] == "problem" and "topic t " in finding["finding"]
    assert (tmp_path / "data" / "t-0").is_dir(), "nothing is deleted, nothing is renamed"
    change(tmp_path, path, whole)
    with make(tmp_path) as broker:
        assert topics(broker) == {"t", "other", "third"} and count(broker, "t") == 1


def test_a_wiped_store_sets_replicas_aside_and_deletes_none(tmp_path: Path) -> None:
    with make(tmp_path) as broker:
        fill(broker, "t")
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    (tmp_path / "data" / "meta.properties").unlink()  # it names the cluster that is no more
    with make(tmp_path) as broker:
        assert topics(broker) == set()
        (stray,) = (tmp_path / "data").glob("t-0.*-stray")
        assert list(stray.glob("*.log"))
        metrics = scrape(broker)
        assert b"penstock_stray_replicas 1.0" in metrics
        fill(broker, "t")
        assert count(broker, "t") == 1, "the name is free for a new topic"


def test_a_deleted_topic_leaves_no_stray(tmp_path: Path) -> None:
    with make(tmp_path, file_delete_delay_ms="0") as broker:
        fill(broker, "t")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t"])["t"].result(30)
        assert topics(broker) == set()
        assert not list((tmp_path / "data").glob("t-0*-stray"))
        assert not (tmp_path / "data" / "t-0").exists()
