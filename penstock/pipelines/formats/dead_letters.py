"""Records that cannot be used, in the shape in which they go to the dead-letter topic.

Key and value stay as they were; headers named `penstock.dlq.*` are added to those of the record.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.pipelines.formats.base import Format

PREFIX: Final = "penstock.dlq."
REASON, STACK, PIPELINE, SOURCE = f"{PREFIX}reason", f"{PREFIX}stack", f"{PREFIX}pipeline", f"{PREFIX}source"
TOPIC, PARTITION, OFFSET, TIMESTAMP = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset", f"{PREFIX}timestamp"
EXPECTATION: Final = f"{PREFIX}expectation"
STEP, EXPRESSION, QUERY = f"{PREFIX}step", f"{PREFIX}expression", f"{PREFIX}query"
# Letters carry headers on top of what may have been a record of the largest size.
LETTER_SETTINGS: Final = {"max.message.bytes": "16777216"}
# A letter that comes back through the pipeline's own retry topic: whose record it is.
RETRY_SUFFIX: Final = ".retry"
RETRY_SOURCE: Final = "penstock.retry.source"


def dead_letters(bad: Any, fmt: Format, corrupt: str, pipeline: str, source: str) -> Any:
    """Raw records that did not decode, as rows for the dead-letter topic."""
    from pyspark.sql import functions as F  # noqa: N812

    def explain(value: bytes | None, left: str | None) -> tuple[str, str]:
        return fmt.explain(bytes(value or b""), left or "")

    explain.__annotations__ = {}  # Spark would take them for those of a pandas function
    explained = F.udf(explain, "reason STRING, stack STRING").asNondeterministic()
    named = bad.withColumn("_why", explained(F.col("value"), F.col(corrupt)))
    added = [
        header(REASON, F.col("_why.reason")),
        header(STACK, F.col("_why.stack")),
        header(PIPELINE, F.lit(pipeline)),
        header(SOURCE, F.lit(source)),
        header(TOPIC, F.col("topic")),
        header(PARTITION, F.col("partition")),
        header(OFFSET, F.col("offset")),
        header(TIMESTAMP, F.unix_millis("timestamp")),
    ]
    headers = F.concat(F.coalesce(F.col("headers"), _none()), F.array(*added))
    return named.select(F.col("key"), F.col("value"), headers.alias("headers"))


def rejected(rows: Any, label: str, condition: str, pipeline: str, view: str) -> Any:
    """Rows that do not meet an expectation: their columns as JSON, and where they came from as far as it is known."""
    from pyspark.sql import functions as F  # noqa: N812

    added = [
        header(REASON, F.lit(f"expectation {label!r} is not met: {condition}")),
        header(EXPECTATION, F.lit(label)),
        header(PIPELINE, F.lit(pipeline)),
        header(SOURCE, F.lit(view)),
    ]
    return as_letters(rows, added)


def raised(guard: Any, pipeline: str, query: str) -> Any:
    """Rows that made a step raise: what the step read, as JSON, which expression it was, and which query lacks them."""
    from pyspark.sql import functions as F  # noqa: N812

    flags = [F.col(f"_raised{number}") for number in range(len(guard.expressions))]
    rows = guard.rows.withColumn("_expression", F.coalesce(*flags)).where("_expression IS NOT NULL")
    added = [
        header(REASON, F.concat(F.lit(f"{guard.step} raised an error in "), F.col("_expression"))),
        header(STEP, F.lit(guard.step)),
        header(EXPRESSION, F.col("_expression")),
        header(QUERY, F.lit(query)),
        header(PIPELINE, F.lit(pipeline)),
        header(SOURCE, F.lit(guard.step.partition(" ")[2])),
    ]
    return as_letters(rows, added)


def as_letters(rows: Any, added: list[Any]) -> Any:
    """Rows as records: columns as JSON, the key they came with, and where they came from as far as it is known."""
    from pyspark.sql import functions as F  # noqa: N812

    own = [name for name in rows.columns if not name.startswith("_")]
    value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in own]), {"ignoreNullFields": "false"}).cast("binary")
    for name, column in ((TOPIC, "_topic"), (PARTITION, "_partition"), (OFFSET, "_offset")):
        if column in rows.columns:
            added.append(header(name, F.col(column)))
    key = F.col("_key").cast("binary") if "_key" in rows.columns else F.lit(None).cast("binary")
    return rows.select(key.alias("key"), value.alias("value"), F.array(*added).alias("headers"))


def header(name: str, value: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _none() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.array().cast("array<struct<key:string,value:binary>>")
