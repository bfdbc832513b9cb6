"""`python -m penstock.testing.chaos.cut_story both|to-leader|to-controller|isolated|isolated-with-zookeeper`.

A leader is cut from the controller: both keep their sessions with ZooKeeper and whoever else they speak with. Or its
whole host is cut off, with the ZooKeeper server there, which follows or leads the other two. While the cut lasts a
producer of that leader's partition must be acknowledged again, and after it everything must be whole.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.chaos.hosts import SANDBOX_VARIABLE, Hosts, enter_sandbox, why_no_sandbox
from penstock.testing.chaos.process_faults import zookeeper_leader
from penstock.testing.chaos.run import SETTINGS
from penstock.testing.chaos.workload import COMMON

TOPIC = "cut"
SKIPPED = 77
PATIENCE_SECONDS = 120.0


def main(arguments: list[str]) -> int:
    if not os.environ.get(SANDBOX_VARIABLE):
        if reason := why_no_sandbox():
            print(reason)
            return SKIPPED
        enter_sandbox(arguments, "penstock.testing.chaos.cut_story")
    with tempfile.TemporaryDirectory(prefix="cut-", ignore_cleanup_errors=True) as folder:
        hosts = Hosts(Path(folder), True, SETTINGS)
        try:
            hosts.start()
            return tell(hosts, arguments[0])
        finally:
            hosts.kill()


def tell(hosts: Hosts, way: str) -> int:
    controller = hosts.controller()
    assert controller is not None
    leader = chosen_leader(hosts, way, controller)
    others = [number for number in sorted(hosts.brokers) if number != leader]
    wanted = NewTopic(TOPIC, 1, replica_assignment=[[leader, *others]], config={"min.insync.replicas": "2"})
    admin = AdminClient(hosts.client_settings)
    admin.create_topics([wanted])[TOPIC].result(30)
    producer = Producer({**COMMON, **hosts.client_settings, "acks": "all", "enable.idempotence": True})
    acknowledged(producer, 50)
    if way in ("both", "to-leader"):
        hosts.network.cut_port(controller, leader, hosts.brokers[leader].port)
    if way in ("both", "to-controller"):
        hosts.network.cut_port(leader, controller, hosts.brokers[controller].port)
    if way.startswith("isolated"):
        hosts.network.isolate(leader)
    began = time.monotonic()
    acknowledged(producer, 50)
    print(f"controller {controller}, leader {leader}, cut {way}: acknowledged after {time.monotonic() - began:.1f} s")
    hosts.network.heal()
    while not hosts.in_sync():
        if time.monotonic() - began > PATIENCE_SECONDS:
            print("not in sync after the cut was healed")
            return 1
        time.sleep(0.1)
    print("in sync again")
    return 0


def chosen_leader(hosts: Hosts, way: str, controller: int) -> int:
    first = zookeeper_leader(hosts)
    if way == "isolated-with-zookeeper":
        return first
    spared = {controller, first} if way == "isolated" else {controller}
    return next(number for number in sorted(hosts.brokers) if number not in spared)


def acknowledged(producer: Producer, count: int) -> None:
    """Whoever waits longer than this waits for the cut to end."""
    missing = set(range(count))

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            missing.discard(int(message.value()))

    for number in range(count):
        producer.produce(TOPIC, str(number).encode(), partition=0, on_delivery=delivered)
    producer.flush(PATIENCE_SECONDS)
    if missing:
        raise TimeoutError(f"{len(missing)} of {count} records are not acknowledged while the cut lasts")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
