"""One run of chaos, from an empty cluster to the verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.base.settings import Settings
from penstock.testing.chaos.checker import History, Verdict
from penstock.testing.chaos.clocks import faketime_environment
from penstock.testing.chaos.faults import Faults
from penstock.testing.chaos.hosts import Hosts
from penstock.testing.chaos.operator import Operator
from penstock.testing.chaos.silences import Silence, bound_seconds, find_silences
from penstock.testing.chaos.wide import WideTopic
from penstock.testing.chaos.workload import (
    PARTITIONS,
    TOPIC,
    Client,
    IdempotentProducer,
    Reader,
    TransactionalProducer,
    read_everything,
)

HEAL_SECONDS = 120.0
MIN_ISR = 2
SILENCES_SHOWN = 10
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "65536",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
}


@dataclass
class Report:
    verdict: Verdict
    faults: dict[str, int]
    skipped: list[str]
    silences: list[Silence]
    silence_bound_seconds: float
    transactions: tuple[int, int]
    producer_lives: int
    differences: list[str]
    under_way: str = ""
    client_errors: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whatever it took: nothing is lost, doubled, reordered or different."""
        return self.verdict.good and not self.differences and not self.client_errors

    @property
    def good(self) -> bool:
        return self.is_right and not self.too_long

    @property
    def too_long(self) -> list[Silence]:
        return [silence for silence in self.silences if silence.judged_seconds > self.silence_bound_seconds]

    def lines(self) -> list[str]:
        return [
            *self.verdict.lines(),
            "transactions: {} committed, {} aborted".format(*self.transactions),
            f"idempotent producers that had to begin anew: {self.producer_lives - 3}",
            f"replicas differ: {len(self.differences)}"
            + (f", e.g. {self.differences[:3]}" if self.differences else ""),
            self.under_way,
            f"faults: {', '.join(f'{n} × {name}' for name, n in sorted(self.faults.items()))}",
            *(f"skipped {reason}" for reason in self.skipped),
            *(f"client failed: {error}" for error in self.client_errors),
            *(silence.line() for silence in self.silences[:SILENCES_SHOWN]),
            f"silences above {self.silence_bound_seconds:.1f} s: {len(self.too_long)}",
            "GOOD" if self.good else "RIGHT, BUT TOO LONG SILENT" if self.is_right else "BAD",
        ]


def run_chaos(
    minutes: float,
    seed: int,
    folder: Path,
    sandboxed: bool,
    without: Sequence[str] = (),
    only: str | None = None,
    say: Callable[[str], None] | None = None,
    secure: bool = False,
    wide: int = 0,
) -> Report:
    """`wide`: so many partitions more, in a topic of their own."""
    started = time.monotonic()

    def tell(line: str) -> None:
        text = f"{time.monotonic() - started:7.1f} {line}"
        print(text, file=sys.stderr, flush=True) if say is None else say(text)

    hosts = Hosts(folder, sandboxed, SETTINGS, faketime_environment, secure)
    try:
        hosts.start()
        tell(f"three brokers serve at {hosts.bootstrap}{', with SASL_SSL' if secure else ''}")
        _create_topic(hosts)
        wide_topic = WideTopic(hosts.client_settings, wide)
        wide_topic.begin()
        history = History()
        clients: list[Client] = [IdempotentProducer(n, hosts.client_settings, history, 150, seed) for n in (1, 2, 3)]
        transactions = TransactionalProducer(hosts.client_settings, history, seed)
        operator = Operator(hosts.client_settings, history, seed)
        clients += [transactions, Reader(hosts.client_settings, history), operator]
        for client in clients:
            client.start()
        faults = Faults(hosts, seed, tell, without, only)
        while time.monotonic() - started < minutes * 60:
            faults.pause(1.0, 5.0)
            faults.one()
        tell("peace: everything is made whole")
        hosts.heal()
        operator.stopping.set()
        operator.join(200)
        _wait_until_in_sync(hosts, tell)
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(200)
        errors = [f"{client.name}: {client.error!r}" for client in clients if client.error is not None]
        errors += [f"{client.name} does not end" for client in clients if client.is_alive()]
        errors += operator.wrong
        errors += wide_topic.wrong()
        tell("the last look")
        verdict = history.judge(read_everything(hosts.client_settings, 120))
        hosts.stop()
        return Report(
            verdict,
            faults.count,
            faults.skipped,
            find_silences(history.acknowledged_at, faults.incidents, MIN_ISR, started),
            _silence_bound(),
            (transactions.committed, transactions.aborted),
            sum(client.lives for client in clients if isinstance(client, IdempotentProducer)),
            _compare_replicas(hosts),
            operator.line(),
            errors,
        )
    finally:
        hosts.kill()


def _silence_bound() -> float:
    settings = Settings.load(None, {"broker.id": "1", **SETTINGS})
    names = ("zookeeper.session.timeout.ms", "broker.session.timeout.ms", "replica.lag.time.max.ms")
    return bound_seconds(*(settings[name] for name in names))


def _create_topic(hosts: Hosts) -> None:
    admin = AdminClient(hosts.client_settings)
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": str(MIN_ISR)})
    admin.create_topics([topic])[TOPIC].result(30)


def _wait_until_in_sync(hosts: Hosts, tell: Callable[[str], None]) -> None:
    """All replicas of all partitions come back by themselves."""
    admin = AdminClient(hosts.client_settings)
    deadline = time.monotonic() + HEAL_SECONDS
    lagging: list[str] = ["unknown"]
    while lagging:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in sync {HEAL_SECONDS:g} s after everything was made whole: {lagging}")
        time.sleep(0.5)
        topics = admin.list_topics(timeout=30).topics
        lagging = [
            f"{name}-{partition.id}: leader {partition.leader}, in sync {partition.isrs}"
            for name, topic in topics.items()
            for partition in topic.partitions.values()
            if len(partition.isrs) < len(partition.replicas) or partition.leader < 0
        ]
    tell(f"all replicas in sync {time.monotonic() - deadline + HEAL_SECONDS:.1f} s later")


def _compare_replicas(hosts: Hosts) -> list[str]:
    """After a clean stop the files of all replicas hold the same bytes."""
    differences = []
    for index in range(PARTITIONS):
        logs = {
            number: b"".join(p.read_bytes() for p in sorted((broker.data / f"{TOPIC}-{index}").glob("*.log")))
            for number, broker in hosts.brokers.items()
        }
        reference = logs[1]
        differences += [
            f"{TOPIC}-{index}: {len(data)} bytes on broker {number}, {len(reference)} on broker 1"
            for number, data in logs.items()
            if data != reference
        ]
    return differences
