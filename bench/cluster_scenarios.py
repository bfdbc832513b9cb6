"""Three brokers beside three nodes of Kafka: acks=all with three replicas, and what a leader's end costs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import load, targets
from bench.broker_scenarios import create_topic
from bench.report import Row, absolute, alternate, at_least, at_most
from penstock.cluster import local
from penstock.protocol import messages
from penstock.testing.peers import apache_kafka
from penstock.testing.ports import free_port, free_ports

SECTION = "Three brokers"
SESSION_MS = 6000


@contextlib.contextmanager
def penstock_cluster(**settings: str) -> Iterator[targets.Target]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    base = free_ports(3)
    wanted = {"zookeeper.session.timeout.ms": str(SESSION_MS), **{k.replace("_", "."): v for k, v in settings.items()}}
    try:
        cluster = local.start(folder, 3, base, free_port(), wanted)
        rows = {row.name: row for row in local.status(folder)}
        ports = [cluster.broker_port(n) for n in cluster.broker_ids]
        pids = [rows[f"broker-{n}"].pid or 0 for n in cluster.broker_ids]
        yield targets.Target("penstock", ports, pids, folder=folder)
    finally:
        with contextlib.suppress(local.LocalClusterError):
            local.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def kafka_cluster() -> Iterator[targets.Target]:
    with apache_kafka(3, settings={"broker.session.timeout.ms": str(SESSION_MS)}) as kafka:
        yield targets.Target("kafka", kafka.ports, [process.pid for process in kafka.processes], folder=kafka.folder)


def view(target: targets.Target, topic: str) -> Any:
    """Metadata of a topic from any broker that answers."""
    api = messages.api("metadata")
    request = api.Request(topics=[api.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for port in target.ports:
        with contextlib.suppress(OSError):
            return load.call(port, "metadata", 9, request)
    raise RuntimeError("no broker answers")


def leader_port(target: targets.Target, topic: str, isr: int = 3) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = view(target, topic)
        ports = {b.node_id: b.port for b in answer.brokers}
        partition = answer.topics[0].partitions[0] if answer.topics and answer.topics[0].partitions else None
        if partition and partition.leader_id in ports and len(partition.isr_nodes) >= isr:
            return int(ports[partition.leader_id])
        time.sleep(0.1)
    raise RuntimeError(f"{topic} has no leader with {isr} replicas in sync")


def replicated(target: targets.Target, topic: str) -> int:
    for port in target.ports:
        with contextlib.suppress(RuntimeError):
            create_topic(port, topic, replication=3, min_insync_replicas="2")
            break
    return leader_port(target, topic)


def produce_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    small, large = load.one_batch(1, 100), load.one_batch(1000, 100)
    cases = (
        ("100 KB batches, acks=all, 10 in flight", large, 10, "MB/s", len(large) / 1e6),
        ("one-record produce, acks=all, 100 in flight", small, 100, "requests/s", 1.0),
    )
    rows = []
    for number, (name, batch, in_flight, unit, scale) in enumerate(cases):
        topic = f"replicated-{number}"
        sides = {}
        for target in (penstock, kafka):
            port = replicated(target, topic)
            request = load.produce_frame(topic, 0, batch, acks=-1)
            size = load.check_produce(port, request)

            def work(port=port, request=request, size=size, in_flight=in_flight):  # type: ignore[no-untyped-def]
                return {"rate": load.pipelined(port, request, size, in_flight, seconds).per_second}

            work()
            sides[target.name] = work
        seen = alternate(rounds, sides)
        rows.append(at_least(SECTION, name, unit, seen["penstock"]["rate"] * scale, seen["kafka"]["rate"] * scale, 2))
    return rows


def latency_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    sides = {}
    for target in (penstock, kafka):
        port = replicated(target, "latency")
        request = load.produce_frame("latency", 0, load.one_batch(1, 100), acks=-1)
        load.check_produce(port, request)

        def work(port=port, request=request):  # type: ignore[no-untyped-def]
            times = []
            with load.connect(port) as connection:
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    began = time.perf_counter()
                    connection.sendall(request)
                    load.read_frame(connection)
                    times.append(time.perf_counter() - began)
            ordered = sorted(times)
            return {
                "rate": len(times) / seconds,
                "p50": ordered[len(ordered) // 2] * 1e3,
                "p99": ordered[int(len(ordered) * 0.99)] * 1e3,
            }

        work()
        sides[target.name] = work
    seen = alternate(rounds, sides)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "one-record produce, acks=all, one in flight"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 2),
        at_most(SECTION, f"{name}, p50", "ms", ours["p50"], theirs["p50"], 1),
        at_most(SECTION, f"{name}, p99", "ms", ours["p99"], theirs["p99"], 1),
    ]


class Writer(threading.Thread):
    """Produces one record after the other through librdkafka and notes when each was acknowledged."""

    def __init__(self, target: targets.Target, topic: str) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True,
                    "message.timeout.ms": 60_000, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
                    "socket.timeout.ms": 2000, "log_level": 0}  # fmt: skip
        self._producer = Producer(settings)
        self._topic = topic
        self._stop_flag = threading.Event()
        self.acknowledged: list[float] = []

    def run(self) -> None:
        while not self._stop_flag.is_set():
            self._producer.produce(self._topic, b"x", on_delivery=self._delivered, partition=0)
            self._producer.poll(0.005)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(time.perf_counter())

    def finish(self) -> float:
        """The longest time between two acknowledged records."""
        self._stop_flag.set()
        self.join()
        self._producer.flush(30)
        times = self.acknowledged
        return max((b - a for a, b in pairwise(times)), default=float("inf"))


def gap_when(target: targets.Target, topic: str, how: signal.Signals) -> float:
    """Seconds without a successful produce while the leader's process gets a signal."""
    port = replicated(target, topic)
    pid = target.pids[target.ports.index(port)]
    writer = Writer(target, topic)
    writer.start()
    _until(lambda: len(writer.acknowledged) > 50)
    os.kill(pid, how)
    before = len(writer.acknowledged)
    _until(lambda: len(writer.acknowledged) > before + 200, 60)
    return writer.finish()


