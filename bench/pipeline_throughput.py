"""How many rows a pipeline takes in a second: JSON, Avro, and a join with the newest row of each of a million keys.

Each is a pipeline from topic to topic that runs until it has caught up, in a Spark that is warm already. Figures are
rows of the source by seconds from the start of the queries to their end; without a bound, to be compared with
earlier ones.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from bench.report import Median, Row
from bench.targets import Target

SECTION = "Pipelines: rows a second"
ROWS = int(os.environ.get("PENSTOCK_BENCH_ROWS", "400000"))
KEYS = int(os.environ.get("PENSTOCK_BENCH_KEYS", "1000000"))
COLUMNS = "id INT, customer STRING, amount DOUBLE"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}
Record = tuple[bytes | None, bytes]


def throughput_rows(target: Target, rounds: int) -> list[Row]:
    from penstock.pipelines.spark.session import session

    spark = session("throughput", master="local[2]", settings={"spark.driver.memory": "2g"})
    try:
        _run(spark, target, _filtering({"type": "json", "schema": COLUMNS}, _filled(target, _orders(_as_json, 1000))))
        json_topic, avro_topic = (_filled(target, _orders(encode, ROWS)) for encode in (_as_json, _as_avro))
        customers = _filled(target, ((b"%d" % key, b'{"name":"customer %d"}' % key) for key in range(KEYS)))
        specs = {
            "JSON → filter → JSON": _filtering({"type": "json", "schema": COLUMNS}, json_topic),
            "Avro → filter → JSON": _filtering({"type": "avro", "schema": AVRO}, avro_topic),
            f"JSON joined with the newest of {KEYS:,} keys (these read first)": _joining(json_topic, customers),
        }
        rows = []
        for name, spec in specs.items():
            seen = [ROWS / _run(spark, target, spec) for _ in range(rounds)]
            rows.append(Row(SECTION, name, "rows/s", Median.of(seen), None, "on record", True, spread=_spread(seen)))
        return rows
    finally:
        spark.stop()


def _spread(seen: list[float]) -> str:
    return f"{min(seen):,.0f}–{max(seen):,.0f}, median {statistics.median(seen):,.0f}"


def _run(spark: Any, target: Target, spec: dict[str, Any]) -> float:
    from penstock.pipelines.execution import Execution, Place
    from penstock.pipelines.spec import from_data

    label = uuid.uuid4().hex[:6]
    sinks = {"out": {**spec["sinks"]["out"], "topic": f"out-{label}"}}
    made = from_data({**spec, "name": f"rate-{label}", "sinks": sinks})
    create(target, f"out-{label}")
    with tempfile.TemporaryDirectory(prefix="penstock-rate-") as folder:
        execution, prepared = Execution.prepare(made, spark, Place({"bootstrap.servers": target.bootstrap}, folder))
        began = time.perf_counter()
        try:
            execution.start(prepared, until_caught_up=True)
            execution.wait(lambda name, progress: None, lambda: False)
        finally:
            execution.stop()
        return time.perf_counter() - began


def _filtering(form: dict[str, Any], topic: str) -> dict[str, Any]:
    return {
        "sources": {"orders": {"topic": topic, "format": form}},
        "views": {"kept": "SELECT id, customer, amount FROM orders WHERE amount >= 0"},
        "sinks": {"out": {"from": "kept", "key": "id"}},
    }


def _joining(orders: str, customers: str) -> dict[str, Any]:
    return {
        "sources": {
            "orders": {"topic": orders, "format": {"type": "json", "schema": COLUMNS}},
            "customers": {"topic": customers, "format": {"type": "json", "schema": "name STRING"}},
        },
        "views": {"named": {"operator": "join-latest", "from": ["orders", "customers"], "by": "customer"}},
        "sinks": {"out": {"from": "named", "key": "id"}},
    }


def _orders(encode: Callable[[dict[str, Any]], bytes], count: int) -> Iterable[Record]:
    for number in range(count):
        customer = str(number * 7919 % KEYS)
        yield b"%d" % number, encode({"id": number, "customer": customer, "amount": number / 4})


def _as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


def _as_avro(row: dict[str, Any]) -> bytes:
    import fastavro

    written = io.BytesIO()
    fastavro.schemaless_writer(written, AVRO, row)
    return written.getvalue()


def _filled(target: Target, records: Iterable[Record]) -> str:
    from confluent_kafka import Producer

    topic = f"rate-in-{uuid.uuid4().hex[:6]}"
    create(target, topic)
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 50, "log_level": 0})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise TimeoutError(f"{topic} could not be written")
    return topic


def create(target: Target, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": target.bootstrap})  # its answers end with it
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
