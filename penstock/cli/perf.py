"""`penstock perf`: how fast this cluster takes, gives and passes on records, with the client most programs use."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Measure produce, consume and end-to-end latency.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=suggest.topics)]
Records = Annotated[int, typer.Option("--records", "-n", min=1, help="How many.")]
Size = Annotated[int, typer.Option("--size", min=0, help="Bytes of a value.")]


def _report(session: Session, what: str, records: int, size: int, seconds: float, **more: Any) -> None:
    rate = records / seconds
    row = {"what": what, "records": records, "seconds": round(seconds, 3), "records_per_second": round(rate),
           "megabytes_per_second": round(rate * size / 1e6, 2), **more}  # fmt: skip
    sentence = f"{what}: {records} records in {seconds:.2f} s, {rate:,.0f} records/s, {rate * size / 1e6:.1f} MB/s"
    extra = "".join(f", {name.replace('_', ' ')} {value}" for name, value in more.items())
    session.output.result(row, sentence + extra)


@command(app)
def produce(
    session: Session,
    topic: Topic,
    records: Records = 1_000_000,
    size: Size = 100,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", "-z")] = "none",
) -> None:
    """Write random records as fast as it goes."""
    from confluent_kafka import Producer

    value = os.urandom(size)
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    settings = {"acks": acks, "compression.type": compression, "linger.ms": 5, "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000}  # fmt: skip
    producer = Producer(session.librdkafka(**settings))
    session.client.metadata([])  # a cluster that is not there is told
    producer.list_topics(topic, session.patience_seconds)  # connected before the clock runs
    began = time.perf_counter()
    with session.output.progress("writing", records) as progress:
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            if not number % 10_000:
                producer.poll(0)
                progress.update(number)
                if failures:
                    break
        left = producer.flush(60)
    seconds = time.perf_counter() - began
    if failures or left:
        if left or failures[0].name() == "_MSG_TIMED_OUT":
            raise session.unreachable(f"{left or len(failures)} records were not delivered")
        raise UserError(f"records were not delivered: {failures[0].str()}", code=ExitCode.REFUSED)
    _report(session, "produce", records, size, seconds)


@command(app)
def consume(session: Session, topic: Topic, records: Records = 1_000_000) -> None:
    """Read records from the beginning as fast as it goes."""
    from penstock.operate.record_reader import Ends, Reader

    reader = Reader(session, [topic], None, False, None)
    reader.start(True, None, None)
    ends = Ends(count=records, offsets=reader.end_offsets())
    began = time.perf_counter()
    size = 0
    with reader, session.output.progress("reading", records) as progress:
        for batch in reader.batches(ends):
            ends.shown += len(batch)
            size += sum(len(message) for message in batch)
            progress.update(ends.shown)
    seconds = time.perf_counter() - began
    if not ends.shown:
        raise UserError(f"{topic} is empty", "`penstock perf produce` fills it")
    _report(session, "consume", ends.shown, size // ends.shown, seconds)


@command(app, "end-to-end")
def end_to_end(
    session: Session,
    topic: Topic,
    records: Records = 10_000,
    size: Size = 100,
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Records per second.")] = 1000.0,
) -> None:
    """Write at a steady rate, read back, and tell how long records take."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    keys = [(topic, index) for index in admin.topic(session, topic).partitions]
    ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
    consumer = Consumer(session.librdkafka(**{"group.id": "penstock-perf", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(name, index, offset) for (name, index), (offset, _) in ends.items()])
    producer = Producer(session.librdkafka(**{"linger.ms": 0}))
    delays: list[float] = []
    mark = uuid.uuid4().hex[:8].encode()  # others may write to the topic, too: only what we wrote is measured
    padding = b" " * max(0, size - 33)
    stop = threading.Event()

    def read() -> None:
        while len(delays) < records and not stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and (message.value() or b"").startswith(mark):
                delays.append(time.perf_counter() - float(message.value().split()[1]))

    reader = threading.Thread(target=read)
    reader.start()
    began = time.perf_counter()
    try:
        for number in range(records):
            while (wait := began + number / rate - time.perf_counter()) > 0:
                producer.poll(min(wait, 0.001))
            producer.produce(topic, b"%s %.9f " % (mark, time.perf_counter()) + padding)
        producer.flush(30)
        reader.join(30)
    finally:
        stop.set()
        reader.join()
        consumer.close()
    if len(delays) < records:
        raise UserError(f"only {len(delays)} of {records} records came back")
    ordered = sorted(delays)
    marks = {f"p{mark}_ms": round(ordered[int(len(ordered) * mark / 100)] * 1e3, 2) for mark in (50, 95, 99)}
    _report(session, "end-to-end", records, size, time.perf_counter() - began, **marks)
