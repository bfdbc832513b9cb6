"""Spark reading and writing topics: `format("penstock")` beside Spark's own Kafka connector, one broker, one session.

Values of 100 bytes, four partitions. Rows per second by the clock, and CPU seconds per million rows of everything that
Spark runs (driver, JVM, Python workers). PENSTOCK_BENCH_ROWS changes the size.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

from bench import report
from bench.processes import cpu_seconds
from bench.report import Row
from bench.stage import whole
from bench.targets import Target, penstock_broker
from penstock.testing import peers

ROWS = int(os.environ.get("PENSTOCK_BENCH_ROWS", "3000000"))
PARTITIONS = 4
CODECS = ("none", "lz4")


def run(rounds: int, seconds: float) -> list[Row]:
    del seconds  # a round is as long as its rows take
    jars = ",".join(str(path) for path in peers.spark_kafka_connector_jars())
    with penstock_broker() as target:
        spark = _session(jars)
        try:
            return [*_source_rows(spark, target, rounds), *_sink_rows(spark, target, rounds)]
        finally:
            spark.stop()


def _session(jars: str) -> Any:
    from penstock.pipelines.spark.session import session

    settings = {"spark.jars": jars, "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(PARTITIONS)}
    return session("bench", master="local[2]", settings=settings)


# --- source ---


def _source_rows(spark: Any, target: Target, rounds: int) -> list[Row]:
    rows = []
    for codec in CODECS:
        topic = f"bench-source-{codec}"
        _create(target, topic)
        _generated(spark).write.format("penstock").option("kafka.bootstrap.servers", target.bootstrap).option(
            "topic", topic
        ).option("kafka.compression.type", codec).option("deliveryGuarantee", "at-least-once").mode("append").save()
        measures = {side: _reader(spark, target, topic, side) for side in ("penstock", "kafka")}
        rows += _compare(f"Spark reads a topic, {codec}", report.alternate(rounds, _warmed(measures)), times=3.0)
    return rows


def _reader(spark: Any, target: Target, topic: str, side: str) -> Callable[[], dict[str, float]]:
    def read() -> None:
        table = (
            spark.read.format(side)
            .option("kafka.bootstrap.servers", target.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        table.select("key", "value").write.format("noop").mode("overwrite").save()

    return _measured(read)


# --- sink ---


def _sink_rows(spark: Any, target: Target, rounds: int) -> list[Row]:
    measures = {}
    for side in ("penstock", "kafka"):
        topic = f"bench-sink-{side}"
        _create(target, topic)
        measures[side] = _writer(spark, target, topic, side)
    figures = report.alternate(rounds, _warmed(measures))
    return _compare("Spark writes a topic (exactly once; the connector: at least once)", figures, times=1.0)


def _writer(spark: Any, target: Target, topic: str, side: str) -> Callable[[], dict[str, float]]:
    def write() -> None:
        writer = _generated(spark).write.format(side).option("kafka.bootstrap.servers", target.bootstrap)
        writer.option("topic", topic).mode("append").save()

    return _measured(write)


# --- both ---


def _generated(spark: Any) -> Any:
    """Keys of some bytes, values of 100 bytes that compress as text does."""
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "cast(cast(id as string) as binary) as key",
        "cast(concat('order ', lpad(id, 10, '0'), ' ', md5(cast(id as string)), rpad('', 51, 'abcdefg ')) as binary)"
        " as value",
    )


def _create(target: Target, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def _warmed(measures: dict[str, Callable[[], dict[str, float]]]) -> dict[str, Callable[[], dict[str, float]]]:
    """Each side runs once before it counts: JIT compilers and Python workers start then."""
    for measure in measures.values():
        measure()
    return measures


def _measured(work: Callable[[], None]) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        cpu = cpu_seconds(os.getpid())
        began = time.perf_counter()
        work()
        return {
            "rows_per_second": ROWS / (time.perf_counter() - began),
            "cpu_per_million": (cpu_seconds(os.getpid()) - cpu) / ROWS * 1e6,
        }

    return measure


def _compare(name: str, figures: dict[str, dict[str, float]], times: float) -> list[Row]:
    ours, theirs = figures["penstock"], figures["kafka"]
    section = "Spark beside its own Kafka connector, on the same Penstock broker"
    rows = [
        report.at_least(section, name, "rows/s", ours["rows_per_second"], theirs["rows_per_second"], times),
        report.at_most(
            section, f"{name}: CPU", "s per million rows", ours["cpu_per_million"], theirs["cpu_per_million"], 1.0
        ),
    ]
    return [dataclasses.replace(row, peer="Spark's connector") for row in rows]


STAGES = whole(run)
