"""Proof of delivery semantics: a chain of three groups, and processes that die at random.

    python -m penstock.testing.eos_chain --records 1000000          exactly once, with transactions
    python -m penstock.testing.eos_chain --records 100000 --plain   the same without them: at least once

Records 0..N-1 go through stage-0 → stage-1 → stage-2 → stage-3. Each stage has a group with a worker process that
consumes, transforms and produces; workers and the broker are killed with -9 at random moments and started again.
In the end every topic of the chain must hold each record exactly once for a read_committed reader (plain: at least
once), and every record must still be what the transformations made of it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.testing.eos_chain_ends import CLIENT, STAGES, TRANSFORMED, Reader, create_topics, feed
from penstock.testing.peers import wait_for_port
from penstock.testing.ports import free_port

API_SECONDS = 20  # how long a worker waits for one answer before it gives up and is started again
BATCH = 2_000


@dataclass
class Outcome:
    """How often each record is in the last topic, and what it cost."""

    records: int
    lost: int
    repeated: int
    damaged: int
    seconds: float
    worker_kills: int
    broker_kills: int
    aborted: int
    """Records that are in the topics but that no read_committed reader ever sees."""
    per_topic: dict[str, tuple[int, int]] = field(default_factory=dict)  # topic → (lost, repeated)

    def __str__(self) -> str:
        return (
            f"{self.records:,} records in {self.seconds:.0f} s: lost {self.lost}, more than once {self.repeated}, "
            f"damaged {self.damaged}; {self.worker_kills} workers and {self.broker_kills} brokers were killed, "
            f"{self.aborted:,} records belong to aborted transactions"
        )


class Process:
    """A child that is started again whenever it ends."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def keep_running(self) -> None:
        if not self.is_running:
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


class Chain:
    """The processes of one run. Use as a context: whatever happens, none is left behind."""

    def __init__(
        self, folder: Path, records: int, plain: bool, seed: int, batch: int, broker_settings: dict[str, str]
    ) -> None:
        self.folder = folder
        self.records = records
        self.plain = plain
        self.batch = batch
        self.random = random.Random(seed)
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.worker_kills = self.broker_kills = 0
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            **broker_settings,
        }
        command = [sys.executable, "-m", "penstock.broker"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.broker = Process(command, folder / "broker.log")
        self.workers: list[Process] = []

    def __enter__(self) -> Chain:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.workers:
            process.kill()
        self.broker.stop()

    def start_workers(self) -> None:
        for stage in range(STAGES):
            command = [sys.executable, "-m", "penstock.testing.eos_chain", "--stage", str(stage)]
            command += ["--bootstrap", self.bootstrap, "--batch", str(self.batch), *(["--plain"] if self.plain else [])]
            self.workers.append(Process(command, self.folder / f"worker-{stage}.log"))

    def strike(self) -> None:
        """Kill somebody with -9 and start it again. A broker in four is enough: its recovery takes the longest."""
        if self.random.random() < 0.25:
            self.broker.kill()
            self.broker.start()
            self.broker_kills += 1
        else:
            worker = self.random.choice(self.workers)
            worker.kill()
            worker.start()
            self.worker_kills += 1

    def keep_running(self) -> None:
        for process in (self.broker, *self.workers):
            process.keep_running()


def run(
    records: int,
    *,
    plain: bool = False,
    seed: int = 0,
    batch: int = BATCH,
    strikes: int | None = None,
    strike_every_seconds: float = 3.0,
    deadline_seconds: float = 3600.0,
    folder: Path | None = None,
    broker_settings: dict[str, str] | None = None,
) -> Outcome:
    """Run the chain to its end; raises TimeoutError if it does not come to one.

    `strikes` kills so often, evenly over the records that arrive; without it, by time.
    """
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-eos-") as temporary,
        Chain(folder or Path(temporary), records, plain, seed, batch, broker_settings or {}) as chain,
    ):
        wait_for_port(chain.port, 60)
        create_topics(chain.bootstrap)
        feed(chain.bootstrap, records)
        chain.start_workers()
        last = Reader(chain.bootstrap, STAGES, records)
        next_strike = time.monotonic() + strike_every_seconds
        while not last.has_all():
            if time.monotonic() - started > deadline_seconds:
                raise TimeoutError(f"{last.missing():,} of {records:,} records did not arrive in {deadline_seconds} s")
            last.read(0.2)
            arrived = records - last.missing()
            if strikes is not None:
                if chain.worker_kills + chain.broker_kills < strikes * arrived // records:
                    chain.strike()
            elif time.monotonic() >= next_strike:
                chain.strike()
                next_strike = time.monotonic() + strike_every_seconds * chain.random.uniform(0.3, 1.7)
            chain.keep_running()
        last.close()
        for worker in chain.workers:
            worker.kill()
        chain.workers.clear()
        return _judge(chain, time.monotonic() - started)


