"""`python -m penstock.testing.clients --records 60000`: the loops of all clients at once on three brokers, with kills.

Every client copies a topic of its own. Brokers and loops are killed with -9 in turn and started again; Kafka's
verifiable producer writes beside them. In the end each output has every record of its input once, in the order of its
partition, for a read_committed reader, and what the verifiable producer was told is stored is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.testing import peers
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.clients import loops
from penstock.testing.clients.progress import Progress, read
from penstock.testing.clients.strikes import Strikes
from penstock.testing.eos_chain import Process
from penstock.testing.ports import free_port

PARTITIONS = 2
VERIFIED = "verified"
LOOK_SECONDS = 2.0


class Run:
    def __init__(self, folder: Path, records: int, strike_every: float, seed: int, kills: int | None) -> None:
        self.folder = folder
        self.records = records
        self._strike_every, self._seed, self._kills = strike_every, seed, kills
        self.strikes: Strikes | None = None
        self.zookeeper = ZooKeeperProcess(folder / "zookeeper", free_port())
        self.brokers: list[BrokerProcess] = []
        self.loops: dict[str, list[Process]] = {}
        self.producer: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        self.zookeeper.start()
        self.brokers = [self._broker(number) for number in (1, 2, 3)]
        for broker in self.brokers:
            broker.start()
        found = loops.commands(self.bootstrap, self.folder, PARTITIONS, self.records)
        kinds = sorted(found)
        self._create([f"{side}-{kind}" for kind in kinds for side in ("in", "out")] + [VERIFIED])
        for kind in kinds:
            self._feed(f"in-{kind}")
        self.producer = self._verifiable_producer()
        for kind in kinds:
            self.loops[kind] = [
                Process(command, self.folder / f"{kind}-{number}.log") for number, command in enumerate(found[kind])
            ]
        self.strikes = Strikes(self.brokers, self.loops, self._strike_every, self._seed, self._kills)
        self.strikes.start()

    def _broker(self, number: int) -> BrokerProcess:
        settings = {
            "broker.id": str(number),
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "6",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "6",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
        }
        return BrokerProcess(self.folder / f"broker-{number}", settings)

    def _create(self, topics: list[str]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap, **loops.CLIENT})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in topics]).values():
            created.result(60)

    def _feed(self, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **loops.CLIENT})
        for number in range(self.records):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
            if number % 1000 == 0:
                producer.poll(0)
        if producer.flush(300):
            raise TimeoutError(f"the input of {topic} could not be written")

    def _verifiable_producer(self) -> subprocess.Popen[str] | None:
        try:
            jars = peers.kafka_jars()
        except peers.PeerUnavailable:
            return None
        command = peers.java_command(
            jars,
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", self.bootstrap, "--topic", VERIFIED, "--throughput", "200", "--acks", "-1"),
        )
        with (self.folder / "verified.log").open("w") as out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, text=True)

    @property
    def killed(self) -> str:
        kills = {} if self.strikes is None else self.strikes.kills
        return ", ".join(f"{count} × {what}" for what, count in sorted(kills.items())) or "nobody"

    def stop(self) -> None:
        if self.strikes is not None:
            self.strikes.end()
        for processes in self.loops.values():
            for process in processes:
                process.kill()
        if self.producer is not None:
            self.producer.terminate()
            self.producer.wait(60)
        for broker in self.brokers:
            broker.stop()
        self.zookeeper.stop()

    # -- the verdict

    def told(self) -> list[bytes]:
        """What the verifiable producer was told is stored."""
        lines = (self.folder / "verified.log").read_text().splitlines()
        return [str(json.loads(line)["value"]).encode() for line in lines if '"producer_send_success"' in line]


def judge(kind: str, values: dict[int, list[bytes]], records: int) -> list[str]:
    counts = Counter(value for partition in values.values() for value in partition)
    lost = [number for number in range(records) if b"%d" % number not in counts]
    doubled = [value for value, count in counts.items() if count > 1]
    moved = [p for p, found in values.items() if [int(v) for v in found] != sorted(int(v) for v in found)]
    found = (("lost", lost), ("more than once", doubled), ("out of order in partition", moved))
    return [f"{kind}: {what} {len(these)}, first {these[0]!r}" for what, these in found if these]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.clients", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000, help="for each client")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strike-every", type=float, default=4.0, metavar="SECONDS")
    parser.add_argument("--kills", type=int, help="not more of them (default: to the end)")
    parser.add_argument("--deadline", type=float, default=1800.0, metavar="SECONDS")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-clients-") as name:
        run = Run(Path(name), asked.records, asked.strike_every, asked.seed, asked.kills)
        try:
            problems, words = _run(run, asked.deadline)
        finally:
            run.stop()
    seconds = time.monotonic() - began
    print(f"{asked.records:,} records each through {', '.join(words)} in {seconds:.0f} s; killed: {run.killed}")
    print("\n".join(problems) or "every output has every record once, in order; nothing acknowledged is lost")
    return 1 if problems else 0


def _run(run: Run, deadline_seconds: float) -> tuple[list[str], list[str]]:
    run.start()
    assert run.strikes is not None
    deadline = time.monotonic() + deadline_seconds
    waiting = {kind: Progress(run.bootstrap, f"out-{kind}", PARTITIONS) for kind in run.loops}
    words: list[str] = []
    while waiting:
        if run.strikes.error is not None:
            return [f"the strikes ended: {run.strikes.error!r}"], words
        if time.monotonic() > deadline:
            missing = {kind: run.records - progress.seen for kind, progress in waiting.items()}
            return [f"not at the end after {deadline_seconds:.0f} s, missing: {missing}"], words
        time.sleep(LOOK_SECONDS)
        for kind, progress in sorted(waiting.items()):
            progress.advance()
            if progress.seen >= run.records:
                del waiting[kind]
                progress.close()
                run.strikes.release(kind)
                words.append(kind)
                print(f"{kind} has come to its end; killed so far: {run.killed}", flush=True)
    run.strikes.end()
    if run.producer is not None:
        run.producer.terminate()
        run.producer.wait(120)
    problems: list[str] = []
    for kind in words:
        problems += judge(kind, read(run.bootstrap, f"out-{kind}", PARTITIONS), run.records)
    problems += _judge_verified(run)
    return problems, words


def _judge_verified(run: Run) -> list[str]:
    if run.producer is None:
        return []
    stored = Counter(v for values in read(run.bootstrap, VERIFIED, PARTITIONS).values() for v in values)
    told = run.told()
    print(f"the verifiable producer was told of {len(told):,} records", flush=True)
    found: list[tuple[str, list[Any]]] = [
        ("lost", [value for value in told if value not in stored]),
        ("more than once", [value for value, count in stored.items() if count > 1]),
    ]
    return [f"verifiable producer: {what} {len(these)}, first {these[0]!r}" for what, these in found if these]


if __name__ == "__main__":
    sys.exit(main())
