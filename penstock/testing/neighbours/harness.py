"""What all neighbours share: brokers that can be killed, processes that come back, topics, a verdict."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.eos_chain import Process
from penstock.testing.ports import free_port

JAVA = Path(__file__).parent / "java"
# Without re-bootstrap: librdkafka keeps the brokers that it knows while all of them are down.
CLIENT = {"metadata.recovery.strategy": "none", "log_level": 0}


@dataclass
class Record:
    partition: int
    offset: int
    key: str
    value: str
    timestamp: int
    headers: list[tuple[str, bytes]]


@dataclass
class Verdict:
    """What a neighbour was to do, in words, and where it did not."""

    promise: str
    problems: list[str] = field(default_factory=list)
    figures: str = ""


class World:
    """Brokers (one, or three with a ZooKeeper server) and the neighbour's processes; leaves nothing behind."""

    def __init__(self, folder: Path, brokers: int, records: int, seed: int) -> None:
        self.folder = folder
        self.records = records
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.children: list[Process] = []
        self.zookeeper = ZooKeeperProcess(folder / "zookeeper", free_port()) if brokers > 1 else None
        self.brokers = [self._broker(number + 1, brokers) for number in range(brokers)]
        self.copies = min(3, brokers)

    def _broker(self, number: int, brokers: int) -> BrokerProcess:
        copies = str(min(3, brokers))
        settings = {
            "broker.id": str(number),
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "6",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": "6",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        if self.zookeeper is not None:
            settings |= {
                "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
                "min.insync.replicas": "2",
                "transaction.state.log.min.isr": "2",
            }
        return BrokerProcess(self.folder / f"broker-{number}", settings)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> World:
        try:
            if self.zookeeper is not None:
                self.zookeeper.start()
            for broker in self.brokers:
                broker.start()
            self.until(lambda: self._live() == len(self.brokers), "all brokers know each other")
        except BaseException:
            self.close()
            raise
        return self

    def _live(self) -> int:
        from confluent_kafka.admin import AdminClient

        return len(AdminClient({"bootstrap.servers": self.bootstrap, **CLIENT}).list_topics(timeout=30).brokers)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for child in self.children:
            child.kill()
        for broker in self.brokers:
            broker.stop()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    # -- processes

    def run(self, command: list[str], name: str) -> Process:
        child = Process(command, self.folder / f"{name}.log")
        self.children.append(child)
        return child

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, child: Process, name: str) -> None:
        """As the power cut does it; the caller starts it again."""
        child.kill()
        self.kills[name] += 1

    def kill_a_broker(self) -> None:
        broker = self.random.choice(self.brokers)
        broker.kill()
        self.kills["broker"] += 1
        time.sleep(self.random.uniform(0.0, 3.0))
        broker.start()

    def until(
        self, condition: Callable[[], bool], what: str, alive: Iterable[tuple[Process, str]] = (), seconds: float = 300
    ) -> None:
        """Waits; a process that ends meanwhile, or the end of patience, is an error with its last words."""
        deadline = time.monotonic() + seconds
        watched = list(alive)
        while not condition():
            for child, name in watched:
                if not child.is_running:
                    raise RuntimeError(f"{name} ended while waiting until {what}: {self.log(name)[-2500:]}")
            if time.monotonic() > deadline:
                words = "".join(f"\n{name}: {self.log(name)[-1500:]}" for _, name in watched)
                raise TimeoutError(f"not within {seconds:.0f} s: {what}{words}")
            time.sleep(0.3)

    # -- topics

    def create(self, *topics: str, partitions: int = 2, settings: dict[str, str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap, **CLIENT})
        # The records that are fed bear times long past: nothing may expire while it is being read.
        kept = {"retention.ms": "-1", **(settings or {})}
        wanted = [NewTopic(name, partitions, self.copies, config=kept) for name in topics]
        for created in admin.create_topics(wanted).values():
            created.result(60)

    def feed(self, topic: str, first: int, end: int, partitions: int = 2) -> None:
        """Numbers as values, key and header beside them, into the partition that the number says."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **CLIENT})
        for number in range(first, end):
            producer.produce(
                topic,
                b"%d" % number,
                b"key-%d" % (number % 7),
                partition=number % partitions,
                headers=[("number", b"%d" % number)],
                timestamp=1_750_000_000_000 + number,
            )
            if number % 1000 == 0:
                producer.poll(0)
        if producer.flush(300):
            raise TimeoutError(f"{topic} could not be written")

    def ended(self, topic: str, partitions: int = 2) -> int:
        """How many offsets a read_committed reader may go through: cheap, and never below what it would see."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        reader = Consumer(self._reader(), logger=None)
        deadline = time.monotonic() + 60
        try:
            while True:
                try:
                    return sum(reader.get_watermark_offsets(TopicPartition(topic, p), 30)[1] for p in range(partitions))
                except KafkaException:  # a leader was killed, and the next one is not known yet
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.3)
        finally:
            reader.close()

    def _reader(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": "verdict",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **CLIENT,
        }

    def read(self, topic: str, partitions: int = 2) -> list[Record]:
        """Every committed record, partition by partition in order, up to the end of now."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._reader())
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        found: list[Record] = []
        at_end: set[int] = set()
        while len(at_end) < partitions:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    at_end.discard(message.partition())
                    key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
                    place = (message.partition(), message.offset())
                    found.append(Record(*place, key, value, message.timestamp()[1], message.headers() or []))
                elif message.error().name() == "_PARTITION_EOF":
                    at_end.add(message.partition())
                elif message.error().fatal():
                    raise RuntimeError(message.error())
        consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))


def missing(numbers: Iterable[int], records: int) -> int:
    return records - len(set(numbers) & set(range(records)))


def judge_numbers(found: list[Record], records: int, *, once: bool = True, ordered: bool = True) -> list[str]:
    """Every number is there; where it was promised: once, and in order inside its partition."""
    counts = Counter(int(record.value) for record in found)
    lost = [number for number in range(records) if number not in counts]
    strange = [number for number in counts if not 0 <= number < records]
    doubled = [number for number, count in counts.items() if count > 1] if once else []
    moved = _out_of_order(found) if ordered else []
    named = (("lost", lost), ("never written", strange), ("more than once", doubled), ("out of order", moved))
    return [f"{what}: {len(these)}, first {these[0]}" for what, these in named if these]


def _out_of_order(found: list[Record]) -> list[int]:
    """Numbers whose first appearance comes after that of a larger one of their partition."""
    seen: set[int] = set()
    largest: dict[int, int] = {}
    moved = []
    for record in found:
        number = int(record.value)
        if number in seen:
            continue
        seen.add(number)
        if number < largest.get(record.partition, -1):
            moved.append(number)
        largest[record.partition] = max(number, largest.get(record.partition, -1))
    return moved


def write_properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def compiled(source: str, jars: Path, folder: Path) -> str:
    """The class path of a program of ours that only wires the neighbour together."""
    made = subprocess.run(
        ["javac", "-nowarn", "-d", str(folder / "classes"), "-cp", f"{jars}/*", str(JAVA / source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise RuntimeError(f"{source} does not compile: {made.stderr[-2000:]}")
    return f"{folder / 'classes'}:{jars}/*"