def _judge(chain: Chain, seconds: float) -> Outcome:
    """Read the whole chain again, now that nobody writes: first what is committed, then everything."""
    per_topic: dict[str, tuple[int, int]] = {}
    damaged = aborted = 0
    _end_open_transactions(chain)
    for stage in range(1, STAGES + 1):
        committed = Reader(chain.bootstrap, stage, chain.records)
        committed.read_to_end()
        everything = Reader(chain.bootstrap, stage, chain.records, isolation="read_uncommitted")
        everything.read_to_end()
        per_topic[f"stage-{stage}"] = (committed.missing(), committed.repeated())
        damaged += committed.damaged
        aborted += everything.total - committed.total
        committed.close()
        everything.close()
    lost = sum(entry[0] for entry in per_topic.values())
    repeated = sum(entry[1] for entry in per_topic.values())
    return Outcome(
        chain.records, lost, repeated, damaged, seconds, chain.worker_kills, chain.broker_kills, aborted, per_topic
    )


def _end_open_transactions(chain: Chain) -> None:
    """The killed workers may have left transactions open; whoever takes their ids aborts them."""
    if not chain.plain:
        for stage in range(STAGES):
            _transactional(chain.bootstrap, stage).init_transactions(60)


# A worker ----------------------------------------------------------------------------------------------------------


def _transactional(bootstrap: str, stage: int) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"chain-{stage}",
            "transaction.timeout.ms": 10_000,
            "linger.ms": 5,
            **CLIENT,
        }
    )


def work(bootstrap: str, stage: int, batch: int, plain: bool) -> None:
    """One stage, until it is killed. Any trouble ends the process: the next one begins at the committed offsets."""
    from confluent_kafka import Consumer, Producer

    producer = (
        Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **CLIENT})
        if plain
        else _transactional(bootstrap, stage)
    )
    if not plain:
        producer.init_transactions(API_SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"chain-{stage}",
            "group.instance.id": f"chain-{stage}",
            "session.timeout.ms": 10_000,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": 60_000,
            **CLIENT,
        }
    )
    consumer.subscribe([f"stage-{stage}"])
    while True:
        messages = consumer.consume(batch, 0.5)
        if not messages:
            continue
        if not plain:
            producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(message.error())
            producer.produce(f"stage-{stage + 1}", message.value() + TRANSFORMED, partition=message.partition())
        offsets = [position for position in consumer.position(consumer.assignment()) if position.offset >= 0]
        if producer.flush(API_SECONDS):  # also in a transaction: a kill shall find records that no commit covers
            raise TimeoutError("the output could not be written")
        if plain:
            consumer.commit(offsets=offsets, asynchronous=False)
        else:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), API_SECONDS)
            producer.commit_transaction(API_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--plain", action="store_true", help="without transactions: at least once")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--batch", type=int, default=BATCH, help="records in a transaction, at most")
    parser.add_argument("--strike-every", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--deadline", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--stage", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage is not None:
        try:
            work(asked.bootstrap, asked.stage, asked.batch, asked.plain)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)  # a crash like any other: no goodbyes that could wait for a broker
    print(f"seed {asked.seed}")
    outcome = run(
        asked.records,
        plain=asked.plain,
        seed=asked.seed,
        batch=asked.batch,
        strike_every_seconds=asked.strike_every,
        deadline_seconds=asked.deadline,
    )
    print(outcome)
    good = outcome.lost == 0 and outcome.damaged == 0 and (asked.plain or outcome.repeated == 0)
    print("exactly once" if good and not asked.plain else "at least once" if good else "BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
