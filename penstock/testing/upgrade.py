"""Proof of rolling upgrades: three brokers go from the last release to this tree and back, under load.

    python -m penstock.testing.upgrade                    from the release in docs/releases.md
    python -m penstock.testing.upgrade --from COMMIT

Wheels of both commits are built from `git archive` and installed beside each other; a broker's version is the folder on
its PYTHONPATH. An idempotent producer with acks=all and a transactional one write all the time; at the end every
acknowledged record must be there once, in order of its partition, and every committed transaction as a whole.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
TOPIC, PARTITIONS = "upgraded", 6
SETTLE_SECONDS = 3.0  # of load after each step
CLIENT = {"metadata.recovery.strategy": "none", "log_level": 0}


def last_release() -> str:
    """The commit in the last row of the table of releases."""
    rows = re.findall(r"^\| \d+\.\d+\.\d+ \| `([0-9a-f]+)` \|", (ROOT / "docs/releases.md").read_text(), re.M)
    if not rows:
        sys.exit("docs/releases.md names no release with its commit")
    return str(rows[-1])


def install(commit: str, folder: Path) -> Path:
    """The package as of this commit, built as a wheel and unpacked into a folder of its own."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        sys.exit(f"the history here has no commit {commit}: fetch it (git fetch --unshallow) and try again")
    source, target = folder / "source", folder / "installed"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(source, filter="data")
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, **quiet)
    wheel = next(folder.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(pip, **quiet)
    return target


class Load:
    """Two producers that never rest, and what they were promised."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self.acknowledged: list[bytes] = []
        self.committed: list[int] = []
        self.longest_silence_s = 0.0
        self._threads = [threading.Thread(target=work) for work in (self._plain, self._transactional)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _plain(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, **CLIENT})
        last = time.monotonic()

        def delivered(error: Any, message: Any) -> None:
            nonlocal last
            if error is None:
                now = time.monotonic()
                self.longest_silence_s = max(self.longest_silence_s, now - last)
                last = now
                self.acknowledged.append(message.value())

        number = 0
        while not self._stopping.is_set():
            producer.produce(TOPIC, b"plain %d" % number, key=b"%d" % (number % 50), callback=delivered)
            producer.poll(0.002)
            number += 1
        producer.flush(60)

    def _transactional(self) -> None:
        from confluent_kafka import KafkaException, Producer

        number = 0
        while not self._stopping.is_set():
            settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "upgrade", **CLIENT}
            producer = Producer(settings)
            try:
                producer.init_transactions(30)
                while not self._stopping.is_set():
                    number += 1
                    producer.begin_transaction()
                    for part in range(5):
                        producer.produce(TOPIC, b"txn %d %d" % (number, part), partition=part)
                    producer.commit_transaction(30)
                    self.committed.append(number)
            except KafkaException:
                continue  # a new producer: what was not committed does not count


def wait_until_whole(bootstrap: str) -> None:
    from penstock.client.sync import SyncClient

    with SyncClient.from_properties({"bootstrap.servers": bootstrap}) as client:
        while True:
            view = client.metadata(None)
            partitions = [p for topic in view.topics.values() for p in topic.partitions.values()]
            if len(view.brokers) == 3 and all(len(p.isr) == len(p.replicas) for p in partitions):
                return
            time.sleep(0.2)


def read_all(bootstrap: str) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed",
         "enable.partition.eof": True, "enable.auto.commit": False, **CLIENT}
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                values.append(message.value())
    consumer.close()
    return values


def verdict(load: Load, values: list[bytes]) -> list[str]:
    """What is wrong, in words; nothing if all is well."""
    problems = []
    counts: dict[bytes, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    lost = [value for value in load.acknowledged if value not in counts]
    doubled = [value for value, count in counts.items() if count > 1]
    torn = [n for n in load.committed if any(b"txn %d %d" % (n, part) not in counts for part in range(5))]
    for what, found in (("lost", lost), ("more than once", doubled), ("torn transactions", torn)):
        if found:
            problems.append(f"{what}: {len(found)}, first {found[0]!r}")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description="roll three brokers to this tree and back, under load")
    parser.add_argument("--from", dest="old", default=None, help="a commit; the last release if none is named")
    old_commit = parser.parse_args().old or last_release()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old").mkdir()
        (folder / "new").mkdir()
        old, new = install(old_commit, folder / "old"), install("HEAD", folder / "new")
        print(f"wheels of {old_commit} and HEAD are installed", flush=True)
        zookeeper = ZooKeeperProcess(folder / "zookeeper", free_port())
        zookeeper.start()
        brokers = [_broker(folder, number, zookeeper.port) for number in (1, 2, 3)]
        try:
            problems = _roll(brokers, old, new)
        finally:
            for broker in brokers:
                broker.stop()
            zookeeper.stop()
    sys.exit("\n".join(problems) or 0)


def _broker(folder: Path, number: int, zookeeper_port: int) -> BrokerProcess:
    settings = {
        "broker.id": str(number),
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "num.partitions": str(PARTITIONS),
    }
    return BrokerProcess(folder / f"broker-{number}", settings)


def _roll(brokers: list[BrokerProcess], old: Path, new: Path) -> list[str]:
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    for broker in brokers:
        broker.environment = {"PYTHONPATH": str(old)}
        broker.start()
    wait_until_whole(bootstrap)
    AdminClient({"bootstrap.servers": bootstrap}).create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    load = Load(bootstrap)
    load.start()
    began = time.monotonic()
    try:
        for name, version in (("new", new), ("old", old), ("new", new)):
            for broker in brokers:
                broker.stop()
                broker.environment = {"PYTHONPATH": str(version)}
                broker.start()
                wait_until_whole(bootstrap)
                time.sleep(SETTLE_SECONDS)
                print(f"{time.monotonic() - began:5.0f} s  {broker.folder.name} runs the {name} version", flush=True)
    finally:
        load.stop()
    problems = verdict(load, read_all(bootstrap))
    print(
        f"{len(load.acknowledged):,} acknowledged, {len(load.committed):,} transactions committed, longest silence"
        f" {load.longest_silence_s:.1f} s: {'; '.join(problems) or 'nothing lost, doubled or torn'}"
    )
    return problems


if __name__ == "__main__":
    main()
