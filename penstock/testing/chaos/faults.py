"""Faults on real processes, chosen by a seed. Each breaks something, waits, and makes it whole again."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.testing.chaos.hosts import READY_SECONDS, BrokerHost, Hosts
from penstock.testing.chaos.silences import Incident, is_machine_busy

_MISSING = {"kill -9 of two brokers": 2, "the ZooKeeper leader is killed": 0, "clock step": 0}
"""How many brokers do not work during a fault, where that is not one."""


def faketime_library() -> str | None:
    """libfaketime of the system or of the PyPI package, if there is one."""
    spec = importlib.util.find_spec("libfaketime")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.rglob("libfaketime*.so.1"))
        if found:
            return str(found[0])
    for folder in ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"):
        candidate = Path(folder) / "libfaketime.so.1"
        if candidate.exists():
            return str(candidate)
    return ctypes.util.find_library("faketime")


def faketime_environment(folder: Path) -> dict[str, str]:
    """Processes started with it take the offset of their wall clock from a file, which a fault rewrites."""
    library = faketime_library()
    if library is None:
        return {}
    offset = folder / "clock-offset"
    offset.write_text("+0s\n")
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


class Faults:
    def __init__(
        self,
        hosts: Hosts,
        seed: int,
        say: Callable[[str], None],
        clock_file: Path | None,
        without: Sequence[str] = (),
        only: str | None = None,
    ) -> None:
        self.hosts = hosts
        self.random = random.Random(seed)
        self.say = say
        self.clock_file = clock_file
        self.count: dict[str, int] = {}
        self.incidents: list[Incident] = []
        self.skipped: list[str] = []
        self._faults: list[tuple[int, str, Callable[[], None]]] = [
            (4, "kill -9 of a broker", self._kill_broker),
            (2, "kill -9 of two brokers", self._kill_two),
            (3, "a broker stands still (SIGSTOP)", self._stop_broker),
            (2, "the ZooKeeper leader is killed", self._kill_zookeeper_leader),
            (2, "rolling restart", self._rolling_restart),
        ]
        if hosts.network.sandboxed:
            self._faults += [(3, "two hosts are cut", self._cut), (3, "a host is isolated", self._isolate)]
        else:
            self.skipped.append("network cuts: no namespaces here")
        if hosts.small_disk:
            self._faults.append((2, "disk full", self._fill_disk))
        else:
            self.skipped.append("disk full: no small file system can be mounted here")
        if clock_file is not None:
            self._faults.append((2, "clock step", self._step_clock))
        else:
            self.skipped.append("clock step: libfaketime is not installed")
        self._faults = [fault for fault in self._faults if fault[1] not in without and only in (None, fault[1])]
        self.skipped += [f"{name}: left out by request" for name in without]

    def one(self) -> None:
        weights = [weight for weight, _, _ in self._faults]
        _, name, fault = self.random.choices(self._faults, weights)[0]
        self.count[name] = self.count.get(name, 0) + 1
        self.say(name)
        began, was_busy = time.monotonic(), is_machine_busy()
        fault()
        live = len(self.hosts.brokers) - _MISSING.get(name, 1)
        self.incidents.append(Incident(name, began, time.monotonic(), live, was_busy or is_machine_busy()))

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.random.uniform(low, high))

    def _some(self) -> BrokerHost:
        return self.hosts.brokers[self.random.choice(sorted(self.hosts.brokers))]

    def _kill_broker(self) -> None:
        broker = self._some()
        self.say(f"  broker {broker.number} is killed")
        broker.kill()
        self.pause(0.1, 8.0)
        broker.start()
        broker.wait_until_ready()

    def _kill_two(self) -> None:
        victims = self.random.sample(sorted(self.hosts.brokers), 2)
        self.say(f"  brokers {victims} are killed")
        for number in victims:
            self.hosts.brokers[number].kill()
        self.pause(0.1, 6.0)
        for number in victims:
            self.hosts.brokers[number].start()
        for number in victims:
            self.hosts.brokers[number].wait_until_ready()

    def _stop_broker(self) -> None:
        broker = self._some()
        self.say(f"  broker {broker.number} stands still")
        broker.signal(signal.SIGSTOP)
        self.pause(0.5, 12.0)
        broker.signal(signal.SIGCONT)

    def _kill_zookeeper_leader(self) -> None:
        leader = next((n for n in sorted(self.hosts.zookeepers) if self._leads(n)), 1)
        self.say(f"  ZooKeeper {leader} is killed")
        server = self.hosts.zookeepers[leader]
        server.stop(kill=True)
        self.pause(1.0, 8.0)
        server.start(wait=False)
        server.wait_until_ready(READY_SECONDS)

    def _leads(self, number: int) -> bool:
        import socket

        server = self.hosts.zookeepers[number]
        try:
            with socket.create_connection((server.host, server.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode: leader" in answer

    def _rolling_restart(self) -> None:
        for broker in self.hosts.brokers.values():
            if not broker.stop():
                self.say(f"  broker {broker.number} did not stop in peace")
            broker.start()
            broker.wait_until_ready()
            self.pause(0.2, 1.0)

    def _cut(self) -> None:
        one, other = self.random.sample(sorted(self.hosts.brokers), 2)
        self.say(f"  hosts {one} and {other} are cut")
        self.hosts.network.cut(one, other)
        self.pause(1.0, 12.0)
        self.hosts.network.heal()

    def _isolate(self) -> None:
        host = self._some().number
        self.say(f"  host {host} is isolated")
        self.hosts.network.isolate(host)
        self.pause(1.0, 12.0)
        self.hosts.network.heal()

    def _fill_disk(self) -> None:
        """Only broker 3 has a small disk of its own."""
        ballast = self.hosts.brokers[3].data / "ballast"
        self.say("  the disk of broker 3 is full")
        try:
            with ballast.open("wb") as file:
                while True:
                    os.write(file.fileno(), bytes(1024 * 1024))
        except OSError:
            pass
        self.pause(1.0, 8.0)
        ballast.unlink(missing_ok=True)

    def _step_clock(self) -> None:
        assert self.clock_file is not None
        seconds = self.random.choice((-3600, -60, 60, 3600))
        self.say(f"  wall clocks are stepped by {seconds} s")
        self.clock_file.write_text(f"{seconds:+d}s\n")
        self.pause(2.0, 8.0)
        self.clock_file.write_text("+0s\n")
