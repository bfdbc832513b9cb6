"""Formats that Spark reads by itself: JSON, CSV, strings and bytes."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final, Literal

from pydantic import Field

from penstock.pipelines.formats.base import CORRUPT, Format, FormatContext, described, parse_ddl
from penstock.pipelines.spec import SpecError

_EMPTY: Final = "\x00empty"


def _with_corrupt(columns: Any) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*columns.fields, StructField(CORRUPT, StringType())])


def _text(value: Any) -> Any:
    """Bytes as text; what is no UTF-8 becomes null, which the caller treats as corrupt."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.try_validate_utf8(value.cast("string"))


def _is_alone(text: Any) -> Any:
    """Whether nothing follows a JSON value: Spark reads the first one and ignores the rest.

    In a list only a bracket may end what follows the value unnoticed, in an object only a comma or a brace: so that
    both are read well, and the list has one element, only if there is nothing.
    """
    from pyspark.sql import functions as F  # noqa: N812

    in_list = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    in_object = F.json_object_keys(F.concat(F.lit('{"v":'), text, F.lit("}"))).isNotNull()
    return F.coalesce(in_list & in_object, F.lit(False))


class JsonFormat(Format):
    """JSON objects. Without a schema it is inferred from the topic's first records once, and kept."""

    type: Literal["json"] = "json"
    schema_: str | None = Field(default=None, alias="schema")  # such as `id STRING, amount DOUBLE`
    timestamp_format: str | None = None  # Spark's pattern for timestamps that are read

    def columns(self, context: FormatContext) -> Any:
        from pyspark.sql.types import StructType

        if self.schema_ is not None:
            return parse_ddl(self.schema_, context.spark)
        kept = context.recall()
        if kept is not None:
            return StructType.fromJson(json.loads(kept))
        inferred = _infer(context)
        context.keep(inferred.json())
        return inferred

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        if self.timestamp_format is not None:
            options["timestampFormat"] = self.timestamp_format
        # Spark takes an empty text for a missing value, and an array for many records: both are corrupt here.
        text = F.coalesce(_text(value), F.lit(_EMPTY))
        text = F.when(F.ltrim(text, F.lit(" \t\r\n")).startswith("{") & _is_alone(text), text).otherwise(F.lit(_EMPTY))
        return F.when(value.isNotNull(), F.from_json(text, _with_corrupt(columns), options))

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        return F.to_json(F.struct(*[F.col(f"`{name}`") for name in names]), {"ignoreNullFields": "false"})

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        try:
            parsed = json.loads(value.decode("utf-8"))
        except ValueError as error:
            return described(error)
        if not isinstance(parsed, dict):
            return f"the value is a JSON {type(parsed).__name__}, not an object", ""
        return "a field does not fit the schema", ""


def _infer(context: FormatContext) -> Any:
    from pyspark.sql.types import StructType

    texts = []
    for value in context.sample():
        try:
            parsed = json.loads(value)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            texts.append((json.dumps(parsed),))
    if not texts:
        raise SpecError(
            f"topic {context.subject!r} holds no JSON object yet to infer the schema from;"
            ' give one: format: {type: json, schema: "id STRING, amount DOUBLE"}, or name another format, as string'
        )
    lines = context.spark.createDataFrame(texts, "value STRING")
    inferred = context.spark.read.json(lines.rdd.map(lambda row: row.value)).schema
    assert isinstance(inferred, StructType)
    return inferred


class CsvFormat(Format):
    """One line of cells, in the order of the schema."""

    type: Literal["csv"] = "csv"
    schema_: str = Field(alias="schema")  # such as `id STRING, amount DOUBLE`
    separator: str = Field(default=",", min_length=1, max_length=1)  # one character between cells

    def columns(self, context: FormatContext) -> Any:
        return parse_ddl(self.schema_, context.spark)

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "sep": self.separator}
        fields = ", ".join(f"`{item.name}` {item.dataType.simpleString()}" for item in columns.fields)
        parsed = F.from_csv(F.coalesce(_text(value), F.lit("")), f"{fields}, `{CORRUPT}` string", options)
        return F.when(value.isNotNull(), parsed)

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        return F.to_csv(F.struct(*[F.col(f"`{name}`") for name in names]), {"sep": self.separator})

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        try:
            cells = next(csv.reader(io.StringIO(value.decode("utf-8")), delimiter=self.separator), [])
        except (ValueError, csv.Error) as error:
            return described(error)
        return f"the line has {len(cells)} cells that do not fit the schema {self.schema_}", ""


class StringFormat(Format):
    """UTF-8 text in a column `value`."""

    type: Literal["string"] = "string"

    def columns(self, context: FormatContext) -> Any:
        return parse_ddl("value STRING", context.spark)

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        corrupt = F.when(value.isNotNull() & _text(value).isNull(), F.lit("not UTF-8"))
        return F.struct(_text(value).alias("value"), corrupt.alias(CORRUPT))

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        return _only_column(rows, names, self.type).cast("string")

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            return described(error)
        return corrupt, ""


class BytesFormat(Format):
    """The value as it is, in a column `value`."""

    type: Literal["bytes"] = "bytes"

    def columns(self, context: FormatContext) -> Any:
        return parse_ddl("value BINARY", context.spark)

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        return F.struct(value.alias("value"), F.lit(None).cast("string").alias(CORRUPT))

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        return _only_column(rows, names, self.type).cast("binary")


def _only_column(rows: Any, names: list[str], what: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if "value" in names:
        return F.col("value")
    if len(names) == 1:
        return F.col(f"`{names[0]}`")
    raise SpecError(f"format {what} writes one column; the rows have {', '.join(names)}. Name one of them value")
