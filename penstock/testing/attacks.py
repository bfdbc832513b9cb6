"""Attacks on a broker, and what a well-behaved client waits meanwhile: `make prove-attacks`, or `python -m …attacks`.

Each attack runs for some seconds from a process of its own, on the last core. Beside it one client writes, on the
first; its p99, the peak of the broker's memory and the time until its waits are as before are told, for Penstock (a
fresh one each time) and, with `--kafka`, for an Apache Kafka that suffers the same bytes in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record
from penstock.testing.attack_kinds import ATTACKS, ask, connect, make_topics, produce_frame
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.peers import process_resident_bytes

__all__ = ["make_topics", "penstock_broker", "suffer"]

QUIET_FACTOR = 3
PATIENCE_MS = 25.0
CALM_MS = 5.0


class Outcome(NamedTuple):
    name: str
    quiet_ms: float
    p99_ms: float
    longest_ms: float
    peak_bytes: int
    recovery_seconds: float

    @property
    def holds(self) -> bool:
        return self.p99_ms <= max(QUIET_FACTOR * self.quiet_ms, PATIENCE_MS)


class Client:
    """Writes a record again and again and notes how long each took, in milliseconds."""

    def __init__(self, port: int) -> None:
        self._sock = connect(port)
        self._frame = produce_frame("plain", bytes(build_batch([new_record(b"k", b"v", int(time.time() * 1000))])))

    def wait_ms(self) -> float:
        began = time.perf_counter()
        ask(self._sock, self._frame)
        return (time.perf_counter() - began) * 1000

    def waits(self, ends: float) -> list[float]:
        found = []
        while time.monotonic() < ends:
            found.append(self.wait_ms())
            time.sleep(0.002)
        return found

    def close(self) -> None:
        self._sock.close()


def p99(waits: list[float]) -> float:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * 0.99))]


def _attacker(name: str, port: int, ready: object, seconds: float) -> None:
    attack = ATTACKS[name]()
    ready.set()  # type: ignore[attr-defined]
    attack(port, time.monotonic() + seconds)


def _pin(pid: int, core: int) -> None:
    """A process to one core, where there are several."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(pid, {cores[core]})


