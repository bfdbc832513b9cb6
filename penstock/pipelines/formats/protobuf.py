"""Protocol Buffers, with or without the wire format of a schema registry.

The message type comes from a descriptor set (`protoc --include_imports --descriptor_set_out=orders.desc orders.proto`)
or from a registry that gives schemas as descriptors. Fields that are not set read as their defaults, as in Protobuf's
own JSON; messages, and fields with presence, as null.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from penstock.pipelines.formats.arrow import decoding_function, encoding_function, explained
from penstock.pipelines.formats.base import Format, FormatContext
from penstock.pipelines.formats.protobuf_types import fill_message, message_class, plain_message, spark_columns
from penstock.pipelines.formats.registry import RegistryOptions, head, registry_for, split
from penstock.pipelines.spec import SpecError


class ProtobufFormat(Format):
    type: Literal["protobuf"] = "protobuf"
    descriptor_file: str | None = None  # from `protoc --include_imports --descriptor_set_out=FILE`; or give `registry`
    descriptor: str | None = None  # the content of such a file, in base64; `apply` puts it in its place
    message: str | None = None  # full name; the descriptor's first message when absent
    registry: RegistryOptions | None = None  # given: values are in its wire format
    subject: str | None = None  # in the registry; `<topic>-value` when absent

    @model_validator(mode="after")
    def _some_descriptor(self) -> ProtobufFormat:
        if not (self.descriptor_file or self.descriptor or self.registry):
            raise ValueError("protobuf needs descriptor_file (from protoc --descriptor_set_out) or a registry")
        return self

    def columns(self, context: FormatContext) -> Any:
        return spark_columns(message_class(self._descriptor(context), self.message).DESCRIPTOR)

    def _descriptor(self, context: FormatContext) -> bytes:
        if self.descriptor is not None:
            return base64.b64decode(self.descriptor)
        if self.descriptor_file is not None:
            try:
                return Path(self.descriptor_file).read_bytes()
            except OSError as error:
                raise SpecError(f"descriptor_file {self.descriptor_file}: {error.strerror}") from None
        assert self.registry is not None
        kept = context.recall()
        if kept is None:
            kept = registry_for(self.registry).latest(self._subject(context), "serialized")["schema"]
            context.keep(kept)
        return base64.b64decode(kept)

    def _subject(self, context: FormatContext) -> str:
        return self.subject or f"{context.subject}-value"

    def decode(self, value: Any, columns: Any, context: FormatContext) -> Any:
        reader = _Reader(self._descriptor(context), self.message, self.registry is not None)
        return decoding_function(reader, columns)(value)

    def explain(self, value: bytes, corrupt: str) -> tuple[str, str]:
        return explained(corrupt)

    def encode(self, rows: Any, names: list[str], context: FormatContext) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        schema_id = None
        if self.registry is not None:
            schema_id = int(registry_for(self.registry).latest(self._subject(context))["id"])
        writer = _Writer(self._descriptor(context), self.message, schema_id)
        return encoding_function(writer)(F.struct(*[F.col(f"`{name}`") for name in names]))


class _Reader:
    def __init__(self, descriptor: bytes, message: str | None, framed: bool) -> None:
        self._descriptor, self._message, self._framed = descriptor, message, framed

    def __call__(self, value: bytes) -> dict[str, Any]:
        kind = message_class(self._descriptor, self._message)
        if self._framed:
            _, value = split(value)
            value = _after_indexes(value)
        message = kind()
        message.ParseFromString(value)
        return plain_message(message)


class _Writer:
    def __init__(self, descriptor: bytes, message: str | None, schema_id: int | None) -> None:
        self._descriptor, self._message = descriptor, message
        # One zero byte stands for the usual case: the file's first message.
        self._head = b"" if schema_id is None else head(schema_id) + b"\x00"

    def __call__(self, row: dict[str, Any]) -> bytes:
        kind = message_class(self._descriptor, self._message)
        message = kind()
        fill_message(message, row)
        return self._head + bytes(message.SerializeToString())


def _after_indexes(value: bytes) -> bytes:
    """What follows the list of message indexes (zigzag varints; a zero count means the first message)."""
    count, position = _varint(value, 0)
    for _ in range(count):
        _, position = _varint(value, position)
    return value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        if position >= len(value) or shift > 28:
            raise ValueError("the list of message indexes is cut off")
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
