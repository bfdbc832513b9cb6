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
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import load, stalls, targets
from bench.broker_scenarios import measured
from bench.load import create_topic
from bench.report import Row, absolute, alternate, at_least, at_most, warm
from bench.stage import Stage
from penstock.cluster import local
from penstock.protocol import messages
from penstock.testing.peers import apache_kafka
from penstock.testing.ports import free_port, free_ports

SECTION = "Three brokers"
SESSION_MS = 6000
Pair = tuple[targets.Target, targets.Target]
Seen = tuple[dict[str, float], dict[str, float]]


@contextlib.contextmanager
def penstock_cluster(watched: bool = True, **settings: str) -> Iterator[targets.Target]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    base = free_ports(3)
    wanted = {"zookeeper.session.timeout.ms": str(SESSION_MS), **{k.replace("_", "."): v for k, v in settings.items()}}
    try:
        module = stalls.command() if watched else ["-m", "penstock.broker"]
        cluster = local.start(folder, 3, base, free_port(), wanted, module)
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


def loaded(pair: Pair, topic: str, batch: bytes, in_flight: int, unit: float, rounds: int, seconds: float) -> Seen:
    """The same load on both clusters: units a second, and the CPU of all three brokers for one batch."""
    sides = {}
    for target in pair:
        port = replicated(target, topic)
        request = load.produce_frame(topic, 0, batch, acks=-1)
        size = load.check_produce(port, request)
        work = partial(measured, target, partial(load.pipelined, port, request, size, in_flight, seconds), unit)
        sides[target.name] = work
    warm(sides)
    seen = alternate(rounds, sides)
    return seen["penstock"], seen["kafka"]


def batches_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    batch = load.one_batch(1000, 100)
    ours, theirs = loaded(pair, "batches", batch, 10, len(batch) / 1e6, rounds, seconds)
    name = "100 KB batches, acks=all, 10 in flight"
    return [
        at_least(SECTION, name, "MB/s", ours["rate"], theirs["rate"], 3),
        at_most(SECTION, f"{name}: CPU of three brokers", "µs/batch", ours["cpu"], theirs["cpu"], 1 / 3),
    ]


def in_flight_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    ours, theirs = loaded(pair, "in-flight", load.one_batch(1, 100), 100, 1.0, rounds, seconds)
    name = "one-record produce, acks=all, 100 in flight"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 2),
        at_most(SECTION, f"{name}: CPU of three brokers", "µs/batch", ours["cpu"], theirs["cpu"], 1 / 3),
    ]


def one_in_flight(target: targets.Target, port: int, request: bytes, seconds: float) -> dict[str, float]:
    times = []
    before = target.cpu_seconds()
    with load.connect(port) as connection:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            connection.sendall(request)
            load.read_frame(connection)
            times.append(time.perf_counter() - began)
    spent = target.cpu_seconds() - before
    ordered = sorted(times)
    return {
        "rate": len(times) / seconds,
        "p50": ordered[len(ordered) // 2] * 1e3,
        "p99": ordered[int(len(ordered) * 0.99)] * 1e3,
        "cpu": spent / len(times) * 1e6,
    }


def latency_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    sides = {}
    for target in pair:
        port = replicated(target, "latency")
        request = load.produce_frame("latency", 0, load.one_batch(1, 100), acks=-1)
        load.check_produce(port, request)
        work = partial(one_in_flight, target, port, request, seconds)
        sides[target.name] = work
    warm(sides)
    seen = alternate(rounds, sides, fresh_memory=False)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "one-record produce, acks=all, one in flight"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 1.5),
        at_most(SECTION, f"{name}, p50", "ms", ours["p50"], theirs["p50"], 0.7),
        at_most(SECTION, f"{name}, p99", "ms", ours["p99"], theirs["p99"], 1),
        at_most(SECTION, f"{name}: CPU of three brokers", "µs/batch", ours["cpu"], theirs["cpu"], 1 / 3),
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


def failover_rows(_: object, rounds: int, seconds: float) -> list[Row]:
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


def many_partitions_rows(_: object, rounds: int, seconds: float) -> list[Row]:
    """A cluster with many partitions loses the broker that is its controller: until every partition has a leader."""
    partitions = 3000
    with penstock_cluster() as target:
        for topic in range(partitions // 500):
            create_topic(target.port, f"many-{topic}", partitions=500, replication=3)
        until_all_led(target)
        controller = view(target, "many-0").controller_id
        os.kill(target.pids[controller - 1], signal.SIGKILL)
        began = time.perf_counter()
        survivors = targets.Target("penstock", [p for i, p in enumerate(target.ports) if i != controller - 1], [])
        _until(lambda: _leaderless(survivors, dead=controller) == 0, 120)
        elected = time.perf_counter() - began - SESSION_MS / 1000
    name = f"{partitions} partitions: controller and broker killed, all leaders elected after the session ended"
    return [absolute(SECTION, name, "s", max(0.0, elected), 10)]


def until_all_led(target: targets.Target) -> None:
    _until(lambda: _leaderless(target) == 0, 120)


def _leaderless(target: targets.Target, dead: int = -2) -> int:
    api = messages.api("metadata")
    answer: Any = load.call(target.port, "metadata", 9, api.Request(topics=None, allow_auto_topic_creation=False))
    if dead in {b.node_id for b in answer.brokers}:
        return -1
    return sum(p.leader_id in (-1, dead) for t in answer.topics for p in t.partitions)


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    with penstock_cluster() as penstock, kafka_cluster() as kafka:
        yield penstock, kafka


STAGES = [
    Stage({"one-in-flight": latency_rows, "batches-100k": batches_rows, "in-flight-100": in_flight_rows}, pair),
    Stage({"failover": failover_rows, "many-partitions": many_partitions_rows}),
]
