"""Avro schemas as Spark types and back. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.pipelines.formats.spark_types import simple_type
from penstock.pipelines.spec import SpecError

_PRIMITIVES: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}


def spark_columns(schema: Any) -> Any:
    """The columns of a record schema."""
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise SpecError(f"the Avro schema is no record but {schema if isinstance(schema, str) else 'something else'}")
    return _type(schema, {}, schema["name"])


def _type(schema: Any, named: dict[str, Any], where: str) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(schema, list):
        return _union(schema, named, where)
    if isinstance(schema, str):
        if schema in named:
            if named[schema] is None:
                raise SpecError(f"Avro field {where}: a record that contains itself has no type in Spark")
            return _type(named[schema], named, where)
        schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _type(kind, named, where)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return T.DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return simple_type(_LOGICAL[logical])
    if kind in ("record", "error"):
        named[schema["name"]] = None
        fields = [
            T.StructField(item["name"], _type(item["type"], named, f"{where}.{item['name']}"))
            for item in schema["fields"]
        ]
        named[schema["name"]] = schema
        return T.StructType(fields)
    if kind == "array":
        return T.ArrayType(_type(schema["items"], named, f"{where}[]"))
    if kind == "map":
        return T.MapType(T.StringType(), _type(schema["values"], named, f"{where}{{}}"))
    if kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    if kind not in _PRIMITIVES:
        raise SpecError(f"Avro field {where}: type {kind!r} is not known")
    return simple_type(_PRIMITIVES[kind])


def _union(branches: list[Any], named: dict[str, Any], where: str) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    real = [branch for branch in branches if branch != "null"]
    if len(real) == 1:
        return _type(real[0], named, where)
    if set(map(str, real)) == {"int", "long"}:
        return T.LongType()
    if set(map(str, real)) == {"float", "double"}:
        return T.DoubleType()
    raise SpecError(f"Avro field {where}: a union of {', '.join(map(_label, real))} has no type in Spark")


def _label(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema.get("type")))


def plain(value: Any, schema: Any) -> Any:
    """What fastavro returns, in the shapes that Arrow takes: UUIDs become text."""
    import uuid

    if isinstance(value, dict):
        return {key: plain(item, schema) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, schema) for item in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


_TO_AVRO: Final = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema(columns: Any, subject: str) -> dict[str, Any]:
    """The schema that rows are written with when none is given: every field may be null."""
    return _record(columns, re.sub(r"\W", "_", subject) or "value")


def _record(columns: Any, name: str) -> dict[str, Any]:
    fields = [
        {"name": item.name, "type": ["null", _avro_type(item.dataType, f"{name}_{item.name}")], "default": None}
        for item in columns.fields
    ]
    return {"type": "record", "name": name if name[:1].isalpha() else f"v_{name}", "fields": fields}


def _avro_type(kind: Any, name: str) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(kind, T.StructType):
        return _record(kind, name)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, T.MapType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = _TO_AVRO.get(kind.simpleString())
    if found is None:
        raise SpecError(f"column {name}: {kind.simpleString()} has no type in Avro; cast it first")
    return found
