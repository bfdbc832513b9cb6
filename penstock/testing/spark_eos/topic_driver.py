"""The driver that the exactly-once proof kills: topic → Spark with a step that never gives the same twice → topic.

Arguments: BOOTSTRAP SOURCE TARGET CHECKPOINT ROWS_PER_BATCH MASTER random|repeatable
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    bootstrap, source, target, checkpoint, rows_per_batch, master, kind = arguments
    from penstock.pipelines.spark.session import session

    spark = session(
        "exactly-once proof",
        master=master,
        settings={
            "spark.driver.memory": "700m",
            "spark.executor.memory": "500m",
            "spark.sql.shuffle.partitions": "3",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
    )
    if kind == "random":
        # Other values and other partitions whenever a batch is computed again: only a sink that asks nothing of the
        # pipeline keeps this right.
        shuffled = rows.selectExpr("value", "rand() as luck").repartition(3, "luck")
        written = shuffled.selectExpr("uuid() as key", "concat(cast(value as string), ' ', uuid()) as value")
    else:
        written = rows.selectExpr("cast(value as string) as key", "cast(value as string) as value")
    query = (
        written.writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("running", flush=True)
    query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
