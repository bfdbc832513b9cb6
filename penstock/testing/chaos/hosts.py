"""Three hosts (network namespaces on a bridge where allowed, else ports on loopback) and their processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess
from penstock.testing.chaos.secured import Secured
from penstock.testing.ports import free_ports

BRIDGE_ADDRESS = "10.77.0.254"
SANDBOX_VARIABLE = "PENSTOCK_CHAOS_SANDBOX"
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
READY_SECONDS = 120.0
SMALL_DISK_BYTES = 192 * 1024 * 1024
BALLAST = "ballast"
CUT_PORT_PREFERENCE = 5
"""Of the routing rules that drop single ports: before all others."""


def why_no_sandbox() -> str:
    """Empty when this machine lets us have namespaces of our own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "there is no unshare or ip command"
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        return "namespaces are not permitted here"
    return ""


def enter_sandbox(arguments: list[str], module: str = "penstock.testing.chaos") -> None:
    """Run this module again in namespaces of its own; never returns."""
    os.environ[SANDBOX_VARIABLE] = "1"
    os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-m", module, *arguments])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Network:
    """Links between the hosts. Without a sandbox everything is on loopback and nothing can be cut."""

    def __init__(self, sandboxed: bool, count: int) -> None:
        self.sandboxed = sandboxed
        self.hosts = range(1, count + 1)
        if not sandboxed:
            return
        _run("ip", "link", "set", "lo", "up")
        _run("mount", "-t", "tmpfs", "none", "/var/run")
        _run("ip", "link", "add", "chaos0", "type", "bridge")
        _run("ip", "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", "chaos0")
        _run("ip", "link", "set", "chaos0", "up")
        for host in self.hosts:
            name = f"host{host}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"to{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"to{host}", "master", "chaos0", "up")
            _run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")

    def address(self, host: int) -> str:
        return f"10.77.0.{host}" if self.sandboxed else "127.0.0.1"

    def command_on(self, host: int, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", f"host{host}", *command] if self.sandboxed else command

    def cut(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            _run("ip", "-n", f"host{here}", "route", "replace", "blackhole", f"{self.address(there)}/32")

    def cut_one_way(self, here: int, there: int) -> None:
        """Nothing gets from here to there, answers included."""
        _run("ip", "-n", f"host{here}", "route", "replace", "blackhole", f"{self.address(there)}/32")

    def cut_port(self, here: int, there: int, port: int) -> None:
        """From here nobody gets to that port there; other ports, and answers to those who call from there, do."""
        rule = ["rule", "add", "pref", str(CUT_PORT_PREFERENCE), "to", f"{self.address(there)}/32"]
        _run("ip", "-n", f"host{here}", *rule, "ipproto", "tcp", "dport", str(port), "blackhole")

    def isolate(self, host: int) -> None:
        _run("ip", "link", "set", f"to{host}", "down")

    def heal(self) -> None:
        if not self.sandboxed:
            return
        for host in self.hosts:
            _run("ip", "link", "set", f"to{host}", "up")
            ports = ["ip", "-n", f"host{host}", "rule", "del", "pref", str(CUT_PORT_PREFERENCE)]
            while subprocess.run(ports, capture_output=True, check=False).returncode == 0:
                pass
            for other in self.hosts:
                if other != host:
                    subprocess.run(
                        ["ip", "-n", f"host{host}", "route", "del", "blackhole", f"{self.address(other)}/32"],
                        capture_output=True,
                        check=False,
                    )


class BrokerHost:
    """One broker process and its folder."""

    def __init__(
        self,
        number: int,
        folder: Path,
        network: Network,
        port: int,
        settings: dict[str, str],
        environment: dict[str, str],
    ) -> None:
        self.number = number
        self.folder = folder
        self.network = network
        self.port = port
        self.data = folder / "data"
        self.log = folder / "broker.log"
        self.slow_disk = folder / "slow-disk"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.environment = environment
        self.data.mkdir(parents=True, exist_ok=True)
        given = {
            "broker.id": str(number),
            "listeners": f"{settings.get('security.inter.broker.protocol', 'PLAINTEXT')}://{network.address(number)}:{port}",
            "log.dirs": str(self.data),
            **settings,
        }
        self.config = folder / "server.properties"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))

    @property
    def address(self) -> str:
        return f"{self.network.address(self.number)}:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.starts += 1
        module = "penstock.testing.chaos.slow_disk"
        command = [sys.executable, "-m", module, str(self.slow_disk), "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.network.command_on(self.number, command),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while self.log.read_text(errors="replace").count("ready: ") < self.starts:
            if not self.running:
                raise RuntimeError(f"broker {self.number} stopped: {self.log.read_text(errors='replace')[-1500:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"broker {self.number} is not ready after {READY_SECONDS:g} s; see {self.log}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        if self.running and self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> bool:
        """In peace; False if it had to be killed."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.process is None:
            return True
        try:
            self.process.wait(60)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False


class Hosts:
    """The whole cluster."""

    def __init__(
        self,
        folder: Path,
        sandboxed: bool,
        settings: dict[str, str],
        environment: Callable[[Path, int], dict[str, str]] = lambda folder, host: {},
        secure: bool = False,
    ) -> None:
        """`environment` says what the broker of a host finds in its own; `secure` puts locks on every door."""
        self.folder = folder
        self.network = Network(sandboxed, 3)
        addresses = [self.network.address(number) for number in self.network.hosts]
        self.secured = Secured(folder / "secrets", addresses) if secure else None
        first = free_ports(15)
        ports = list(range(first, first + 15))
        members = [EnsembleMember(n, self.network.address(n), ports[n - 1], ports[n + 2]) for n in (1, 2, 3)]
        self.zookeepers = {
            n: OnHost(n, self.network, folder / f"zookeeper-{n}", ports[n + 5], members, self.secured, ports[n + 11])
            for n in (1, 2, 3)
        }
        connect = ",".join(server.broker_connect for server in self.zookeepers.values())
        if self.secured is not None:
            settings = {**settings, **self.secured.broker_settings()}
        self.small_disk = sandboxed and self._mount_small_disk(folder / "broker-3")
        self.brokers = {
            n: BrokerHost(
                n,
                folder / f"broker-{n}",
                self.network,
                ports[n + 8],
                {"zookeeper.connect": connect, **settings},
                environment(folder, n),
            )
            for n in (1, 2, 3)
        }

    @staticmethod
    def _mount_small_disk(folder: Path) -> bool:
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "chaos", str(data)],
            capture_output=True,
            check=False,
        )
        return mounted.returncode == 0

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def controller(self) -> int | None:
        """Whoever the brokers say it is; None if nobody says."""
        try:
            return AdminClient(self.client_settings).list_topics(timeout=3).controller_id or None
        except KafkaException:
            return None

    def in_sync(self) -> bool:
        """Whether every replica has everything."""
        try:
            topics = AdminClient(self.client_settings).list_topics(timeout=3).topics.values()
        except KafkaException:
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions)

    @property
    def client_settings(self) -> dict[str, Any]:
        login = {} if self.secured is None else self.secured.client_settings()
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **login}

    def start(self) -> None:
        for server in self.zookeepers.values():
            server.start(wait=False)
        for server in self.zookeepers.values():
            server.wait_until_ready(READY_SECONDS)
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def heal(self) -> None:
        """Everything broken is made whole."""
        self.network.heal()
        for server in self.zookeepers.values():
            server.signal(signal.SIGCONT)
            if server.process is None or server.process.poll() is not None:
                server.start(wait=False)
        for broker in self.brokers.values():
            broker.signal(signal.SIGCONT)
            (broker.data / BALLAST).unlink(missing_ok=True)
            broker.slow_disk.unlink(missing_ok=True)
        for broker in self.brokers.values():
            if not broker.running:
                broker.start()
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
        for server in self.zookeepers.values():
            server.stop()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for server in self.zookeepers.values():
            server.signal(signal.SIGCONT)
            server.stop(kill=True)


class OnHost(ZooKeeperProcess):
    """A ZooKeeper server in a host's namespace."""

    def __init__(
        self,
        number: int,
        network: Network,
        folder: Path,
        port: int,
        members: list[EnsembleMember],
        secured: Secured | None,
        secure_port: int,
    ) -> None:
        super().__init__(
            folder,
            port,
            host=network.address(number),
            server_id=number,
            ensemble=members,
            properties=None if secured is None else secured.zookeeper_properties(secure_port),
            java_options=() if secured is None else secured.zookeeper_java_options(),
        )
        self.broker_connect = f"{self.host}:{port if secured is None else secure_port}"
        self._number = number
        self._network = network

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def command(self) -> list[str]:
        return self._network.command_on(self._number, super().command())
