"""One query over topics, as a batch: what `penstock sql` runs.

`topic('orders')` in the text becomes a table: the topic between two times, decoded. Options may follow the name:
`topic('orders', format => 'avro', registry => 'http://host:8081', since => '1 hour')`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.pipelines.adhoc_guard import CALL
from penstock.pipelines.connectors.topic import TopicSource
from penstock.pipelines.connectors.topic_sample import first_values
from penstock.pipelines.durations import duration_ms
from penstock.pipelines.formats.base import CORRUPT, FormatContext
from penstock.pipelines.problems import reason_of
from penstock.pipelines.sessions import fresh_session
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spec import SpecError, unknown_key, validated

_ARGUMENT: Final = re.compile(r"(\w+)\s*=>\s*'((?:[^']|'')*)'")
_ARGUMENTS: Final = ("format", "schema", "registry", "descriptor_file", "message", "since", "until")
_EARLIEST: Final = -2


@dataclass(frozen=True)
class Defaults:
    """What holds for every topic of a query unless the call says otherwise."""

    format: str = "json"
    since: str | None = None
    until: str | None = None


def insist_on_topics(text: str) -> None:
    if CALL.search(text) is None:
        raise SpecError("the query names no topic; write … FROM topic('orders')")


def query(text: str, spark: Any, properties: Mapping[str, str], defaults: Defaults) -> Any:
    """The query's DataFrame; SpecError says what is wrong with it."""
    insist_on_topics(text)
    fresh = fresh_session(spark)
    count = 0

    def table(found: re.Match[str]) -> str:
        nonlocal count
        name = f"__topic_{count}"
        count += 1
        arguments = {key.lower(): value.replace("''", "'") for key, value in _ARGUMENT.findall(found[2])}
        for key in arguments:
            if key not in _ARGUMENTS:
                raise SpecError(unknown_key(key, f"topic('{found[1]}')", list(_ARGUMENTS)))
        rows = _topic(found[1].replace("''", "'"), arguments, fresh, properties, defaults)
        rows.createOrReplaceTempView(name)
        return name

    rewritten = CALL.sub(table, text)
    try:
        return fresh.sql(rewritten)
    except Exception as error:
        raise SpecError(reason_of(error)) from None


def _topic(
    name: str, arguments: Mapping[str, str], spark: Any, properties: Mapping[str, str], defaults: Defaults
) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    client = client_for(dict(properties))
    found = client.metadata([name]).topics.get(name)
    if found is None or found.error_code:
        raise SpecError(f"there is no topic {name!r}")
    options = validated(TopicSource.Options, {"topic": name, "format": _format(arguments, defaults)})
    context = FormatContext(spark, subject=name, sample=lambda: first_values(client, [name], start=_EARLIEST))
    columns = options.format.columns(context)
    reader = {f"kafka.{key}": value for key, value in properties.items()}
    reader |= {"subscribe": name, "includeHeaders": "true", "startingOffsetsByTimestampStrategy": "latest"}
    since, until = arguments.get("since", defaults.since), arguments.get("until", defaults.until)
    if since is not None:
        reader["startingTimestamp"] = str(time_ms(since))
    if until is not None:
        reader["endingTimestamp"] = str(time_ms(until))
    raw = spark.read.format("penstock").options(**reader).load()
    decoded = raw.withColumn("_d", options.format.decode(F.col("value"), columns, context))
    return decoded.select(
        *[F.col(f"_d.`{item.name}`").alias(item.name) for item in columns.fields],
        F.col("key").cast("string").alias("_key"),
        *[F.col(item).alias(f"_{item}") for item in ("topic", "partition", "offset", "timestamp", "headers")],
        F.col(f"_d.{CORRUPT}").alias("_error"),
    )


def _format(arguments: Mapping[str, str], defaults: Defaults) -> dict[str, Any]:
    made: dict[str, Any] = {"type": arguments.get("format", defaults.format)}
    for key in ("schema", "descriptor_file", "message"):
        if key in arguments:
            made[key] = arguments[key]
    if "registry" in arguments:
        made["registry"] = {"url": arguments["registry"]}
    return made


def time_ms(text: str) -> int:
    """`2026-11-15T12:00`, milliseconds since 1970, or how long ago: `1 hour`."""
    if text.isdigit():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        try:
            return int(time.time() * 1000) - duration_ms(text)
        except ValueError:
            raise SpecError(f"{text!r} is no time; write 2026-11-15T12:00, or how long ago, like 1 hour") from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
