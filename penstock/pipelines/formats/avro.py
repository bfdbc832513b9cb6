"""Avro, with or without the wire format of a schema registry, through fastavro in Arrow functions.

With a registry, a value names the schema it was written with; it is read as the reader's schema: the one given, or the
subject's newest when the pipeline was planned. Without one, every value is read with the schema given.
"""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any, Literal

from pydantic import Field, model_validator

from penstock.pipelines.formats import avro_types
from penstock.pipelines.formats.arrow import decoding_function, encoding_function, explained
from penstock.pipelines.formats.base import Format, FormatContext
from penstock.pipelines.formats.registry import RegistryOptions, head, registry_for, split
from penstock.pipelines.spec import SpecError


class AvroFormat(Format):
    """Without a schema the subject's newest in the registry is read, and one made of the columns is written."""

    type: Literal["avro"] = "avro"
    schema_: str | dict[str, Any] | None = Field(default=None, alias="schema")  # Avro's JSON, as text or as YAML
    registry: RegistryOptions | None = None  # given: values are in its wire format
    subject: str | None = None  # in the registry; `<topic>-value` when absent

    @model_validator(mode="after")
    def _some_schema(self) -> AvroFormat:
        if isinstance(self.schema_, str):
            _parse(self.schema_)
        return self

    def columns(self, context: FormatContext) -> Any:
        return avro_types.spark_columns(json.loads(self._reader_text(context)))

    def _reader_text(self, context: FormatContext) -> str:
        if self.schema_ is not None:
            return self.schema_ if isinstance(self.schema_, str) else json.dumps(self.schema_)
        if self.registry is None:
            raise SpecError(f"topic {context.subject!r}: Avro needs a schema or a registry")
        kept = context.recall()
        if kept is None:
            kept = registry_for(self.registry).latest(self._subject(context))["schema"]
            context.keep(kept)
        return kept

    def _subject(self, context: FormatContext) -> str:
        return self.subject or f"{context.subject}-value"

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        return decoding_function(_Reader(self._reader_text(context), self.registry), columns)(value)

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        return explained(corrupt)

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        columns = rows.select(*[F.col(f"`{name}`") for name in names]).schema
        text = self._writer_text(columns, context)
        schema_id = None
        if self.registry is not None:
            schema_id = registry_for(self.registry).register(self._subject(context), text, "AVRO")
        return encoding_function(_Writer(text, schema_id))(F.struct(*[F.col(f"`{name}`") for name in names]))

    def _writer_text(self, columns: Any, context: FormatContext) -> str:
        if self.schema_ is not None:
            return self.schema_ if isinstance(self.schema_, str) else json.dumps(self.schema_)
        return json.dumps(avro_types.avro_schema(columns, context.subject))


@cache
def _parse(text: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"this is no Avro schema: {error}") from None


class _Reader:
    """bytes → dict; sent to the executors, so it holds text only."""

    def __init__(self, reader_text: str, registry: RegistryOptions | None) -> None:
        self._reader_text = reader_text
        self._registry = registry

    def __call__(self, value: bytes) -> dict[str, Any]:
        import fastavro

        reader = _parse(self._reader_text)
        writer = reader
        if self._registry is not None:
            schema_id, value = split(value)
            writer = _parse(registry_for(self._registry).by_id(schema_id)["schema"])
        stream = io.BytesIO(value)
        parsed: Any = fastavro.schemaless_reader(stream, writer, None if writer is reader else reader)
        left = len(value) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left after the value")
        if not isinstance(parsed, dict):
            raise ValueError(f"the value is no record but a {type(parsed).__name__}")
        return avro_types.plain(parsed, reader)


class _Writer:
    def __init__(self, text: str, schema_id: int | None) -> None:
        self._text = text
        self._head = b"" if schema_id is None else head(schema_id)

    def __call__(self, row: dict[str, Any]) -> bytes:
        import fastavro

        stream = io.BytesIO()
        stream.write(self._head)
        fastavro.schemaless_writer(stream, _parse(self._text), row)
        return stream.getvalue()


def write_value(schema: str | dict[str, Any], row: dict[str, Any]) -> bytes:
    """One value without a registry: what tests of pipelines feed in."""
    return _Writer(schema if isinstance(schema, str) else json.dumps(schema), None)(row)
