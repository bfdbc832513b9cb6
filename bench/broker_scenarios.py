"""One broker beside one Kafka: produce, connections, start and memory."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import client_scenarios, load, targets
from bench.load import create_topic
from bench.report import Median, Row, absolute, alternate, at_least, at_most, warm
from bench.stage import Stage
from penstock.log.producer_snapshot import write_snapshot
from penstock.protocol import messages

SECTION = "One broker"
Pair = tuple[targets.Target, targets.Target]
Seen = tuple[dict[str, float], dict[str, float]]
SEALED_OFFSETS = 1_000_000  # how many a partition with history has behind it


def measured(target: targets.Target, work: Callable[[], load.Result], unit: float = 1.0) -> dict[str, float]:
    """How many units a second, and the broker's CPU for one request."""
    before = target.cpu_seconds()
    result = work()
    spent = target.cpu_seconds() - before
    return {"rate": result.per_second * unit, "cpu": spent / result.requests * 1e6}


Load = Callable[[int, bytes, int, float], load.Result]
"""(port, request, bytes of an answer, seconds)."""


def produced(pair: Pair, topic: str, batch: bytes, send: Load, rounds: int, seconds: float, unit: float = 1.0) -> Seen:
    """The same load on both sides."""
    sides = {}
    for target in pair:
        create_topic(target.port, topic)
        request = load.produce_frame(topic, 0, batch)
        size = load.check_produce(target.port, request)
        work = partial(send, target.port, request, size, seconds)
        sides[target.name] = partial(measured, target, work, unit)
    warm(sides)
    seen = alternate(rounds, sides)
    return seen["penstock"], seen["kafka"]


def in_flight_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    send: Load = lambda port, request, size, seconds: load.pipelined(port, request, size, 100, seconds)  # noqa: E731
    ours, theirs = produced(pair, "in-flight", load.one_batch(1, 100), send, rounds, seconds)
    name = "one-record produce, 100 in flight, one connection"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 4),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["cpu"], theirs["cpu"], 1 / 3),
    ]


def connections_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    send: Load = lambda port, request, size, seconds: load.many_connections(port, request, size, 64, seconds)  # noqa: E731
    ours, theirs = produced(pair, "connections", load.one_batch(1, 100), send, rounds, seconds)
    name = "one-record produce, 64 connections"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 1.5),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["cpu"], theirs["cpu"], 0.45),
    ]


def many_connections_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    send: Load = lambda port, request, size, seconds: load.paced_connections(port, request, size, 1000, 0.1, seconds)  # noqa: E731
    ours, theirs = produced(pair, "many-connections", load.one_batch(1, 100), send, rounds, seconds)
    name = "1,000 connections, a record each per 100 ms: broker CPU"
    return [at_most(SECTION, name, "µs/request", ours["cpu"], theirs["cpu"], 1 / 2)]


def batches_rows(pair: Pair, rounds: int, seconds: float) -> list[Row]:
    batch = load.one_batch(1000, 100)
    send: Load = lambda port, request, size, seconds: load.pipelined(port, request, size, 10, seconds)  # noqa: E731
    ours, theirs = produced(pair, "batches", batch, send, rounds, seconds, len(batch) / 1e6)
    return [at_least(SECTION, "100 KB batches, 10 in flight", "MB/s", ours["rate"], theirs["rate"], 2.5)]


def start_rows(_: object, rounds: int, seconds: float) -> list[Row]:
    """From starting the process to the first acknowledged record, and memory while idle."""
    starts: dict[str, list[float]] = {"penstock": [], "kafka": []}
    memory: dict[str, list[float]] = {"penstock": [], "kafka": []}
    request = load.produce_frame("first", 0, load.one_batch(1, 100))
    plain = partial(targets.penstock_broker, watched=False)
    with plain() as target:  # compiles the modules that no earlier start has loaded
        create_topic(target.port, "first")
    for _ in range(min(rounds, 3)):
        for name, start in (("penstock", plain), ("kafka", targets.kafka_broker)):
            began = time.perf_counter()
            with start() as target:
                create_topic(target.port, "first")
                load.check_produce(target.port, request)
                starts[name].append(time.perf_counter() - began)
                time.sleep(2)
                memory[name].append(target.resident_megabytes())
    median = {name: Median.of(values) for name, values in starts.items()}
    resident = {name: Median.of(values) for name, values in memory.items()}
    return [
        at_most(SECTION, "start to first acknowledged record", "s", median["penstock"], median["kafka"], 1 / 8),
        at_most(SECTION, "resident memory, idle", "MB", resident["penstock"], resident["kafka"], 1 / 5),
    ]


