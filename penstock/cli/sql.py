"""`penstock sql`: one query over topics, answered as a table, JSON lines or a Parquet folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.session import Session
from penstock.cli.typed import command, new_app
from penstock.operate.errors import ExitCode, UserError, usage_error

app = new_app("Query topics with Spark SQL.", no_args_is_help=True)

Text = Annotated[
    str, typer.Argument(help="For example: select country, count(*) from topic('orders') group by country")
]


@command(app, "sql")
def sql(
    session: Session,
    query: Text,
    format_: Annotated[str, typer.Option("--format", help="How values are written, unless topic(…) says.")] = "json",
    since: Annotated[str | None, typer.Option(help="From this time on: ISO, or how long ago, like '1 hour'.")] = None,
    until: Annotated[str | None, typer.Option(help="Up to this time.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write the answer to this folder instead of showing it.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many rows.")] = 1000,
) -> None:
    """Query topics: every record between two times, decoded. `_key`, `_offset`, `_timestamp`, … are columns too."""
    from penstock.cli.pipeline_base import insist_on_spark

    insist_on_spark()
    from penstock.pipelines.adhoc import Defaults, insist_on_topics
    from penstock.pipelines.adhoc import query as run_query
    from penstock.pipelines.problems import reason_of
    from penstock.pipelines.spark.session import session as spark_session
    from penstock.pipelines.spec import SpecError

    if parquet is not None and parquet.exists():
        raise usage_error(f"{parquet} exists already", "choose a new folder")
    try:
        insist_on_topics(query)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    session.client.metadata([])  # Spark takes a while to start: that nobody is there is told before
    try:
        spark = spark_session("penstock sql", log_level="off")
        rows = run_query(query, spark, session.properties, Defaults(format_, since, until))
        if parquet is not None:
            rows.write.parquet(str(parquet))
            count = spark.read.parquet(str(parquet)).count()
            session.output.result({"rows": count, "path": str(parquet)}, f"{count} rows are in {parquet}")
            return
        found = rows.limit(limit + 1).collect()
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    except Exception as error:
        raise UserError(reason_of(error)) from None
    session.output.rows([_row(row) for row in found[:limit]], rows.columns, empty="no rows", as_named=True)
    if len(found) > limit:
        session.output.note(f"only the first {limit} rows are shown; --limit shows more, --parquet keeps all")


def _row(row: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in row.asDict(recursive=True).items()}


def _value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return value if value is None or isinstance(value, str | int | float | bool | list | dict) else str(value)
