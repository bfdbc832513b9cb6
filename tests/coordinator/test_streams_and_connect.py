"""Neighbours that live on transactions: a Kafka Streams application and a Kafka Connect worker, exactly once.

Both are Apache's own code from Maven Central. Both die in the middle and come back.
"""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.client.sync import SyncClient
from penstock.testing import peers
from penstock.testing.neighbours.connect import rest
from penstock.testing.ports import free_port
from penstock.testing.raw_transactions import create_topic, records, values

pytestmark = [pytest.mark.java, pytest.mark.slow]

STREAMS_APPLICATION = Path(__file__).parent / "java" / "CountByKey.java"
KEYS = 7
RECORDS = 3_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    with penstock.Broker(
        settings={"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    ) as started:
        yield started


@pytest.fixture
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as connected:
        yield connected


def keyed_values(client: SyncClient, topic: str, partitions: int) -> dict[str, list[str]]:
    """Key → values in order, of committed records."""
    found: dict[str, list[str]] = defaultdict(list)
    for partition in range(partitions):
        for record in records(client, topic, partition):
            found[(record.key or b"").decode()].append((record.value or b"").decode())
    return found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any], log: Path, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def stop(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_streams_application_counts_exactly_once_through_a_crash(
    broker: Any, client: SyncClient, tmp_path: Path
) -> None:
    lib = peers.jars(f"kafka-streams-{peers.KAFKA_VERSION}", peers.KAFKA_STREAMS)
    create_topic(client, "streams-in", 2)
    create_topic(client, "streams-out", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    expected: dict[str, int] = defaultdict(int)
    for number in range(RECORDS):
        key = f"key-{number % KEYS}"
        expected[key] += 1
        producer.produce("streams-in", key=key, value=f"{number}")
    producer.flush(60)
    log = tmp_path / "streams.log"

    def start(die_after: int) -> subprocess.Popen[Any]:
        arguments = [broker.bootstrap, "counter", "streams-in", "streams-out", str(tmp_path / "state"), str(die_after)]
        command = peers.java_command(lib, str(STREAMS_APPLICATION), *arguments)
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    assert start(RECORDS // 2).wait(400) == 137, log.read_text()[-3000:]
    process = start(0)
    try:
        wait_for(lambda: sum(map(len, keyed_values(client, "streams-out", 2).values())) >= RECORDS, process, log)
    finally:
        stop(process)
    counted = keyed_values(client, "streams-out", 2)
    assert counted == {key: [str(n + 1) for n in range(count)] for key, count in expected.items()}


def answers(url: str) -> bool:
    try:
        rest(url)
    except (urllib.error.URLError, OSError):
        return False
    return True


def connect_properties(broker: Any, tmp_path: Path, **settings: str) -> str:
    common = {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "only_scan",
        **settings,
    }
    path = tmp_path / f"worker-{len(list(tmp_path.iterdir()))}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in common.items()))
    return str(path)


def test_a_connect_worker_reads_a_file_exactly_once_through_a_crash(
    broker: Any, client: SyncClient, tmp_path: Path
) -> None:
    """A one-node distributed worker: only there does Connect offer exactly-once for sources (KIP-618)."""
    lib = peers.jars(f"kafka-connect-{peers.KAFKA_VERSION}", peers.KAFKA_CONNECT)
    create_topic(client, "connect-lines", 1)
    port = free_port()
    properties = connect_properties(
        broker,
        tmp_path,
        **{
            "group.id": "connect",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",  # else the tasks of a lost worker wait for it five minutes
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "listeners": f"http://127.0.0.1:{port}",
        },
    )
    lines = tmp_path / "lines.txt"
    log = tmp_path / "connect.log"

    def add_lines(first: int, end: int) -> None:
        with lines.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(first, end))

    add_lines(0, 200)

    def start() -> subprocess.Popen[Any]:
        command = peers.java_command(lib, "org.apache.kafka.connect.cli.ConnectDistributed", properties, log="warn")
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    process = start()
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/connectors"), process, log)
        connector = {
            "name": "lines",
            "config": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "tasks.max": "1",
                "file": str(lines),
                "topic": "connect-lines",
                "transaction.boundary": "poll",
                "exactly.once.support": "required",
            },
        }
        rest(f"http://127.0.0.1:{port}/connectors", connector)
        wait_for(lambda: len(values(client, "connect-lines")) >= 200, process, log)
        add_lines(200, 300)
        process.kill()
        process.wait()
        add_lines(300, 400)
        process = start()
        wait_for(lambda: len(values(client, "connect-lines")) >= 400, process, log)
    finally:
        stop(process)
    assert values(client, "connect-lines") == [f"line {number}" for number in range(400)]


def test_a_standalone_worker_carries_lines_from_file_to_file(broker: Any, client: SyncClient, tmp_path: Path) -> None:
    lib = peers.jars(f"kafka-connect-{peers.KAFKA_VERSION}", peers.KAFKA_CONNECT)
    create_topic(client, "connect-standalone", 1)
    source, target, log = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "standalone.log"
    source.write_text("".join(f"line {number}\n" for number in range(100)))
    worker = connect_properties(
        broker,
        tmp_path,
        **{
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "listeners": f"http://127.0.0.1:{free_port()}",
        },
    )
    reader, writer = tmp_path / "source.properties", tmp_path / "sink.properties"
    reader.write_text(
        "name=reader\nconnector.class=org.apache.kafka.connect.file.FileStreamSourceConnector\n"
        f"tasks.max=1\nfile={source}\ntopic=connect-standalone\n"
    )
    writer.write_text(
        "name=writer\nconnector.class=org.apache.kafka.connect.file.FileStreamSinkConnector\n"
        f"tasks.max=1\nfile={target}\ntopics=connect-standalone\n"
    )

    def written() -> list[str]:
        return target.read_text().splitlines() if target.exists() else []

    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    command = peers.java_command(lib, main_class, worker, str(reader), str(writer), log="warn")
    for total in (100, 150):
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_for(lambda total=total: len(written()) >= total, process, log)  # type: ignore[misc]
        finally:
            stop(process)
        with source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(100, 150))
    assert written() == [f"line {number}" for number in range(150)]
