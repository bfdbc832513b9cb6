"""Three hosts (network namespaces on a bridge where allowed, else ports on loopback) and their processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess

BRIDGE_ADDRESS = "10.77.0.254"
SANDBOX_VARIABLE = "PENSTOCK_CHAOS_SANDBOX"
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
READY_SECONDS = 120.0
SMALL_DISK_BYTES = 192 * 1024 * 1024


def why_no_sandbox() -> str:
    """Empty when this machine lets us have namespaces of our own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "there is no unshare or ip command"
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        return "namespaces are not permitted here"
    return ""


def enter_sandbox(arguments: list[str]) -> None:
    """Run this command again in namespaces of its own; never returns."""
    os.environ[SANDBOX_VARIABLE] = "1"
    os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-m", "penstock.testing.chaos", *arguments])


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

    def isolate(self, host: int) -> None:
        _run("ip", "link", "set", f"to{host}", "down")

    def heal(self) -> None:
        if not self.sandboxed:
            return
        for host in self.hosts:
            _run("ip", "link", "set", f"to{host}", "up")
            for other in self.hosts:
                if other != host:
                    subprocess.run(
                        ["ip", "-n", f"host{host}", "route", "del", "blackhole", f"{self.address(other)}/32"],
                        capture_output=True,
                        check=False,
                    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


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
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.environment = environment
        self.data.mkdir(parents=True, exist_ok=True)
        given = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{network.address(number)}:{port}",
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
        command = [sys.executable, "-m", "penstock.broker", "--config", str(self.config)]
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

    def __init__(self, folder: Path, sandboxed: bool, settings: dict[str, str], environment: dict[str, str]) -> None:
        self.network = Network(sandboxed, 3)
        ports = free_ports(12)
        members = [EnsembleMember(n, self.network.address(n), ports[n - 1], ports[n + 2]) for n in (1, 2, 3)]
        self.zookeepers = {
            n: OnHost(n, self.network, folder / f"zookeeper-{n}", ports[n + 5], members) for n in (1, 2, 3)
        }
        connect = ",".join(server.connect for server in self.zookeepers.values())
        self.small_disk = sandboxed and self._mount_small_disk(folder / "broker-3")
        self.brokers = {
            n: BrokerHost(
                n,
                folder / f"broker-{n}",
                self.network,
                ports[n + 8],
                {"zookeeper.connect": connect, **settings},
                environment,
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
        for number, server in self.zookeepers.items():
            if server.process is None or server.process.poll() is not None:
                self.zookeepers[number].start(wait=False)
        for broker in self.brokers.values():
            broker.signal(signal.SIGCONT)
            (broker.data / "ballast").unlink(missing_ok=True)
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
            server.stop(kill=True)


class OnHost(ZooKeeperProcess):
    """A ZooKeeper server in a host's namespace."""

    def __init__(self, number: int, network: Network, folder: Path, port: int, members: list[EnsembleMember]) -> None:
        super().__init__(folder, port, host=network.address(number), server_id=number, ensemble=members)
        self._number = number
        self._network = network

    def command(self) -> list[str]:
        return self._network.command_on(self._number, super().command())
