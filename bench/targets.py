"""The two brokers under measurement, each started fresh: what they cost (CPU, memory) is read from /proc."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import stalls
from penstock.testing import peers
from penstock.testing.ports import free_port


@dataclass
class Target:
    name: str
    ports: list[int]
    pids: list[int]
    start_seconds: float = 0.0
    folder: Path = field(default_factory=Path)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def cpu_seconds(self) -> float:
        return sum(peers.process_cpu_seconds(pid) for pid in self.pids)

    def resident_megabytes(self) -> float:
        return sum(peers.process_resident_bytes(pid) for pid in self.pids) / 1e6


@contextlib.contextmanager
def penstock_broker(
    settings: dict[str, str] | None = None,
    folder: Path | None = None,
    tree: Path | None = None,
    watched: bool = True,
) -> Iterator[Target]:
    """One Penstock broker process with the embedded store; `tree`: of the code that is checked out there.

    `watched`: it notes how long its event loop stands still (another tree may not know how).
    """
    owned = folder is None
    data = folder or Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    port = free_port()
    wanted = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(data), **(settings or {})}
    module = stalls.command() if watched and tree is None else ["-m", "penstock.broker"]
    command = [sys.executable, *module]
    for name, value in wanted.items():
        command += ["--set", f"{name}={value}"]
    # A broker is installed once and started often: it finds its compiled modules, whatever this shell is set to.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=tree
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready"):
            raise RuntimeError(f"the broker did not come up: {line!r} {' '.join(command)}")
        yield Target("penstock", [port], [process.pid], time.perf_counter() - began, data)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if owned:
            shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def kafka_broker(nodes: int = 1, settings: dict[str, str] | None = None) -> Iterator[Target]:
    began = time.perf_counter()
    with peers.apache_kafka(nodes, settings=settings) as kafka:
        pids = [process.pid for process in kafka.processes]
        yield Target("kafka", kafka.ports, pids, time.perf_counter() - began, kafka.folder)
