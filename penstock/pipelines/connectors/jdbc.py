"""Any database with a JDBC driver, through Spark and a jar of the user's. At least once: JDBC knows no batch ids.

For PostgreSQL, MariaDB, MySQL and SQLite the connector `sql` is exactly once, merges and deletes, and needs no jar. The
jar goes into the pipeline's settings: `settings: {spark: {spark.jars: /path/driver.jar}}`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from penstock.pipelines.connectors.base import Batch, Loaded, Sink, Source
from penstock.pipelines.spec import Frozen, SpecError


class JdbcSource(Source):
    """A table or query, read anew for each batch: something to join with."""

    class Options(Frozen):
        url: str  # `jdbc:…`, as the driver takes it
        driver: str | None = None  # the driver's Java class
        table: str | None = None  # give either `table` or `query`
        query: str | None = None  # SQL of the database
        user: str | None = None  # who connects
        password: str | None = None  # a reference, such as `${env:NAME}`
        spark_options: dict[str, str] = Field(default_factory=dict)  # Spark's own options of its JDBC source

        @model_validator(mode="after")
        def _one(self) -> JdbcSource.Options:
            if (self.table is None) == (self.query is None):
                raise ValueError("give either table or query")
            return self

    def identity(self) -> str:
        return f"jdbc {self.options.table or self.options.query}"

    def load(self) -> Loaded:
        wanted = {"dbtable": self.options.table} if self.options.table else {"query": self.options.query}
        try:
            return Loaded(self.context.spark.read.format("jdbc").options(**_common(self.options), **wanted).load())
        except Exception as error:
            raise SpecError(f"source {self.name}: {first_line(error)}") from None


class JdbcSink(Sink):
    """Appends, at least once: a batch that comes again after a crash is appended again. `sql` is exactly once."""

    class Options(Frozen):
        url: str  # `jdbc:…`, as the driver takes it
        table: str  # where rows go
        driver: str | None = None  # the driver's Java class
        user: str | None = None  # who connects
        password: str | None = None  # a reference, such as `${env:NAME}`
        spark_options: dict[str, str] = Field(default_factory=dict)  # Spark's own options of its JDBC writer
        mode: Literal["append", "overwrite"] = "append"  # overwrite: each batch replaces the table

    def write(self, rows: Any, batch: Batch) -> None:
        writer = rows.write.format("jdbc").options(**_common(self.options), dbtable=self.options.table)
        writer.mode(self.options.mode).save()


def _common(options: Any) -> dict[str, str]:
    made = {"url": options.url, **options.spark_options}
    for name in ("driver", "user", "password"):
        value = getattr(options, name)
        if value is not None:
            made[name] = value
    return made


def first_line(error: Exception) -> str:
    """The useful line of what Spark says about Java's trouble."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.splitlines()[0][:300] if text else type(error).__name__
