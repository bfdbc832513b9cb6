"""A whole cluster on this machine: ZooKeeper and N brokers as processes, for development and tests.

State is a folder: `cluster.json` says what should run, each process has a pid file and a log. `start` returns when
all brokers serve; `stop` ends them in order (brokers first, so that they can leave in peace); `status` only looks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.cluster.zookeeper_process import ZooKeeperProcess, is_serving

BROKER_MODULE = ("-m", "penstock.broker")
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOG_BYTES = 16 * 1024 * 1024
"""A process log above this is put aside at the next start, in place of the one put aside before."""
CLUSTER_FILE = "cluster.json"


class LocalClusterError(Exception):
    """The cluster cannot be started or stopped; the message says why."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """One process of the cluster and whether it runs."""

    name: str
    pid: int | None
    address: str
    running: bool
    log: str


@dataclass(frozen=True, slots=True)
class LocalCluster:
    data_dir: Path
    broker_count: int
    base_port: int
    zookeeper_port: int
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.broker_port(n)}" for n in self.broker_ids)

    @property
    def broker_ids(self) -> range:
        return range(1, self.broker_count + 1)

    def broker_port(self, broker_id: int) -> int:
        return self.base_port + broker_id - 1

    def folder(self, name: str) -> Path:
        return self.data_dir / name

    def save(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        body = asdict(self) | {"data_dir": str(self.data_dir), "settings": dict(self.settings)}
        (self.data_dir / CLUSTER_FILE).write_text(json.dumps(body, indent=2) + "\n")

    @classmethod
    def load(cls, data_dir: Path) -> LocalCluster:
        path = data_dir / CLUSTER_FILE
        try:
            body = json.loads(path.read_text())
        except FileNotFoundError:
            raise LocalClusterError(f"there is no cluster in {data_dir}: start one first") from None
        except ValueError as error:
            raise LocalClusterError(f"{path} is damaged: {error}") from error
        return cls(data_dir, body["broker_count"], body["base_port"], body["zookeeper_port"], body["settings"])


def start(
    data_dir: Path,
    brokers: int = 3,
    base_port: int = 9092,
    zookeeper_port: int | None = None,
    settings: Mapping[str, str] | None = None,
    broker_module: Sequence[str] = BROKER_MODULE,
) -> LocalCluster:
    """Start what does not run yet and wait until every broker serves; `broker_module` is what Python runs for each."""
    if brokers < 1:
        raise LocalClusterError("a cluster has at least one broker")
    wanted_port = base_port + 1000 if zookeeper_port is None else zookeeper_port
    cluster = LocalCluster(data_dir.resolve(), brokers, base_port, wanted_port, dict(settings or {}))
    _check_ports(cluster)
    cluster.save()
    try:
        _start_zookeeper(cluster)
        for broker_id in cluster.broker_ids:
            _start_broker(cluster, broker_id, broker_module)
        deadline = time.monotonic() + START_SECONDS
        for broker_id in cluster.broker_ids:
            _wait_for_broker(cluster, broker_id, deadline)
    except BaseException:
        stop(cluster.data_dir)
        raise
    return cluster


def stop(data_dir: Path) -> list[str]:
    """Stop everything that runs; returns the names of what was stopped."""
    cluster = LocalCluster.load(data_dir.resolve())
    names = [f"broker-{n}" for n in reversed(cluster.broker_ids)]
    stopped = [name for name in names if _stop_process(cluster.folder(name))]
    if _stop_process(cluster.folder("zookeeper")):
        stopped.append("zookeeper")
    return stopped


def status(data_dir: Path) -> list[LocalProcess]:
    cluster = LocalCluster.load(data_dir.resolve())
    rows = []
    places = [("zookeeper", cluster.zookeeper_port)]
    places += [(f"broker-{n}", cluster.broker_port(n)) for n in cluster.broker_ids]
    for name, port in places:
        pid = _running_pid(cluster.folder(name))
        serving = pid is not None and (
            is_serving("127.0.0.1", port) if name == "zookeeper" else _accepts("127.0.0.1", port)
        )
        rows.append(LocalProcess(name, pid, f"127.0.0.1:{port}", serving, str(_log(cluster.folder(name)))))
    return rows


def _check_ports(cluster: LocalCluster) -> None:
    for name, port in [
        ("zookeeper", cluster.zookeeper_port),
        *((f"broker-{n}", cluster.broker_port(n)) for n in cluster.broker_ids),
    ]:
        if _running_pid(cluster.folder(name)) is None and _accepts("127.0.0.1", port):
            raise LocalClusterError(f"port {port} is taken by another program: choose another base port")


def _start_zookeeper(cluster: LocalCluster) -> None:
    folder = cluster.folder("zookeeper")
    if _running_pid(folder) is not None:
        return
    server = ZooKeeperProcess(folder, cluster.zookeeper_port)
    _spawn(folder, server.command())
    server.wait_until_ready(START_SECONDS)


def _start_broker(cluster: LocalCluster, broker_id: int, module: Sequence[str] = BROKER_MODULE) -> None:
    folder = cluster.folder(f"broker-{broker_id}")
    if _running_pid(folder) is not None:
        return
    given = {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{cluster.broker_port(broker_id)}",
        "log.dirs": str(folder / "data"),
        "zookeeper.connect": f"127.0.0.1:{cluster.zookeeper_port}",
        "zookeeper.session.timeout.ms": "9000",
        "default.replication.factor": str(min(3, cluster.broker_count)),
        "offsets.topic.replication.factor": str(min(3, cluster.broker_count)),
        "transaction.state.log.replication.factor": str(min(3, cluster.broker_count)),
        "transaction.state.log.min.isr": str(min(2, cluster.broker_count)),
        **cluster.settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    _spawn(folder, [sys.executable, *module, "--config", str(properties)])


def _wait_for_broker(cluster: LocalCluster, broker_id: int, deadline: float) -> None:
    folder = cluster.folder(f"broker-{broker_id}")
    while not _says_ready(folder):
        if _running_pid(folder) is None:
            raise LocalClusterError(f"broker {broker_id} stopped at once: {_last_words(folder)}")
        if time.monotonic() > deadline:
            raise LocalClusterError(f"broker {broker_id} is not ready after {START_SECONDS:g} s; see {_log(folder)}")
        time.sleep(0.05)


def _spawn(folder: Path, command: list[str]) -> None:
    """In a session of its own: the cluster outlives the command that started it. What it said in earlier lives stays
    in its log, up to a bound."""
    folder.mkdir(parents=True, exist_ok=True)
    if _log_size(folder) > LOG_BYTES:
        _log(folder).replace(folder / "process.log.1")
    (folder / "log_start").write_text(str(_log_size(folder)))
    with _log(folder).open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    (folder / "pid").write_text(f"{process.pid} {_birth(process.pid)}\n")


def _stop_process(folder: Path) -> bool:
    pid = _running_pid(folder)
    with contextlib.suppress(FileNotFoundError):
        (folder / "pid").unlink()
    if pid is None:
        return False
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _is_alive(pid):
        if time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.02)
    return True


def _running_pid(folder: Path) -> int | None:
    """The pid on file if that very process still runs: a number that another program got meanwhile does not count."""
    try:
        pid_text, _, birth = (folder / "pid").read_text().partition(" ")
        pid = int(pid_text)
    except (FileNotFoundError, ValueError):
        return None
    return pid if _is_alive(pid) and _birth(pid) == birth.strip() else None


def _birth(pid: int) -> str:
    """When the process was started, in clock ticks since boot; tells processes with one number apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # our own child must not stay a zombie
    # One that nobody has asked for its exit code yet is dead. One whose first thread is dead is not: a killed process
    # keeps its ports until the last of its threads is gone.
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if task.read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
                return True
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _log(folder: Path) -> Path:
    return folder / "process.log"


def _log_size(folder: Path) -> int:
    return _log(folder).stat().st_size if _log(folder).exists() else 0


def _words_of_this_life(folder: Path) -> str:
    try:
        start = int((folder / "log_start").read_text())
        return _log(folder).read_bytes()[start:].decode(errors="replace")
    except (FileNotFoundError, ValueError):
        return ""


def _says_ready(folder: Path) -> bool:
    return any(line.startswith("ready:") for line in _words_of_this_life(folder).splitlines())


def _last_words(folder: Path) -> str:
    return _words_of_this_life(folder)[-400:].strip() or "no log"


def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=0.5):
        return True
    return False
