"""The same few records on clusters of more and more partitions: what is subscribed must not cost, only what changes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench import stalls, targets
from bench.cluster_scenarios import kafka_cluster, penstock_cluster, until_all_led
from bench.load import create_topic
from bench.report import Median, Row, absolute, at_most
from bench.stage import Stage

SECTION = "Wide clusters"
WIDTHS = (100, 1000, 5000)
BESIDE_KAFKA = 1000
ACTIVE_PARTITIONS = 10
RECORDS_PER_SECOND = 200
SETTLING_SECONDS = 4.0


def fill(target: targets.Target, partitions: int) -> None:
    create_topic(target.port, "active", partitions=ACTIVE_PARTITIONS, replication=3, min_insync_replicas="2")
    rest = partitions - ACTIVE_PARTITIONS
    for number, first in enumerate(range(0, rest, 500)):
        create_topic(target.port, f"idle-{number}", partitions=min(500, rest - first), replication=3)
    until_all_led(target)
    steady_rate(target, SETTLING_SECONDS)


def measure(target: targets.Target, rounds: int, seconds: float) -> dict[str, float]:
    """CPU of all brokers for one record with acks=all, its median time to be acknowledged, and CPU without any load."""
    seen: dict[str, list[float]] = {"cpu": [], "p50": [], "idle": []}
    for _ in range(rounds):
        with stalls.watching():
            before = target.cpu_seconds()
            times = steady_rate(target, seconds)
            seen["cpu"].append((target.cpu_seconds() - before) / len(times) * 1e6)
            seen["p50"].append(sorted(times)[len(times) // 2] * 1e3)
            before = target.cpu_seconds()
            time.sleep(seconds)
            seen["idle"].append((target.cpu_seconds() - before) / seconds * 100)
    return {figure: Median.of(values) for figure, values in seen.items()}


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


def rows(_: object, rounds: int, seconds: float) -> list[Row]:
    """One cluster after the other: all at once they would take each other's cores."""
    seen = {}
    for partitions in WIDTHS:
        with penstock_cluster() as target:
            fill(target, partitions)
            seen[partitions] = measure(target, rounds, seconds)
    with kafka_cluster() as target:
        fill(target, BESIDE_KAFKA)
        theirs = measure(target, rounds, seconds)
    costs = [figures["cpu"] for figures in seen.values()]
    what = f"{RECORDS_PER_SECOND} records/s to {ACTIVE_PARTITIONS} of"
    found = [
        Row(SECTION, f"{what} {', '.join(map(str, WIDTHS))} partitions: CPU, dearest (right: cheapest)",
            "µs/record", max(costs), min(costs), "≤ 1.5 ×", max(costs) <= 1.5 * min(costs)),
        at_most(SECTION, f"{what} {BESIDE_KAFKA} partitions: CPU of three brokers", "µs/record",
                seen[BESIDE_KAFKA]["cpu"], theirs["cpu"], 1 / 5),
    ]  # fmt: skip
    for partitions, figures in seen.items():
        found.append(absolute(SECTION, f"{what} {partitions} partitions: p50", "ms", figures["p50"], 3))
    widest = WIDTHS[-1]
    name = f"three brokers with {widest} partitions, idle"
    return [*found, absolute(SECTION, name, "% of a core", seen[widest]["idle"], 10)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wide_scenarios", description=__doc__)
    parser.add_argument("partitions", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    for partitions in options.partitions:
        with penstock_cluster() as target:
            fill(target, partitions)
            seen = measure(target, 1, options.seconds)
        print(
            f"{partitions} partitions: {seen['cpu']:.0f} µs a record, p50 {seen['p50']:.1f} ms,"
            f" {seen['idle']:.1f} % of a core idle",
            flush=True,
        )


STAGES = [Stage({"clusters": rows})]


if __name__ == "__main__":
    main()