def family_bytes(pid: int) -> int:
    """Resident memory of a process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = process_resident_bytes(pid)
    for child in children:
        with contextlib.suppress(OSError):
            total += process_resident_bytes(int(child))
    return total


def suffer(name: str, port: int, pid: int, seconds: float) -> Outcome:
    """One attack, and the way back to calm."""
    client = Client(port)
    spawned = multiprocessing.get_context("spawn")
    ready = spawned.Event()
    attacker = spawned.Process(target=_attacker, args=(name, port, ready, seconds), daemon=True)
    try:
        quiet, peak = math.inf, 0
        client.waits(time.monotonic() + 0.5)  # the first ones are no measure
        quiet = p99(client.waits(time.monotonic() + max(seconds / 3, 1.0)))
        attacker.start()
        assert attacker.pid is not None
        _pin(attacker.pid, -1)
        ready.wait(120)
        waits: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            waits += client.waits(min(time.monotonic() + 0.2, ends))
            peak = max(peak, family_bytes(pid))
        attacker.join(60)
        began = time.monotonic()
        calm = 0
        while calm < 20 and time.monotonic() - began < 60:
            calm = calm + 1 if client.wait_ms() <= max(2 * quiet, CALM_MS) else 0
        return Outcome(name, quiet, p99(waits), max(waits), peak, time.monotonic() - began)
    except OSError:
        return Outcome(name, quiet, math.inf, math.inf, peak, math.inf)
    finally:
        client.close()
        if attacker.is_alive():
            attacker.kill()


@contextlib.contextmanager
def penstock_broker() -> Iterator[tuple[int, int]]:
    settings = {"auto.create.topics.enable": "false", "node.id": "1", "offsets.topic.num.partitions": "1"}
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder), settings) as broker:
        yield int(broker.bootstrap.rpartition(":")[2]), broker.pid


@contextlib.contextmanager
def kafka_broker() -> Iterator[tuple[int, int]]:
    from penstock.testing.peers import apache_kafka

    settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    with apache_kafka(settings=settings) as kafka:
        yield int(kafka.bootstrap.split(",")[0].rpartition(":")[2]), kafka.processes[0].pid


Pair = tuple[Outcome, Outcome | None]


def table(pairs: list[Pair]) -> str:
    rows = [
        "| attack | p99 ms: quiet → under attack | Kafka | longest ms | Kafka | peak MB | Kafka | calm after s | Kafka "
        "| bound |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for own, kafka in pairs:
        cells = [own.name]
        for tell in (_p99, _longest, _peak, _calm):
            cells += [tell(own), "" if kafka is None else tell(kafka)]
        rows.append(f"| {' | '.join(cells)} | {verdict(own, kafka)} |")
    return "\n".join(rows)


def _p99(one: Outcome) -> str:
    return f"{one.quiet_ms:.1f} → {_number(one.p99_ms, 1)}"


def _longest(one: Outcome) -> str:
    return _number(one.longest_ms, 0)


def _peak(one: Outcome) -> str:
    return f"{one.peak_bytes / 1e6:.0f}"


def _calm(one: Outcome) -> str:
    return _number(one.recovery_seconds, 1)


def _number(value: float, digits: int) -> str:
    return "no answer" if math.isinf(value) else f"{value:.{digits}f}"


def verdict(own: Outcome, kafka: Outcome | None) -> str:
    """Whether a well-behaved client waits no longer than promised, and than beside Kafka."""
    if own.holds:
        return "kept"
    if kafka is not None and own.p99_ms <= kafka.p99_ms:
        return "above, Kafka more so"
    return "**missed**"


def record(pairs: list[Pair], seconds: float) -> str:
    load = os.getloadavg()[0]
    return f"""# Under attack

{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, `make prove-attacks`, {os.cpu_count()} cores, Linux, {seconds:g} s each;
load average at the end {load:.1f} (one attack alone makes about 2).

A client writes one record after another while somebody else attacks the same broker from the last core. Told are the
p99 and the longest of its waits, the broker's memory at its peak (with its child processes; Kafka's heap was 1 GB and
stays as large as it once was), and how long after the attack twenty waits in a row were as quiet as before. Each attack
meets a fresh Penstock; one Apache Kafka suffers all of them, each right after Penstock did.
The bound: p99 at most {QUIET_FACTOR} × the quiet one or {PATIENCE_MS:g} ms.

{table(pairs)}
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each attack lasts")
    parser.add_argument("--kafka", action="store_true", help="the same against an Apache Kafka")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--record", type=Path, help="the page that the table is written to")
    options = parser.parse_args(arguments)
    pairs: list[Pair] = []
    with contextlib.ExitStack() as peers:
        kafka = None
        for name in ATTACKS:
            if options.only not in name:
                continue
            if options.kafka and kafka is None:
                kafka = peers.enter_context(kafka_broker())
                make_topics(kafka[0])
            pairs.append((_alone(name, options.seconds), suffer(name, *kafka, options.seconds) if kafka else None))
            print(*(str(one) for one in pairs[-1] if one), sep="\n", flush=True)
            if math.isinf(pairs[-1][-1].p99_ms if pairs[-1][-1] else 0):
                peers.close()  # it does not answer any more: the next attack meets another one
                kafka = None
    print(f"\n{table(pairs)}")
    if options.record is not None:
        options.record.write_text(record(pairs, options.seconds), encoding="utf-8")
    return 0 if all(verdict(*pair) != "**missed**" for pair in pairs) else 1


def _alone(name: str, seconds: float) -> Outcome:
    with penstock_broker() as (port, pid):
        make_topics(port)
        return suffer(name, port, pid, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