def metadata_rows(_: object, rounds: int, seconds: float) -> list[Row]:
    """Metadata of 1,000 partitions, on one connection."""
    api = messages.api("metadata")
    with targets.penstock_broker() as target:
        create_topic(target.port, "wide", partitions=1000)
        body = messages.encode_request(3, 12, api.Request(topics=None))
        request = load.frame(3, 12, body)
        times = []
        with load.connect(target.port) as connection:
            deadline = time.monotonic() + 30
            while True:
                connection.sendall(request)
                answer = messages.decode_response(3, 12, load.read_frame(connection), 5)
                if answer.topics and all(p.leader_id >= 0 for p in answer.topics[0].partitions):
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError("1,000 partitions did not come on line in 30 s")
            for _ in range(50):
                began = time.perf_counter()
                connection.sendall(request)
                load.read_frame(connection)
                times.append(time.perf_counter() - began)
    return [
        absolute(SECTION, "Metadata for 1,000 partitions", "ms", Median.of([seconds * 1e3 for seconds in times]), 3)
    ]


def history_rows(_: object, rounds: int, seconds: float) -> list[Row]:
    """Cost of an append beside 2,000 partitions with 100 GB of sparse history, against 10 partitions with none."""
    costs: dict[str, list[float]] = {"small": [], "large": []}
    request = load.produce_frame("hot", 0, load.one_batch(1, 100))
    with contextlib.ExitStack() as stack:
        brokers = {}
        for name, partitions, history_bytes in (("small", 10, 0), ("large", 2000, 100 << 30)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            with targets.penstock_broker(folder=folder) as first:
                create_topic(first.port, "hot")
                create_topic(first.port, "wide", partitions=partitions)
                load.check_produce(first.port, request)
            if history_bytes:
                grow_history(folder, history_bytes)
            target = stack.enter_context(targets.penstock_broker(folder=folder))
            brokers[name] = (target, load.check_produce(target.port, request))
        for _ in range(min(rounds, 3)):
            for name, (target, size) in brokers.items():
                before = target.cpu_seconds()
                result = load.pipelined(target.port, request, size, 100, seconds)
                costs[name].append((target.cpu_seconds() - before) / result.requests * 1e6)
    small, large = Median.of(costs["small"]), Median.of(costs["large"])
    name = "append with 2,000 partitions and 100 GB history (right: with 10 and none)"
    return [Row(SECTION, name, "µs/request", large, small, "≤ 1.3 ×", large <= 1.3 * small)]


def grow_history(folder: Path, total_bytes: int) -> None:
    """Give every partition of `wide` a sealed sparse segment (old data that nobody reads) before the active one."""
    folders = sorted(folder.glob("wide-*"))
    batch = load.one_batch(1, 100)
    for partition in folders:
        for base_offset in (0, SEALED_OFFSETS):
            for ending in (".log", ".index", ".timeindex"):
                (partition / f"{base_offset:020d}{ending}").touch()
        # The state of producers behind the history: nobody need read it again.
        write_snapshot(partition, SEALED_OFFSETS, (), durable=False)
        with (partition / f"{0:020d}.log").open("r+b") as file:
            file.write(batch)
            file.truncate(total_bytes // len(folders))


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    with targets.penstock_broker() as penstock, targets.kafka_broker() as kafka:
        yield penstock, kafka


STAGES = [
    Stage(
        {
            "in-flight-100": in_flight_rows,
            "connections-64": connections_rows,
            "connections-1000": many_connections_rows,
            "batches-100k": batches_rows,
            "librdkafka": client_scenarios.librdkafka_rows,
            "end-to-end": client_scenarios.latency_rows,
        },
        pair,
    ),
    Stage({"start": start_rows, "metadata": metadata_rows, "history": history_rows}),
]
