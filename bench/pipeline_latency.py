"""How long a row takes: topic → filter → topic in Spark, 1,000 rows a second, beside Spark's own Kafka connector.

A row carries the time of its writing; a read_committed consumer compares it with the time of its arrival. The connector
writes at least once, without transactions.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from bench.report import Row
from bench.targets import Target
from penstock.testing import peers

SECTION = "Pipelines: how long a row takes"
ROWS_PER_SECOND = int(os.environ.get("PENSTOCK_BENCH_RATE", "1000"))
WARM_UP_SECONDS = 15.0


def latency_rows(target: Target, seconds: float) -> list[Row]:
    from penstock.pipelines.spark.session import session

    jars = ",".join(str(path) for path in peers.spark_kafka_connector_jars())
    spark = session("latency", master="local[2]", settings={"spark.jars": jars, "spark.driver.memory": "1g"})
    try:
        figures = {side: _measure(spark, target, side, max(20.0, seconds)) for side in ("penstock", "kafka")}
    finally:
        spark.stop()
    name = f"topic → filter → topic, {ROWS_PER_SECOND:,} rows/s"
    rows = []
    for part, index in (("p50", 0), ("p99", 1)):
        ours, theirs = figures["penstock"][index], figures["kafka"][index]
        limit = 300.0 if part == "p50" else 1000.0
        goal = f"≤ {limit:g} ms"
        row = Row(SECTION, f"{name}: {part}", "ms", ours, theirs, goal, ours <= limit, "Spark's connector")
        rows.append(row)
    return rows


def _measure(spark: Any, target: Target, side: str, seconds: float) -> tuple[float, float]:
    from confluent_kafka.admin import AdminClient, NewTopic

    label = uuid.uuid4().hex[:6]
    source, sink = f"latency-in-{label}", f"latency-out-{label}"
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    for made in admin.create_topics([NewTopic(source, 2, 1), NewTopic(sink, 2, 1)]).values():
        made.result(60)
    with tempfile.TemporaryDirectory(prefix="penstock-latency-") as folder:
        query = _query(spark, target, side, source, sink, Path(folder))
        over = threading.Event()
        writing = threading.Thread(target=_write, args=(target, source, over))
        writing.start()
        try:
            delays = _read(target, sink, seconds)
        finally:
            over.set()
            writing.join()
            query.stop()
    cuts = statistics.quantiles(delays, n=100)
    return cuts[49], cuts[98]


def _query(spark: Any, target: Target, side: str, source: str, sink: str, folder: Path) -> Any:
    options = {"kafka.bootstrap.servers": target.bootstrap}
    rows = spark.readStream.format(side).options(**options, subscribe=source, startingOffsets="latest").load()
    kept = rows.where("length(value) > 3").select("key", "value")
    writer = kept.writeStream.format(side).options(**options, topic=sink, checkpointLocation=str(folder))
    return writer.trigger(processingTime="0 seconds").start()


def _write(target: Target, topic: str, over: threading.Event) -> None:
    """So many rows a second, in steps of ten milliseconds."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0, "log_level": 0})
    began, written = time.perf_counter(), 0
    while not over.wait(0.01):
        due = int((time.perf_counter() - began) * ROWS_PER_SECOND)
        while written < due:
            producer.produce(topic, str(time.time()).encode(), str(written).encode())
            written += 1
        producer.poll(0)
    producer.flush(30)


def _read(target: Target, topic: str, seconds: float) -> list[float]:
    """Milliseconds of the rows that arrive after the warm-up."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": target.bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0}
    settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    delays: list[float] = []
    first: float | None = None
    try:
        while first is None or time.perf_counter() < first + WARM_UP_SECONDS + seconds:
            for message in consumer.consume(1000, 0.05):
                if message.error():
                    continue
                first = first or time.perf_counter()
                if time.perf_counter() > first + WARM_UP_SECONDS:
                    delays.append((time.time() - float(message.value())) * 1000)
    finally:
        consumer.close()
    return delays
