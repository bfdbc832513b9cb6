"""The same few records on clusters of more and more partitions: what is subscribed must not cost, only what changes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench import targets
from bench.broker_scenarios import create_topic
from bench.cluster_scenarios import SECTION, penstock_cluster, until_all_led
from bench.report import Row, at_most

ACTIVE_PARTITIONS = 10
RECORDS_PER_SECOND = 200
SETTLING_SECONDS = 4.0


def measure(target: targets.Target, partitions: int, seconds: float) -> dict[str, float]:
    """CPU of all brokers for one record with acks=all, its median time to be acknowledged, and CPU without any load."""
    create_topic(target.port, "active", partitions=ACTIVE_PARTITIONS, replication=3, min_insync_replicas="2")
    rest = partitions - ACTIVE_PARTITIONS
    for number, first in enumerate(range(0, rest, 500)):
        create_topic(target.port, f"idle-{number}", partitions=min(500, rest - first), replication=3)
    until_all_led(target)
    steady_rate(target, SETTLING_SECONDS)
    before = target.cpu_seconds()
    times = steady_rate(target, seconds)
    spent = target.cpu_seconds() - before
    before = target.cpu_seconds()
    time.sleep(seconds)
    idle = (target.cpu_seconds() - before) / seconds * 100
    return {"cpu": spent / len(times) * 1e6, "p50": sorted(times)[len(times) // 2] * 1e3, "idle": idle}


def steady_rate(target: targets.Target, seconds: float) -> list[float]:
    """Seconds from send to acknowledgement of each record."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    times: list[float] = []

    def send(number: int) -> None:
        began = time.perf_counter()

        def acknowledged(error: Any, message: Any) -> None:
            if error is not None:
                raise RuntimeError(f"a record was not acknowledged: {error}")
            times.append(time.perf_counter() - began)

        producer.produce("active", b"x" * 100, partition=number % ACTIVE_PARTITIONS, on_delivery=acknowledged)

    began = time.perf_counter()
    for number in range(int(seconds * RECORDS_PER_SECOND)):
        due = began + number / RECORDS_PER_SECOND
        while True:
            left = due - time.perf_counter()
            producer.poll(max(0.0, left))
            if left <= 0:
                break
        send(number)
    producer.flush(30)
    return times


def rows(seconds: float, small: int = 100, large: int = 1000) -> list[Row]:
    """Ours beside ours: the large cluster against the small one."""
    seen = {}
    for partitions in (small, large):
        with penstock_cluster() as target:
            seen[partitions] = measure(target, partitions, seconds)
    name = f"{RECORDS_PER_SECOND} records/s to {ACTIVE_PARTITIONS} of {large} partitions, beside {small} (not Kafka)"
    few, many = seen[small], seen[large]
    return [
        at_most(SECTION, f"{name}, CPU of three brokers per record", "µs", many["cpu"], few["cpu"], 1.5),
        at_most(SECTION, f"{name}, p50", "ms", many["p50"], few["p50"], 1.5),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wide_scenarios", description=__doc__)
    parser.add_argument("partitions", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    for partitions in options.partitions:
        with penstock_cluster() as target:
            seen = measure(target, partitions, options.seconds)
        print(
            f"{partitions} partitions: {seen['cpu']:.0f} µs a record, p50 {seen['p50']:.1f} ms,"
            f" {seen['idle']:.1f} % of a core idle",
            flush=True,
        )


if __name__ == "__main__":
    main()
