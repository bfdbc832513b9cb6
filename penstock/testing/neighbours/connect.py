"""Kafka Connect's own workers and file connectors: standalone, and distributed with exactly-once sources (KIP-618)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from penstock.testing import peers
from penstock.testing.neighbours.harness import Record, Verdict, World, judge_numbers, write_properties
from penstock.testing.ports import free_port

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
PUSHING_LINES = 1_000
KILLS = 3


def _worker(world: World, **settings: str) -> dict[str, str]:
    return {
        "bootstrap.servers": world.bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "only_scan",
        **settings,
    }


def _jars() -> Path:
    return peers.jars(f"kafka-connect-{peers.KAFKA_VERSION}", peers.KAFKA_CONNECT)


def _add_lines(path: Path, first: int, end: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(first, end))


def standalone(world: World) -> Verdict:
    """File → topic → file; stopped in the middle and started again, it goes on where it was."""
    jars = _jars()
    world.create("lines", partitions=1)
    source, target = world.folder / "in.txt", world.folder / "out.txt"
    half = world.records // 2
    _add_lines(source, 0, half)
    port = free_port()
    files = [
        write_properties(
            world.folder / "worker.properties",
            _worker(
                world,
                **{
                    "offset.storage.file.filename": str(world.folder / "offsets"),
                    "listeners": f"http://127.0.0.1:{port}",
                },
            ),
        ),
        *(
            write_properties(world.folder / f"{name}.properties", {"name": name, "tasks.max": "1", **settings})
            for name, settings in (
                ("reader", {"connector.class": SOURCE, "file": str(source), "topic": "lines"}),
                ("writer", {"connector.class": SINK, "file": str(target), "topics": "lines"}),
            )
        ),
    ]
    command = peers.java_command(jars, "org.apache.kafka.connect.cli.ConnectStandalone", *files, log="warn")
    worker = world.run(command, "worker")
    for end in (half, world.records):
        world.until(lambda end=end: len(_lines(target)) >= end, f"{end} lines arrive", [(worker, "worker")])  # type: ignore[misc]
        worker.stop()
        if end == half:
            _add_lines(source, half, world.records)
            worker.start()
    problems = judge_numbers(world.read("lines", 1), world.records)
    if _lines(target) != [str(number) for number in range(world.records)]:
        problems.append("the file written is not the file read")
    return Verdict("every line once, in order, in the topic and in the file behind it", problems, _count(world))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _count(world: World) -> str:
    return f"{world.records:,} lines"


def distributed(world: World) -> Verdict:
    """Two workers with exactly-once sources; workers and a broker die while lines are read."""
    jars = _jars()
    world.create("lines", partitions=1)
    ports = [free_port(), free_port()]
    workers = [
        world.run(
            peers.java_command(
                jars,
                "org.apache.kafka.connect.cli.ConnectDistributed",
                write_properties(world.folder / f"worker-{number}.properties", _distributed(world, port)),
                log="warn",
            ),
            f"worker-{number}",
        )
        for number, port in enumerate(ports)
    ]
    named = [(worker, f"worker-{number}") for number, worker in enumerate(workers)]
    lines = world.folder / "lines.txt"
    chunk = world.records // (KILLS + 2)
    _add_lines(lines, 0, chunk)
    world.until(lambda: all(_answers(port) for port in ports), "both workers answer", named)
    config = {
        "connector.class": SOURCE,
        "tasks.max": "1",
        "file": str(lines),
        "topic": "lines",
        "batch.size": "20",
        "transaction.boundary": "poll",
        "exactly.once.support": "required",
    }
    rest(f"http://127.0.0.1:{ports[0]}/connectors", {"name": "lines", "config": config})
    for number in range(1, KILLS + 2):
        seen = world.ended("lines", 1)
        end = world.records if number == KILLS + 1 else (number + 1) * chunk
        _add_lines(lines, number * chunk, end)
        world.until(lambda seen=seen: world.ended("lines", 1) > seen, "lines go on arriving", named)  # type: ignore[misc]
        if number > KILLS:
            break
        if number == KILLS:
            world.kill_a_broker()
            continue
        victim = _worker_of_the_task(ports)
        world.kill(workers[victim], "worker")
        workers[victim].start()
    # Lines that the file's reader holds after a full batch come out only when the file grows: these push them.
    _add_lines(lines, world.records, world.records + PUSHING_LINES)
    world.until(
        lambda: len({record.value for record in _committed(world)}) >= world.records, "every line arrives", named
    )
    for worker in workers:
        worker.stop()
    return Verdict(
        "every line once, in order, for read_committed", judge_numbers(_committed(world), world.records), _count(world)
    )


def _committed(world: World) -> list[Record]:
    return [record for record in world.read("lines", 1) if int(record.value) < world.records]


def _distributed(world: World, port: int) -> dict[str, str]:
    topics = {name: f"connect-{name}" for name in ("config", "offset", "status")}
    return _worker(
        world,
        **{
            "group.id": "connect",
            **{f"{name}.storage.topic": topic for name, topic in topics.items()},
            **{f"{name}.storage.replication.factor": str(world.copies) for name in topics},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",  # else the tasks of a lost worker wait for it five minutes
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "listeners": f"http://127.0.0.1:{port}",
        },
    )


def _worker_of_the_task(ports: list[int]) -> int:
    """Whom to kill: the worker that reads, or the first one if nobody says."""
    for port in ports:
        try:
            tasks = rest(f"http://127.0.0.1:{port}/connectors/lines/status")["tasks"]
        except (urllib.error.URLError, OSError):
            continue
        if tasks:
            return ports.index(int(tasks[0]["worker_id"].rpartition(":")[2]))
    return 0


def rest(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def _answers(port: int) -> bool:
    try:
        rest(f"http://127.0.0.1:{port}/connectors")
    except (urllib.error.URLError, OSError):
        return False
    return True
