"""Formats of records: bytes ↔ columns. `Format` in a connector's options takes `format: json` or `{type: json, …}`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from penstock.pipelines.formats.avro import AvroFormat
from penstock.pipelines.formats.protobuf import ProtobufFormat
from penstock.pipelines.formats.text import BytesFormat, CsvFormat, JsonFormat, StringFormat

__all__ = [
    "AvroFormat",
    "BytesFormat",
    "CsvFormat",
    "FormatOption",
    "JsonFormat",
    "ProtobufFormat",
    "StringFormat",
]


def _long_form(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


AnyFormat = Annotated[
    JsonFormat | AvroFormat | ProtobufFormat | CsvFormat | StringFormat | BytesFormat,
    Field(discriminator="type"),
]
FormatOption = Annotated[AnyFormat, BeforeValidator(_long_form)]