def _until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("what the measurement waits for did not happen")
        time.sleep(0.02)


def failover_rows() -> list[Row]:
    gaps: dict[str, float] = {}
    for name, make in (("penstock", penstock_cluster), ("kafka", kafka_cluster)):
        with make() as target:
            gaps[name] = gap_when(target, "killed", signal.SIGKILL)
    with penstock_cluster() as target:
        stopped = gap_when(target, "stopped", signal.SIGTERM)
    what = f"leader killed with -9, time without a successful produce (session {SESSION_MS / 1000:g} s)"
    return [
        at_most(SECTION, what, "s", gaps["penstock"], gaps["kafka"], 1),
        absolute(SECTION, "controlled shutdown of a leader, time without a successful produce", "s", stopped, 1),
    ]


def many_partitions_rows(partitions: int = 3000) -> list[Row]:
    """A cluster with many partitions loses the broker that is its controller: until every partition has a leader."""
    with penstock_cluster() as target:
        for topic in range(partitions // 500):
            create_topic(target.port, f"many-{topic}", partitions=500, replication=3)
        until_all_led(target)
        controller = view(target, "many-0").controller_id
        os.kill(target.pids[controller - 1], signal.SIGKILL)
        began = time.perf_counter()
        survivors = targets.Target("penstock", [p for i, p in enumerate(target.ports) if i != controller - 1], [])
        _until(lambda: _leaderless(survivors, dead=controller) == 0, 120)
        seconds = time.perf_counter() - began - SESSION_MS / 1000
    name = f"{partitions} partitions: controller and broker killed, all leaders elected after the session ended"
    return [absolute(SECTION, name, "s", max(0.0, seconds), 10)]


def until_all_led(target: targets.Target) -> None:
    _until(lambda: _leaderless(target) == 0, 120)


def _leaderless(target: targets.Target, dead: int = -2) -> int:
    api = messages.api("metadata")
    answer: Any = load.call(target.port, "metadata", 9, api.Request(topics=None, allow_auto_topic_creation=False))
    if dead in {b.node_id for b in answer.brokers}:
        return -1
    return sum(p.leader_id in (-1, dead) for t in answer.topics for p in t.partitions)


def run(rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    with penstock_cluster() as penstock, kafka_cluster() as kafka:
        rows += produce_rows(penstock, kafka, rounds, seconds)
        rows += latency_rows(penstock, kafka, min(rounds, 3), seconds)
    rows += failover_rows()
    rows += many_partitions_rows()
    from bench import wide_scenarios  # which stands on this module

    return rows + wide_scenarios.rows(seconds)
