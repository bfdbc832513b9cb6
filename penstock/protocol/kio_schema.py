"""The one place that touches kio: turns its versioned dataclasses into a neutral description of a message.

kio carries Kafka's message schemas for every API key and version. We read the *schemas* from it and compile our own
codecs (see message_compiler): handlers then see one shape per message whatever version the client asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib
import sys
import types
import typing
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

ZERO_UUID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class FieldSchema:
    name: str
    kind: str  # int8 … int64, uint16, float64, bool, string, bytes, uuid, struct
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: StructSchema | None


@dataclass(frozen=True, slots=True)
class StructSchema:
    name: str
    flexible: bool
    fields: tuple[FieldSchema, ...]


# kio's richer types, and the plain integers that Penstock works with instead.
_PLAIN_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "records": "bytes",
}
_IMPLICIT_DEFAULTS: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float64": 0.0, "uuid": ZERO_UUID}


@contextlib.contextmanager
def _without_hypothesis() -> Iterator[None]:
    """kio registers hypothesis strategies if it can import hypothesis, which costs half a second at start."""
    names = [name for name in ("hypothesis", "hypothesis.strategies") if name not in sys.modules]
    for name in names:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


@cache
def api_name(api_key: int) -> str:
    """kio's module name of an API, e.g. 19 → "create_topics"; KeyError if there is none."""
    from kio.schema.index import api_key_map

    return str(api_key_map[api_key])


@cache
def api_key(name: str) -> int:
    from kio.schema.index import api_key_map

    return next(int(key) for key, known in api_key_map.items() if known == name)


@cache
def versions(name: str) -> tuple[int, int]:
    """Lowest and highest version that kio knows for an API."""
    from kio.schema.index import schema_name_map

    known = [int(version) for version in schema_name_map[name]]
    return min(known), max(known)


@cache
def message_schema(name: str, version: int, direction: str) -> StructSchema:
    """The schema of a request or response ("request" / "response") of an API in one version."""
    with _without_hypothesis():
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
    wanted = name.replace("_", "") + direction
    root = next(
        entity
        for entity_name, entity in vars(module).items()
        if entity_name.lower() == wanted and dataclasses.is_dataclass(entity)
    )
    return _struct(typing.cast(type, root))


def _struct(entity: type) -> StructSchema:
    fields = tuple(_field(field) for field in dataclasses.fields(entity))
    return StructSchema(entity.__name__, bool(entity.__flexible__), fields)  # type: ignore[attr-defined]


def _field(field: dataclasses.Field[Any]) -> FieldSchema:
    kafka_type = field.metadata.get("kafka_type")
    inner, nullable = _strip_none(field.type)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner = _strip_none(typing.get_args(inner)[0])[0]
    struct = _struct(inner) if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None
    kind = "struct" if struct else _PLAIN_KINDS.get(str(kafka_type), str(kafka_type))
    name = field.name
    if kafka_type in ("timedelta_i32", "timedelta_i64") or name in ("log_append_time", "transaction_start_time"):
        name += "_ms"  # kio drops the unit that Kafka's own field names carry
    if kind == "uuid" or kafka_type == "datetime_i64":
        nullable = nullable and is_array  # on the wire these have a zero value, not a null
    tag = field.metadata.get("tag")
    default = _default(field, kind, is_array, nullable, struct)
    return FieldSchema(name, kind, is_array, nullable, tag, default, struct)


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        arguments = typing.get_args(annotation)
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return inner, types.NoneType in arguments
    return annotation, False


def _default(
    field: dataclasses.Field[Any], kind: str, is_array: bool, nullable: bool, struct: StructSchema | None
) -> Any:
    value = field.default
    if is_array:
        return None if value is None else []
    if struct is not None:
        return None if nullable else struct
    if value is dataclasses.MISSING:
        if field.metadata.get("kafka_type") == "datetime_i64":
            return -1
        return None if nullable else _IMPLICIT_DEFAULTS.get(kind, 0)
    if value is None:
        return {"uuid": ZERO_UUID, "int64": -1}.get(kind)
    if isinstance(value, datetime.timedelta):
        return int(value.total_seconds() * 1000)
    if kind == "string":
        return str(value)
    if kind == "bytes":
        return bytes(value)
    if kind == "bool":
        return bool(value)
    return int(value) if kind != "float64" else float(value)
