"""Spark's own Kafka connector: a stream, at least once as it promises, with kills, and a batch.

`python -m penstock.testing.neighbours.spark stream|batch BOOTSTRAP FOLDER JARS` is the driver.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.testing import peers
from penstock.testing.neighbours.harness import Verdict, World, judge_numbers, missing

SOURCE, TARGET = "spark-in", "spark-out"
KILLS = 2


def run(world: World) -> Verdict:
    jars = ",".join(str(path) for path in peers.spark_kafka_connector_jars())
    world.create(SOURCE, TARGET)
    own = [sys.executable, "-m", "penstock.testing.neighbours.spark"]
    tail = [world.bootstrap, str(world.folder), jars]
    child = world.run([*own, "stream", *tail], "stream")
    chunk = world.records // (KILLS + 2)
    for number in range(KILLS + 2):
        seen = world.ended(TARGET)
        world.feed(SOURCE, number * chunk, world.records if number == KILLS + 1 else (number + 1) * chunk)
        world.until(lambda seen=seen: world.ended(TARGET) > seen, "Spark copies on", [(child, "stream")])  # type: ignore[misc]
        if number < KILLS:
            world.kill(child, "Spark's driver")
            child.start()
        elif number == KILLS:
            world.kill_a_broker()
    world.until(
        lambda: missing((int(r.value) for r in world.read(TARGET)), world.records) == 0,
        "Spark has copied everything",
        [(child, "stream")],
    )
    child.kill()
    found = world.read(TARGET)
    problems = judge_numbers(found, world.records, once=False)
    problems += _judge_batch(world, [*own, "batch", *tail])
    again = len(found) - len({record.value for record in found})
    return Verdict(
        "stream: every record at least once, in order; batch: exactly the records asked for by time, with headers",
        problems,
        f"{world.records:,} records, {again} of them again after a kill",
    )


def _judge_batch(world: World, command: list[str]) -> list[str]:
    batch = world.run(command, "batch")
    world.until(lambda: not batch.is_running, "the batch is read")
    expected = f"batch: {world.records // 2} rows, {world.records // 2} headers, from {world.records // 2}"
    return [] if expected in world.log("batch") else [f"wanted {expected!r}, was: {world.log('batch')[-1500:]}"]


def main(what: str, bootstrap: str, folder: str, jars: str) -> None:
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[2]").appName("neighbour").config("spark.jars", jars)
    made = made.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    spark = made.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": SOURCE, "includeHeaders": "true"}
    if what == "batch":
        # Records of the second half by their time, which is their number.
        half = _half(bootstrap)
        rows = spark.read.format("kafka").options(**options, startingTimestamp=str(1_750_000_000_000 + half)).load()
        found = rows.selectExpr("count(*)", "count(headers[0].value)", "min(cast(string(value) as int))").first()
        assert found is not None
        print(f"batch: {found[0]} rows, {found[1]} headers, from {found[2]}", flush=True)
        spark.stop()
        return
    rows = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    copy = rows.select("partition", "key", "value").writeStream.format("kafka")
    sink = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": TARGET,
        "checkpointLocation": str(Path(folder) / "checkpoint"),
    }
    copy.options(**sink).trigger(processingTime="0 seconds").start().awaitTermination()


def _half(bootstrap: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "half"})
    total = sum(reader.get_watermark_offsets(TopicPartition(SOURCE, p), 30)[1] for p in range(2))
    reader.close()
    return int(total) // 2


if __name__ == "__main__":
    main(*sys.argv[1:])
