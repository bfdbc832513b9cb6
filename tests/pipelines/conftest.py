"""One Spark session and one broker for all stories of this folder: starting a JVM takes longer than most of them.

Stories that start further JVMs are marked `slow` and take minutes: `make prove-pipelines` tells them, not the suite.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.client.records import LATEST
from penstock.client.sync import SyncClient
from penstock.testing.broker_process import BrokerProcess

LONGEST_SECONDS = 900  # a story that hangs ends; one on a busy machine does not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    is_long_wanted = bool(os.environ.get("PENSTOCK_LONG_STORIES"))
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        if item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS))
        elif not is_long_wanted:
            item.add_marker(pytest.mark.skip(reason="a long story with JVMs of its own: make prove-pipelines"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.pipelines.spark.session import session

    started = session(
        "penstock tests",
        master="local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",  # a few rows each: compiling takes longer than running
        },
        log_level="off",
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real Penstock broker in its own process."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, {"num.partitions": "2"}) as started:
        yield started


@pytest.fixture
def new_topic(broker: BrokerProcess) -> Callable[..., str]:
    """Makes a topic of a fresh name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def make(partitions: int = 2, label: str = "t", name: str | None = None, **settings: str) -> str:
        chosen = name or f"{label}-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(chosen, partitions, 1, config=settings)])[chosen].result(30)
        return chosen

    return make


@pytest.fixture
def produce(broker: BrokerProcess) -> Callable[..., None]:
    """Writes values (or (key, value) pairs) with a usual client and waits for them."""
    from confluent_kafka import Producer

    def write(topic: str, values: Sequence[Any], partition: int | None = None, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0, **settings})
        failures: list[Any] = []
        for entry in values:
            key, value = entry if isinstance(entry, tuple) else (None, entry)
            where = {} if partition is None else {"partition": partition}
            producer.produce(
                topic, value, key, on_delivery=lambda error, _: failures.append(error) if error else None, **where
            )
        assert producer.flush(60) == 0
        assert not failures

    return write


@pytest.fixture
def read_topic(broker: BrokerProcess) -> Callable[..., list[Any]]:
    """All records of a topic as a read_committed consumer of another make sees them."""
    from confluent_kafka import Consumer, TopicPartition

    def read(topic: str, bootstrap: str | None = None) -> list[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap or broker.bootstrap,
                "group.id": f"check-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            # Behind a pipeline that writes all the time a topic has no end: what counts is where it ended at first.
            with SyncClient(bootstrap or broker.bootstrap) as client:
                answers = client.list_offsets({(topic, index): LATEST for index in partitions}, read_committed=True)
            ends = {index: answer.offset for (_, index), answer in answers.items()}
            consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
            found, left = [], {index for index in partitions if ends[index]}
            while left:
                message = consumer.poll(30)
                assert message is not None, f"{topic} does not answer up to its end"
                index = message.partition()
                if message.error():
                    assert message.error().name() == "_PARTITION_EOF", message.error().str()
                elif message.offset() < ends[index]:
                    found.append(message)
                if message.error() or message.offset() >= ends[index] - 1:
                    left.discard(index)
            return found
        finally:
            consumer.close()

    return read
