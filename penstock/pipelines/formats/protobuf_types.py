"""Protobuf descriptors as Spark types, messages as plain dicts and back."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Any, Final

from penstock.pipelines.formats.spark_types import simple_type
from penstock.pipelines.spec import SpecError

_MAX_DEPTH: Final = 20
_SCALARS: Final = {
    "TYPE_DOUBLE": "double",
    "TYPE_FLOAT": "float",
    "TYPE_INT32": "int",
    "TYPE_SINT32": "int",
    "TYPE_SFIXED32": "int",
    "TYPE_UINT32": "bigint",
    "TYPE_FIXED32": "bigint",
    "TYPE_INT64": "bigint",
    "TYPE_SINT64": "bigint",
    "TYPE_SFIXED64": "bigint",
    "TYPE_UINT64": "decimal(20,0)",
    "TYPE_FIXED64": "decimal(20,0)",
    "TYPE_BOOL": "boolean",
    "TYPE_STRING": "string",
    "TYPE_BYTES": "binary",
    "TYPE_ENUM": "string",
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"


@cache
def message_class(data: bytes, name: str | None) -> Any:
    """The message class of a FileDescriptorSet, or of a single FileDescriptorProto as registries give it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(data)
        if not files.file or not all(item.name or item.message_type for item in files.file):
            raise DecodeError("no files")
    except DecodeError:
        single = descriptor_pb2.FileDescriptorProto()
        try:
            single.ParseFromString(data)
        except DecodeError as error:
            raise SpecError(f"the Protobuf descriptor cannot be read: {error}") from None
        files = descriptor_pb2.FileDescriptorSet(file=[single])
    pool = descriptor_pool.DescriptorPool()
    _add_well_known(pool, {item.name for item in files.file})
    for item in files.file:
        pool.Add(item)
    messages = [
        ".".join(filter(None, (item.package, message.name))) for item in files.file for message in item.message_type
    ]
    own = [message for message in messages if not message.startswith("google.protobuf.")]
    wanted = name or (own[0] if own else "")
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(wanted))
    except KeyError:
        raise SpecError(f"the descriptor has no message {wanted!r}; it has {', '.join(own) or 'none'}") from None


def _add_well_known(pool: Any, present: set[str]) -> None:
    from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2

    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        if module.DESCRIPTOR.name not in present:
            made = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(made)
            pool.Add(made)


def _kind(field: Any) -> str:
    from google.protobuf import descriptor_pb2

    return str(descriptor_pb2.FieldDescriptorProto.Type.Name(field.type))


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def spark_columns(descriptor: Any, depth: int = 0) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    if depth > _MAX_DEPTH:
        raise SpecError(f"message {descriptor.full_name} contains itself: it has no type in Spark")
    return T.StructType([T.StructField(field.name, _field_type(field, depth)) for field in descriptor.fields])


def _field_type(field: Any, depth: int) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    if _is_map(field):
        entry = field.message_type.fields_by_name
        return T.MapType(_single(entry["key"], depth), _single(entry["value"], depth))
    single = _single(field, depth)
    return T.ArrayType(single) if field.is_repeated else single


def _single(field: Any, depth: int) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return T.TimestampType()
        return spark_columns(field.message_type, depth + 1)
    kind = _kind(field)
    if kind not in _SCALARS:
        raise SpecError(f"field {field.full_name}: {kind} has no type in Spark")
    return simple_type(_SCALARS[kind])


def plain_message(message: Any) -> dict[str, Any]:
    """A message as a dict in the shape of `spark_columns`."""
    made: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            made[field.name] = {key: _plain(inner, item) for key, item in value.items()}
        elif field.is_repeated:
            made[field.name] = [_plain(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            made[field.name] = None
        else:
            made[field.name] = _plain(field, value)
    return made


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=datetime.UTC)
        return plain_message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if _kind(field) in ("TYPE_UINT64", "TYPE_FIXED64"):
        import decimal

        return decimal.Decimal(value)
    return value


def fill_message(message: Any, row: dict[str, Any]) -> None:
    """Set what the row has; columns that the message does not know are an error."""
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"message {message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is None:
            continue
        if _is_map(field):
            for key, item in dict(value).items():
                getattr(message, name)[key] = item
        elif field.is_repeated:
            for item in value:
                if field.message_type is not None:
                    fill_message(getattr(message, name).add(), item)
                else:
                    getattr(message, name).append(_scalar(field, item))
        elif field.message_type is not None:
            if field.message_type.full_name == _TIMESTAMP:
                getattr(message, name).FromDatetime(value)
            else:
                fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"enum {field.enum_type.full_name} has no value {value!r}")
        return known.number
    return int(value) if _kind(field) in ("TYPE_UINT64", "TYPE_FIXED64") else value
