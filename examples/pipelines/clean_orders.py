"""The pipeline of clean-orders.yml in Python. Loading this file starts nothing."""

from penstock.pipelines import Pipeline

pipeline = Pipeline("clean-orders-python", trigger="500 ms")
pipeline.source(
    "orders",
    topic="orders",
    format={"type": "json", "schema": "id STRING, amount DOUBLE, country STRING, at TIMESTAMP"},
)


@pipeline.view
def clean(orders):
    from pyspark.sql import functions

    return orders.where("NOT _tombstone").select(
        "id", "amount", functions.upper(functions.trim("country")).alias("country"), "at"
    )


pipeline.expect(clean, "id IS NOT NULL", action="dead-letter")
pipeline.expect(clean, "amount > 0")
pipeline.sink("out", clean, topic="orders.clean", key="id", compression="lz4")
