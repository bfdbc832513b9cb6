"""What the examples share: a broker to talk to, records to begin with, a worker that dies, a count of the outcome."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS = 20


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", help="address of a broker; without it one is started inside this program")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)  # how the example starts its own workers
    return parser.parse_args()


@contextlib.contextmanager
def broker(address: str | None) -> Iterator[str]:
    """The given address, or that of a broker that lives as long as this block."""
    if address:
        yield address
        return
    import penstock

    with penstock.Broker() as started:
        print(f"started a broker at {started.bootstrap}")
        yield started.bootstrap


def new_topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    """A topic with a name that nobody has used: examples may be run again and again against one broker."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(30)
    return topic


def feed(bootstrap: str, topic: str, count: int = RECORDS, partitions: int = 1) -> list[str]:
    producer = Producer({"bootstrap.servers": bootstrap})
    values = [f"order {number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    producer.flush(30)
    return values


def group_consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **settings,
        }
    )


def at_end(consumer: Consumer) -> bool:
    """Whether the consumer has its partitions and has read all that is in them now."""
    positions = consumer.position(consumer.assignment())
    ends = [consumer.get_watermark_offsets(position, timeout=30)[1] for position in positions]
    return bool(positions) and all(p.offset >= end for p, end in zip(positions, ends, strict=True))


def read_all(bootstrap: str, topic: str) -> list[str]:
    """Every committed record of a one-partition topic, from its start to its present end."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = group_consumer(bootstrap, f"reader-{topic}", **settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[str] = []
        while True:
            message = consumer.poll(30.0)
            if message is None:
                raise TimeoutError(f"the end of {topic} does not come")
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()


def run_worker(*arguments: str) -> int:
    """Start this same example as a worker process and wait for its end."""
    done = subprocess.run([sys.executable, sys.argv[0], "--worker", *arguments], timeout=120)
    return done.returncode


def crash() -> None:
    """What a power cut or the kernel's out-of-memory killer does: no goodbye, no clean-up."""
    print("   worker: killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def outcome(sent: list[str], got: list[str]) -> tuple[int, int]:
    """Print and return how many records were lost and how many came more than once."""
    counts = Counter(got)
    lost = [value for value in sent if value not in counts]
    repeated = [value for value, count in counts.items() if count > 1]
    print(f"sent {len(sent)}, arrived {len(got)}: lost {len(lost)}, more than once {len(repeated)}")
    for name, values in (("lost", lost), ("more than once", repeated)):
        if values:
            print(f"   {name}: {', '.join(sorted(values, key=sent.index))}")
    return len(lost), len(repeated)
