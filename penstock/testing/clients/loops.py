"""The loops themselves: `python -m penstock.testing.clients.loops c|python BROKERS INPUT OUTPUT NAME`, and the others.

Each copies its input topic into its output topic, partition by partition, a few records a transaction, until it is
killed. Any trouble ends the process; the next one begins at the committed offsets.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from penstock.testing import peers

BATCH = 20
SECONDS = 20.0
CLIENT = {"metadata.recovery.strategy": "none", "log_level": 0}


def commands(brokers: str, folder: Path, partitions: int, records: int) -> dict[str, list[list[str]]]:
    """By client: how its processes are started. What is not installed is left out, and said."""
    own = [sys.executable, "-m", "penstock.testing.clients.loops"]
    found: dict[str, list[list[str]]] = {
        kind: [[*own, kind, brokers, f"in-{kind}", f"out-{kind}", f"loop-{kind}"]] for kind in ("c", "python")
    }
    go = build_go(folder)
    if go is not None:
        found["go"] = [[str(go), brokers, "in-go", "out-go", "loop-go"]]
    try:
        jars = peers.kafka_jars()
        peers.java()
    except peers.PeerUnavailable as reason:
        print(f"without Java: {reason}", flush=True)
        return found
    found["java"] = [
        peers.java_command(
            jars,
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", brokers, "--input-topic", "in-java", "--input-partition", str(partition)),
            *("--output-topic", "out-java", "--consumer-group", f"loop-java-{partition}"),
            *("--transactional-id", f"loop-java-{partition}", "--transaction-size", str(BATCH)),
            *("--max-messages", str(records), "--transaction-timeout", "10000", "--enable-random-aborts"),
            *("--use-group-metadata",),
        )
        for partition in range(partitions)
    ]
    return found


def build_go(folder: Path) -> Path | None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        print("without Go: there is no go command", flush=True)
        return None
    source = folder / "go"
    shutil.copytree(Path(__file__).parent / "go", source)
    target = folder / "go-loop"
    built = subprocess.run(
        [go, "build", "-mod=mod", "-o", str(target), "."], cwd=source, capture_output=True, text=True, check=False
    )
    if built.returncode:
        print(f"without Go: {built.stderr.strip()[-300:]}", flush=True)
        return None
    return target


def loop_c(brokers: str, source: str, target: str, name: str) -> None:
    """librdkafka, by way of confluent-kafka."""
    from confluent_kafka import Consumer, Producer

    producer = Producer(
        {"bootstrap.servers": brokers, "transactional.id": name, "transaction.timeout.ms": 10_000, **CLIENT}
    )
    producer.init_transactions(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": name,
            "session.timeout.ms": 10_000,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **CLIENT,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(BATCH, 0.3)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(message.error())
            producer.produce(target, message.value(), partition=message.partition())
        offsets = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)


async def loop_python(brokers: str, source: str, target: str, name: str) -> None:
    """aiokafka: a client without a line of C or Java in its protocol."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=brokers, transactional_id=name, transaction_timeout_ms=10_000)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=brokers,
        group_id=name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=10_000,
    )
    await producer.start()
    await consumer.start()
    while True:
        fetched = await asyncio.wait_for(consumer.getmany(timeout_ms=300, max_records=BATCH), SECONDS * 3)
        if not fetched:
            continue
        async with asyncio.timeout(SECONDS * 3), producer.transaction():
            for partition, messages in fetched.items():
                for message in messages:
                    await producer.send(target, message.value, partition=partition.partition)
            positions = {partition: messages[-1].offset + 1 for partition, messages in fetched.items()}
            await producer.send_offsets_to_transaction(positions, name)


def main(kind: str, *arguments: str) -> None:
    try:
        if kind == "c":
            loop_c(*arguments)
        else:
            asyncio.run(loop_python(*arguments))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)  # a crash like any other: no goodbyes that could wait for a broker


if __name__ == "__main__":
    main(*sys.argv[1:])
