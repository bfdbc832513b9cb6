"""`penstock broker --cores 2`: two brokers of one file, started, watched and stopped as one, on a real ZooKeeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.operate.errors import ExitCode
from penstock.testing.ports import free_ports

pytestmark = pytest.mark.cluster
WAIT_SECONDS = 60


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Machine:
    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.file = folder / "server.properties"
        self.file.write_text(
            f"broker.id=5\nlisteners=PLAINTEXT://127.0.0.1:{self.port}\nlog.dirs={folder}/log\n"
            f"zookeeper.connect={zookeeper.connect}/cores\nzookeeper.session.timeout.ms=6000\n"
            "offsets.topic.replication.factor=1\npenstock.machine=under-the-desk\n"
        )
        self.process = subprocess.Popen(self.command(2), stdout=subprocess.PIPE, text=True)

    def command(self, cores: int) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", "broker", "--config", str(self.file), "--cores", str(cores)]

    def say(self, beginning: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.strip()
        raise AssertionError(f"ended without saying {beginning!r}")

    def children(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def brokers(self, core: int = 0) -> set[int]:
        """Who is in the cluster, as one of the two tells it."""
        asked = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port + core}"})
        return set(asked.list_topics(timeout=WAIT_SECONDS).brokers)


@pytest.fixture
def machine(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Machine]:
    machine = Machine(tmp_path, zookeeper)
    yield machine
    if machine.process.poll() is None:
        machine.process.kill()  # its brokers see the end of their pipe
    machine.process.wait()
    assert machine.process.stdout is not None
    machine.process.stdout.close()


def test_two_brokers_live_and_die_as_one(machine: Machine, tmp_path: Path) -> None:
    ready = machine.say("ready:")
    assert ready == f"ready: PLAINTEXT://127.0.0.1:{machine.port}, PLAINTEXT://127.0.0.1:{machine.port + 1}"
    assert machine.brokers() == {5, 6}
    admin = AdminClient({"bootstrap.servers": machine.bootstrap})
    admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(WAIT_SECONDS)
    resource = ConfigResource(ResourceType.BROKER, "6")
    told = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert told["penstock.machine"].value == "under-the-desk"

    # One that dies is started again under its id, with its port and folders, and nothing acknowledged is gone.
    producer = Producer({"bootstrap.servers": machine.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("orders", str(number), partition=number % 4)
    assert producer.flush(WAIT_SECONDS) == 0
    second = machine.children()[1]
    os.kill(second, signal.SIGKILL)
    machine.say("broker 1 ended with code -9")
    eventually(lambda: len(machine.children()) == 2 and second not in machine.children())
    assert machine.brokers(core=1) == {5, 6}
    assert (tmp_path / "log").is_dir() and (tmp_path / "log.core-1").is_dir()

    # The end of the supervisor is the end of its brokers, in peace: no recovery is needed afterwards.
    pids = machine.children()
    machine.process.terminate()
    assert machine.process.wait(WAIT_SECONDS) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "log.core-1" / ".kafka_cleanshutdown").exists()

    fewer = subprocess.run(machine.command(1), capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert fewer.returncode == ExitCode.REFUSED
    assert "broker 1 of this machine holds 4 replicas" in fewer.stderr
