"""What pipelines cost: cold runs, the warm driver of a runner with one pipeline more, and how long a row takes.

Pipelines copy small JSON records from topic to topic through a filter. Seconds are by the clock; memory is proportional
(what processes share counts once). PENSTOCK_BENCH_FURTHER pipelines join the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import processes, report
from bench.pipeline_latency import latency_rows
from bench.pipeline_throughput import create, throughput_rows
from bench.report import Row
from bench.stage import Stage
from bench.targets import Target, penstock_broker

SECTION = "Pipelines: what they cost"
FURTHER = int(os.environ.get("PENSTOCK_BENCH_FURTHER", "4"))
LONGEST_SECONDS = 300.0
PENSTOCK = Path(sys.executable).with_name("penstock")


def cold(target: Target, rounds: int, seconds: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        return _cold_rows(target, Path(name), rounds)


def warm(target: Target, rounds: int, seconds: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        return _warm_rows(target, Path(name), seconds)


def latency(target: Target, rounds: int, seconds: float) -> list[Row]:
    return latency_rows(target, seconds)


def throughput(target: Target, rounds: int, seconds: float) -> list[Row]:
    return throughput_rows(target, rounds)


# --- cold ---


def _cold_rows(target: Target, folder: Path, rounds: int) -> list[Row]:
    spec = _copying("cold", _filled(target, 100), f"out-{uuid.uuid4().hex[:6]}")
    file, cases = folder / "cold.yml", folder / "cold.cases.yml"
    file.write_text(json.dumps(spec))
    cases.write_text(json.dumps([_case("kept", 1, [{"id": 1}]), _case("left out", -1, [])]))
    ways = {
        "`pipeline run --until-caught-up`, 100 records": (["run", str(file), "--until-caught-up"], 15.0),
        "the same again, nothing new": (["run", str(file), "--until-caught-up"], 15.0),
        "`pipeline test`, two cases": (["test", str(file), str(cases)], 15.0),
    }
    rows = []
    for name, (arguments, goal) in ways.items():
        seen = []
        for number in range(rounds):
            state = folder / f"state-{number}"
            more = ["-b", target.bootstrap, "--state-dir", str(state)] if arguments[0] == "run" else []
            seen.append(_timed([*arguments, *more], folder))
        rows.append(report.absolute(SECTION, name, "s", statistics.median(seen), goal))
    return rows


def _case(name: str, number: int, expected: list[dict[str, int]]) -> dict[str, Any]:
    return {"name": name, "given": {"o": [{"value": {"id": number}}]}, "expect": {"out": expected}}


def _timed(arguments: list[str], folder: Path) -> float:
    command = [str(PENSTOCK), "pipeline", *arguments]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - began


# --- warm ---


def _warm_rows(target: Target, folder: Path, seconds: float) -> list[Row]:
    with _runner(target, folder) as pid:
        _until_first_row(target, "first", seconds=1)
        delays, memory, counts = [], [processes.megabytes(pid)], [len(list(processes.tree(pid)))]
        for number in range(FURTHER):
            delays.append(_until_first_row(target, f"further-{number}", seconds=1))
            time.sleep(5)  # what only helped to start has ended
            memory.append(processes.megabytes(pid))
            counts.append(len(list(processes.tree(pid))))
        used = processes.cpu_seconds(pid)
        length = max(30.0, seconds)
        time.sleep(length)
        idle = (processes.cpu_seconds(pid) - used) / length / (1 + FURTHER) * 100
    return [
        report.absolute(SECTION, "warm driver: `apply` until the first row", "s", statistics.median(delays), 5),
        report.absolute(SECTION, "a further pipeline: memory", "MB", (memory[-1] - memory[0]) / FURTHER, 150),
        report.absolute(SECTION, "a further pipeline: processes", "", (counts[-1] - counts[0]) / FURTHER, 2),
        report.absolute(SECTION, "an idle pipeline, trigger 1 second", "% of a core", idle, 2),
    ]


@contextlib.contextmanager
def _runner(target: Target, folder: Path) -> Iterator[int]:
    command = [str(PENSTOCK), "pipeline", "runner", "-b", target.bootstrap]
    command += ["--state-dir", str(folder / "runner")]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def _until_first_row(target: Target, name: str, *, seconds: int) -> float:
    """A new pipeline is applied; how long until its first row is in its target."""
    from penstock.client.sync import SyncClient
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.spec import from_data

    out = f"{name}-{uuid.uuid4().hex[:6]}"
    spec = {**_copying(out, _filled(target, 1), out), "trigger": {"interval": f"{seconds} second"}}
    with SyncClient(target.bootstrap) as client:
        create(target, out)
        began = time.perf_counter()
        PipelineStore(client).apply(from_data(spec))
        _wait_for(lambda: _ends(target, out) > 0)
        return time.perf_counter() - began


def _ends(target: Target, topic: str) -> int:
    from penstock.client.records import LATEST
    from penstock.client.sync import SyncClient

    with SyncClient(target.bootstrap) as client:
        wanted = {(topic, index): LATEST for index in client.metadata([topic]).topics[topic].partitions}
        return sum(answer.offset for answer in client.list_offsets(wanted, read_committed=True).values())


def _wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError("a pipeline did not do what is measured")
        time.sleep(0.05)


# --- what runs ---


def _copying(name: str, source: str, target: str) -> dict[str, Any]:
    return {
        "name": name,
        "sources": {"o": {"topic": source, "format": {"type": "json", "schema": "id INT"}}},
        "views": {"v": "SELECT id FROM o WHERE id >= 0"},
        "sinks": {"out": {"from": "v", "topic": target, "key": "id"}},
    }


def _filled(target: Target, count: int) -> str:
    from confluent_kafka import Producer

    topic = f"in-{uuid.uuid4().hex[:6]}"
    create(target, topic)
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(count):
        producer.produce(topic, json.dumps({"id": number}).encode())
    producer.flush(60)
    return topic


def _stand_up() -> contextlib.AbstractContextManager[Target]:
    return penstock_broker({"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"})


STAGES = [Stage({"cold": cold, "warm": warm, "latency": latency, "throughput": throughput}, _stand_up)]
