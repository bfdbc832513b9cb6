"""ZooKeeper and brokers as processes on this machine: started, killed, started again, and a ZooKeeper that vanishes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster import local
from penstock.testing.ports import free_port, free_ports

pytestmark = pytest.mark.cluster
WAIT_SECONDS = 90
SESSION_MS = 3000


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[local.LocalCluster]:
    settings = {"zookeeper.session.timeout.ms": str(SESSION_MS), "replica.lag.time.max.ms": "5000"}
    running = local.start(tmp_path / "cluster", 3, free_ports(3), free_port(), settings)
    yield running
    local.stop(running.data_dir)


def pid_of(cluster: local.LocalCluster, name: str) -> int:
    (found,) = [row.pid for row in local.status(cluster.data_dir) if row.name == name]
    assert found is not None
    return found


def isr_sizes(admin: AdminClient, topic: str) -> list[int]:
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions
    except Exception:
        return []
    return [len(p.isrs) for p in found.values() if p.leader >= 0]


def deliver(producer: Producer, topic: str, numbers: range) -> None:
    failures: list[Any] = []
    for number in numbers:
        producer.produce(topic, str(number).encode(), on_delivery=lambda e, _: failures.append(e) if e else None)
    assert producer.flush(WAIT_SECONDS) == 0 and failures == []


@pytest.mark.slow
def test_a_cluster_of_processes_survives_kill_and_a_vanished_zookeeper(cluster: local.LocalCluster) -> None:
    rows = local.status(cluster.data_dir)
    assert [row.name for row in rows] == ["zookeeper", "broker-1", "broker-2", "broker-3"]
    assert all(row.running for row in rows)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    admin.create_topics([NewTopic("t", 6, 3, config={"min.insync.replicas": "2"})])["t"].result(WAIT_SECONDS)
    deliver(producer, "t", range(100))

    controller = admin.list_topics(timeout=10).controller_id
    os.kill(pid_of(cluster, f"broker-{controller}"), signal.SIGKILL)
    deliver(producer, "t", range(100, 200))
    eventually(lambda: isr_sizes(admin, "t") == [2] * 6, "two replicas are in sync and lead")
    eventually(lambda: admin.list_topics(timeout=10).controller_id != controller, "another controller")

    again = local.start(cluster.data_dir, 3, cluster.base_port, cluster.zookeeper_port, cluster.settings)
    assert again.bootstrap == cluster.bootstrap
    eventually(lambda: isr_sizes(admin, "t") == [3] * 6, "the killed broker has caught up")

    os.kill(pid_of(cluster, "zookeeper"), signal.SIGKILL)
    time.sleep(SESSION_MS / 1000 * 2)  # the outage itself: longer than the sessions of the brokers
    deliver(producer, "t", range(200, 300))
    local.start(cluster.data_dir, 3, cluster.base_port, cluster.zookeeper_port, cluster.settings)

    def created() -> bool:
        future = admin.create_topics([NewTopic("after", 1, 3)], request_timeout=10)["after"]
        try:
            future.result(20)
        except Exception as error:
            return "already exists" in str(error)
        return True

    eventually(created, "the cluster works again after ZooKeeper came back")
    eventually(lambda: isr_sizes(admin, "t") == [3] * 6, "all replicas are in sync again")
    deliver(producer, "t", range(300, 400))


def test_what_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(local.LocalClusterError, match="at least one"):
        local.start(tmp_path, 0)
    with pytest.raises(local.LocalClusterError, match="no cluster"):
        local.status(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(local.LocalClusterError, match="is taken"):
            local.start(tmp_path, 1, taken.getsockname()[1], free_port())


def test_a_pid_that_another_program_got_is_not_ours(tmp_path: Path) -> None:
    cluster = local.LocalCluster(tmp_path, 1, 1, 2)
    cluster.save()
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "pid").write_text(f"{os.getpid()} 12345\n")
    assert local.stop(tmp_path) == []


FIRST_THREAD_GONE = """
import ctypes, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_until_the_last_of_its_threads_is_gone() -> None:
    """A killed broker may still hold its port while its first thread is a zombie already."""
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_GONE], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert local._is_alive(process.pid)
        process.stdin.close()
        process.wait()
        assert not local._is_alive(process.pid)
