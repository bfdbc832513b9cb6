"""Orders of a topic as a streaming table, and back into a topic: Spark's decorators, our source and sink."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
bootstrap = os.environ["PENSTOCK_BOOTSTRAP"]

dp.create_sink("large_orders", "penstock", {"kafka.bootstrap.servers": bootstrap, "topic": "orders.large"})


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value AS STRING), 'id STRING, amount DOUBLE') AS order")
        .selectExpr("order.id", "order.amount")
    )


@dp.append_flow(target="large_orders")
def to_topic() -> DataFrame:
    return (
        spark.readStream.table("orders").where("amount >= 100").selectExpr("id AS key", "to_json(struct(*)) AS value")
    )
