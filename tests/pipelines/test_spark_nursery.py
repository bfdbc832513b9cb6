"""Spark's Python processes come from a nursery: warm where there is one, cold where not, and gone with the driver."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_HOLDER = """
import sys
from penstock.pipelines.spark.nursery import open_nursery
print(open_nursery(), flush=True)
sys.stdin.read()
"""


class Held:
    """A process that holds a nursery, as a driver does."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.python = self.process.stdout.readline().strip()

    @property
    def nursery(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.process.kill()
    made.process.wait()


def daemon(python: str) -> subprocess.Popen[bytes]:
    """As the JVM starts it: the first four bytes that it says are the port where it forks workers."""
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "s", "SPARK_REUSE_WORKER": "1"}
    command = [python, "-m", "pyspark.daemon", "pyspark.worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def port_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return int(struct.unpack("!i", process.stdout.read(4))[0])


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_ended(*pids: int) -> None:
    while not all(ended(pid) for pid in pids):
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_daemon_is_forked_and_ends_as_spark_ends_it(held: Held) -> None:
    first, second = daemon(held.python), daemon(held.python)
    assert port_of(first) != port_of(second)
    forked = children_of(held.nursery)
    assert len(forked) == 2
    # Spark closes its input,
    assert first.stdin is not None
    first.stdin.close()
    first.wait()
    # or kills the process that it started.
    second.kill()
    second.wait()
    wait_until_ended(*forked)


def test_a_runner_of_a_source_is_one_process_and_ends_with_its_connection(held: Held) -> None:
    with socket.create_server(("127.0.0.1", 0)) as spark:
        port = spark.getsockname()[1]
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_PORT": str(port), "PYTHON_WORKER_FACTORY_SECRET": "s"}
        command = [held.python, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
        assert subprocess.run(command, env=environment).returncode == 0
        connection, _ = spark.accept()
        forked = children_of(held.nursery)
        assert len(forked) == 1
        connection.close()
        wait_until_ended(*forked)


def test_anything_else_is_asked_of_python_itself(held: Held) -> None:
    asked = subprocess.run([held.python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
    assert asked.stdout.strip() == sys.executable


def test_without_a_nursery_python_itself_starts(held: Held) -> None:
    gone = held.nursery
    os.kill(gone, signal.SIGKILL)
    wait_until_ended(gone)
    cold = daemon(held.python)
    assert port_of(cold) > 0
    assert cold.stdin is not None
    cold.stdin.close()
    cold.wait()


def test_a_killed_driver_leaves_nothing_behind(held: Held) -> None:
    started = daemon(held.python)
    port_of(started)
    nursery, folder = held.nursery, Path(held.python).parent
    forked = children_of(nursery)
    held.process.kill()
    held.process.wait()
    assert started.stdin is not None
    started.stdin.close()  # the JVM goes with its driver
    wait_until_ended(nursery, *forked)
    assert not folder.exists()
