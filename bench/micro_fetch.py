"""What a fetch costs a broker in CPU, by itself or beside another tree: `python -m bench.micro_fetch [old=FOLDER …]`.

Each tree gets a broker of its own; they are measured in turns, and the median of all rounds is printed with its spread.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable
from pathlib import Path

from bench import load, tail_load, targets
from bench.load import create_topic

RECORDS = 400  # of 900 bytes
FAN_OUTS = {1: 1000.0, 50: 100.0, 200: 40.0, 1000: 10.0}  # consumers → records/s


def fill(port: int) -> None:
    request = load.produce_frame("small", 0, load.one_batch(1, 900))
    load.check_produce(port, request)
    with load.connect(port) as connection:
        for _ in range(RECORDS - 1):
            connection.sendall(request)
            load.read_frame(connection)


def small_fetches(target: targets.Target, seconds: float) -> dict[str, float]:
    request = load.fetch_frame("small", 0, 0, 1024)
    with load.connect(target.port) as connection:
        connection.sendall(request)
        size = len(load.read_frame(connection)) + 4
    before = target.cpu_seconds()
    result = load.drain_fetches(target.port, request, size, 10, seconds)
    return {"µs": (target.cpu_seconds() - before) / result.requests * 1e6, "per s": result.per_second}


def session_fetches(target: targets.Target, seconds: float) -> dict[str, float]:
    before = target.cpu_seconds()
    result = tail_load.session_fetches(target.port, "small", RECORDS - 2, 10, seconds)
    return {"µs": (target.cpu_seconds() - before) / result.requests * 1e6, "per s": result.per_second}


def produces(target: targets.Target, connections: int, seconds: float) -> dict[str, float]:
    request = load.produce_frame("produced", 0, load.one_batch(1, 100))
    size = load.check_produce(target.port, request)
    before = target.cpu_seconds()
    if connections == 1:
        result = load.pipelined(target.port, request, size, 100, seconds)
    else:
        result = load.many_connections(target.port, request, size, connections, seconds)
    return {"µs": (target.cpu_seconds() - before) / result.requests * 1e6, "per s": result.per_second}


def fan_out(target: targets.Target, consumers: int, rate: float, seconds: float) -> dict[str, float]:
    fan = tail_load.Fan(target.port, "tail", consumers)
    try:
        fan.run(rate, min(1.0, seconds))
        before = target.cpu_seconds()
        seen = fan.run(rate, seconds)
        spent = target.cpu_seconds() - before
    finally:
        fan.close()
    return {
        "µs": spent / seen.deliveries * 1e6,
        "p50 ms": seen.percentile_ms(0.5),
        "p99 ms": seen.percentile_ms(0.99),
    }


CASES: dict[str, Callable[[targets.Target, float], dict[str, float]]] = {
    "small": small_fetches,
    "session": session_fetches,
    "produce-1": lambda target, seconds: produces(target, 1, seconds),
    "produce-64": lambda target, seconds: produces(target, 64, seconds),
    **{
        f"tail-{consumers}": (
            lambda target, seconds, consumers=consumers, rate=rate: fan_out(target, consumers, rate, seconds)  # type: ignore[misc]
        )
        for consumers, rate in FAN_OUTS.items()
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.micro_fetch", description=__doc__)
    parser.add_argument("trees", nargs="*", default=["here=."], help="name=folder of a checked-out tree")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        brokers = {}
        for tree in options.trees:
            name, _, folder = tree.partition("=")
            broker = stack.enter_context(
                targets.penstock_broker(tail_load.ROOM_FOR_SESSIONS, tree=Path(folder).resolve())
            )
            for topic in ("small", "tail", "produced"):
                create_topic(broker.port, topic)
            fill(broker.port)
            brokers[name] = broker
        for case in options.cases.split(","):
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
            for _ in range(options.rounds):
                for name, broker in brokers.items():
                    seen[name].append(CASES[case](broker, options.seconds))
            for name, figures in seen.items():
                print(f"{case:12} {name:8}", "  ".join(_spread(key, figures) for key in figures[0]), flush=True)


def _spread(key: str, figures: list[dict[str, float]]) -> str:
    values = [figure[key] for figure in figures]
    return f"{key} {statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"


if __name__ == "__main__":
    main()
