"""Which fault comes next, chosen by a seed: one or two at once, short or longer than every time-out, each recorded."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from penstock.testing.chaos import clocks, disk_faults, network_faults, process_faults
from penstock.testing.chaos.damage import Damage, able_brokers
from penstock.testing.chaos.hosts import Hosts
from penstock.testing.chaos.silences import Incident, is_machine_busy

Fault = Callable[[Hosts, random.Random, Callable[[str], None]], Damage]

SHORT_SECONDS = (0.5, 12.0)
LONG_SECONDS = (25.0, 40.0)
"""Longer than session, heartbeat, lag and request time-outs."""
LONG_SHARE = 0.1
TWO_AT_ONCE_SHARE = 0.2

PROCESSES: tuple[tuple[int, str, Fault], ...] = (
    (4, "kill -9 of a broker", process_faults.kill_broker),
    (2, "kill -9 of two brokers", process_faults.kill_two),
    (2, "kill -9 of the controller", process_faults.kill_controller),
    (3, "a broker stands still (SIGSTOP)", process_faults.freeze_broker),
    (2, "the controller stands still", process_faults.freeze_controller),
    (2, "the ZooKeeper leader is killed", process_faults.kill_zookeeper_leader),
    (1, "the ZooKeeper leader stands still", process_faults.freeze_zookeeper_leader),
    (1, "ZooKeeper stands still", process_faults.freeze_all_zookeepers),
    (2, "rolling restart", process_faults.rolling_restart),
    (2, "slow disk", disk_faults.slow_down),
    (1, "a disk is lost", disk_faults.lose),
    (2, "power loss", disk_faults.lose_power),
)
NETWORK: tuple[tuple[int, str, Fault], ...] = (
    (2, "two hosts are cut", network_faults.cut),
    (2, "two hosts are cut one way", network_faults.cut_one_way),
    (2, "a host is isolated", network_faults.isolate),
    (2, "a broker is cut from the controller", network_faults.cut_from_controller),
    (2, "a broker is cut from the controller one way", network_faults.cut_one_way_from_controller),
)
CLOCKS: tuple[tuple[int, str, Fault], ...] = (
    (1, "clock step", clocks.step_all),
    (1, "clock step on one host", clocks.step_one),
)


class Faults:
    def __init__(
        self,
        hosts: Hosts,
        seed: int,
        say: Callable[[str], None],
        without: Sequence[str] = (),
        only: str | None = None,
    ) -> None:
        self.hosts = hosts
        self.random = random.Random(seed)
        self.say = say
        self.count: dict[str, int] = {}
        self.incidents: list[Incident] = []
        self.skipped: list[str] = []
        faults = list(PROCESSES)
        if hosts.network.sandboxed:
            faults += NETWORK
        else:
            self.skipped.append("network cuts: no namespaces here")
        if hosts.small_disk:
            faults.append((2, "disk full", disk_faults.fill))
        else:
            self.skipped.append("disk full: no small file system can be mounted here")
        if clocks.faketime_library() is not None:
            faults += CLOCKS
        else:
            self.skipped.append("clock step: libfaketime is not installed")
        known = {name for _, name, _ in faults}
        if unknown := {*without, *([only] if only else [])} - known:
            raise ValueError(f"no such fault here: {sorted(unknown)}; there are {sorted(known)}")
        self._faults = [fault for fault in faults if fault[1] not in without and only in (None, fault[1])]
        self.skipped += [f"{name}: left out by request" for name in without]

    def one(self) -> None:
        """One fault, or two at once, from the first thing broken to the last one whole."""
        count = 2 if self.random.random() < TWO_AT_ONCE_SHARE and len(self._faults) > 1 else 1
        long = self.random.random() < LONG_SHARE
        began, was_busy = time.monotonic(), is_machine_busy()
        names: list[str] = []
        damages: list[Damage] = []
        for name, fault in self._chosen(count):
            if names:
                self.pause(0.0, 3.0)
            self.say(name)
            names.append(name)
            self.count[name] = self.count.get(name, 0) + 1
            damages.append(fault(self.hosts, self.random, self.say))
        if not all(damage.is_over for damage in damages):
            self.pause(*(LONG_SECONDS if long else SHORT_SECONDS))
        self.random.shuffle(damages)
        for damage in damages:
            damage.heal()
        live = able_brokers(self.hosts.brokers, damages)
        is_busy = was_busy or is_machine_busy()
        told = " and ".join(names) + (", for long" if long else "")
        self.incidents.append(Incident(told, began, time.monotonic(), live, is_busy))
        if count == 2:
            self.count["two at once"] = self.count.get("two at once", 0) + 1
        if long:
            self.count["longer than every time-out"] = self.count.get("longer than every time-out", 0) + 1

    def _chosen(self, count: int) -> list[tuple[str, Fault]]:
        """Different ones: two faults of one kind would heal each other."""
        left = list(self._faults)
        chosen = []
        for _ in range(count):
            fault = self.random.choices(left, [weight for weight, _, _ in left])[0]
            left = [other for other in left if _kind(other[1]) != _kind(fault[1])]
            chosen.append((fault[1], fault[2]))
            if not left:
                break
        return chosen

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.random.uniform(low, high))


def _kind(name: str) -> str:
    """What a fault works on: two that take the same process down and up, or the same routes, are not mixed."""
    if "ZooKeeper" in name:
        return "ZooKeeper"
    if "clock" in name:
        return "clock"
    if any(name == network for _, network, _ in NETWORK):
        return "network"
    return "disk" if name in ("slow disk", "disk full") else "broker"
