"""Compiles a message schema into straight-line Python that decodes and encodes it.

Generated code is five to ten times faster than interpreting the schema, and gives every message one class: the fields
of all versions are attributes with Kafka's defaults, whichever version is on the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from penstock.protocol.kio_schema import ZERO_UUID, FieldSchema, StructSchema

FIXED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "float64": "d", "bool": "?"}

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[bytearray, Any], None]


class MalformedMessage(Exception):
    """The bytes do not follow the schema of the message that they claim to be."""


class Struct:
    """Base of all generated message classes: plain attributes, keyword constructor, equality by content."""

    FIELDS: ClassVar[dict[str, Any]] = {}  # name → default

    def __init__(self, **values: Any) -> None:
        known = self.FIELDS
        for name in values:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(known)}")
        attributes = self.__dict__
        attributes.update(known)
        attributes.update(values)
        for name, default in known.items():
            if attributes[name] is default and isinstance(default, list | type):
                attributes[name] = [] if isinstance(default, list) else default()

    def __getattr__(self, name: str) -> Any:
        try:
            default = self.FIELDS[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None
        if isinstance(default, list | type):
            default = self.__dict__[name] = [] if isinstance(default, list) else default()
        return default

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({shown})"


# --- helpers that generated code calls -------------------------------------------------------------------------------


def read_uvarint(buf: Any, pos: int) -> tuple[int, int]:
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    value, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
        shift += 7
        if shift > 28:
            raise MalformedMessage("a length takes more than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(buf: Any, pos: int, length: int) -> bytes:
    if length < 0 or pos + length > len(buf):
        raise MalformedMessage(f"a field of {length} bytes at position {pos} runs past the end of the message")
    return bytes(buf[pos : pos + length])


def _check_count(buf: Any, pos: int, count: int) -> None:
    if count < 0 or count > len(buf) - pos:
        raise MalformedMessage(f"an array of {count} elements at position {pos} cannot fit in the message")


def _not_null(what: str) -> MalformedMessage:
    return MalformedMessage(f"non-nullable field {what} was null")


def _skip_tags(buf: Any, pos: int, known: dict[int, Callable[[Any, int], int]] | None) -> int:
    count, pos = read_uvarint(buf, pos)
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        end = pos + size
        if end > len(buf):
            raise MalformedMessage(f"tagged field {tag} runs past the end of the message")
        if known is not None and tag in known:
            known[tag](buf, pos)
        pos = end
    return pos


class StructCompiler:
    """Compiles one version of a message; classes are shared between versions through `classes`."""

    def __init__(self, classes: dict[str, type[Struct]], prefix: str = "") -> None:
        self._classes = classes
        self._prefix = prefix

    def _class(self, name: str) -> type[Struct]:
        cls = self._classes.get(name)
        if cls is None:
            cls = self._classes[name] = type(name, (Struct,), {"FIELDS": {}})
        return cls

    def add_fields(self, name: str, defaults: dict[str, Any]) -> None:
        """Fields (name → default) that other versions of a struct have."""
        for field, default in defaults.items():
            self._class(name).FIELDS.setdefault(field, default)

    def message_class(self, schema: StructSchema) -> type[Struct]:
        cls = self._class(schema.name)
        for field in schema.fields:
            nested = self.message_class(field.struct) if field.struct else None
            default = nested if isinstance(field.default, StructSchema) else field.default
            cls.FIELDS.setdefault(field.name, default)
        return cls

    # --- decoding ---

    def decoder(self, schema: StructSchema) -> Decoder:
        env: dict[str, Any] = {
            "new": object.__new__, "cls": self.message_class(schema), "read_uvarint": read_uvarint, "take": _take,
            "check": _check_count, "null": _not_null, "skip_tags": _skip_tags, "UUID": UUID, "ZERO": ZERO_UUID,
        }  # fmt: skip
        lines = ["def decode(buf, pos):", " o = new(cls); d = o.__dict__"]
        plain = [field for field in schema.fields if field.tag is None]
        lines += self._decode_fields(plain, schema.flexible, env)
        if schema.flexible:
            tagged = [field for field in schema.fields if field.tag is not None]
            lines += self._decode_tags(tagged, env)
        lines.append(" return o, pos")
        return _define(lines, env, "decode", schema.name)

    def _decode_fields(self, fields: list[FieldSchema], flexible: bool, env: dict[str, Any]) -> list[str]:
        lines: list[str] = []
        run: list[FieldSchema] = []
        for field in [*fields, None]:
            if field is not None and field.kind in FIXED and not field.is_array:
                run.append(field)
                continue
            if run:
                packer = struct.Struct(">" + "".join(FIXED[f.kind] for f in run))
                name = f"unpack{len(env)}"
                env[name] = packer.unpack_from
                targets = "".join(f"d[{f.name!r}], " for f in run)
                lines += [f" {targets.rstrip()} = {name}(buf, pos)", f" pos += {packer.size}"]
                run = []
            if field is not None:
                lines += self._decode_one(field, flexible, env, f"d[{field.name!r}]")
        return lines

    def _decode_one(self, field: FieldSchema, flexible: bool, env: dict[str, Any], target: str) -> list[str]:
        if not field.is_array:
            return [f" {line}" for line in self._decode_value(field, flexible, env, target, field.nullable)]
        if flexible:
            lines = [" n, pos = read_uvarint(buf, pos); n -= 1"]
        else:
            env.setdefault("i32", struct.Struct(">i").unpack_from)
            lines = [" n = i32(buf, pos)[0]; pos += 4"]
        lines.append(" if n == -1:")
        lines.append(f"  {target} = None" if field.nullable else f"  raise null({field.name!r})")
        lines.append(" else:")
        lines.append("  check(buf, pos, n)")
        if field.kind in FIXED:
            name = f"array{len(env)}"
            env[name] = _fixed_array_decoder(FIXED[field.kind])
            return [*lines, f"  {target}, pos = {name}(buf, pos, n)"]
        lines += ["  items = []", "  for _ in range(n):"]
        lines += [f"   {line}" for line in self._decode_value(field, flexible, env, "item", False)]
        return [*lines, "   items.append(item)", f"  {target} = items"]

    def _decode_value(
        self, field: FieldSchema, flexible: bool, env: dict[str, Any], target: str, nullable: bool
    ) -> list[str]:
        if field.kind in FIXED:
            name = f"unpack{len(env)}"
            packer = struct.Struct(">" + FIXED[field.kind])
            env[name] = packer.unpack_from
            return [f"{target} = {name}(buf, pos)[0]; pos += {packer.size}"]
        if field.kind == "uuid":
            return [f"raw = take(buf, pos, 16); pos += 16; {target} = UUID(bytes=raw) if any(raw) else ZERO"]
        if field.kind == "struct":
            assert field.struct is not None
            name = f"struct{len(env)}"
            env[name] = self.decoder(field.struct)
            if not nullable:
                return [f"{target}, pos = {name}(buf, pos)"]
            return [
                "marker = buf[pos]; pos += 1",
                f"if marker in (255, -1): {target} = None",
                f"else: {target}, pos = {name}(buf, pos)",
            ]
        if flexible:
            lines = ["m, pos = read_uvarint(buf, pos); m -= 1"]
        else:
            env.setdefault("i16", struct.Struct(">h").unpack_from)
            env.setdefault("i32", struct.Struct(">i").unpack_from)
            reader, width = ("i16", 2) if field.kind == "string" else ("i32", 4)
            lines = [f"m = {reader}(buf, pos)[0]; pos += {width}"]
        convert = ".decode()" if field.kind == "string" else ""
        on_null = f"{target} = None" if nullable else f"raise null({field.name!r})"
        return [*lines, f"if m == -1: {on_null}", f"else: {target} = take(buf, pos, m){convert}; pos += m"]

    def _decode_tags(self, tagged: list[FieldSchema], env: dict[str, Any]) -> list[str]:
        if not tagged:
            return [" pos = skip_tags(buf, pos, None) if buf[pos] else pos + 1"]
        lines = []
        for field in tagged:
            lines.append(f" def tag{field.tag}(buf, pos):")
            lines += ["  " + line for line in self._decode_one(field, True, env, f"d[{field.name!r}]")]
        table = ", ".join(f"{field.tag}: tag{field.tag}" for field in tagged)
        return [" if buf[pos]:", *(" " + line for line in lines), f"  pos = skip_tags(buf, pos, {{{table}}})",
                " else: pos += 1"]  # fmt: skip

    # --- encoding ---

    def encoder(self, schema: StructSchema) -> Encoder:
        self.message_class(schema)
        env: dict[str, Any] = {"uvarint": write_uvarint, "null": _not_null}
        lines = ["def encode(out, o):"]
        plain = [field for field in schema.fields if field.tag is None]
        lines += self._encode_fields(plain, schema.flexible, env)
        if schema.flexible:
            lines += self._encode_tags([field for field in schema.fields if field.tag is not None], env)
        lines.append(" return None")
        return _define(lines, env, "encode", schema.name)

    def _encode_fields(self, fields: list[FieldSchema], flexible: bool, env: dict[str, Any]) -> list[str]:
        lines: list[str] = []
        run: list[FieldSchema] = []
        for field in [*fields, None]:
            if field is not None and field.kind in FIXED and not field.is_array:
                run.append(field)
                continue
            if run:
                name = f"pack{len(env)}"
                env[name] = struct.Struct(">" + "".join(FIXED[f.kind] for f in run)).pack
                lines.append(f" out += {name}({', '.join('o.' + f.name for f in run)})")
                run = []
            if field is not None:
                lines += self._encode_one(field, flexible, env, f"o.{field.name}")
        return lines

    def _encode_one(self, field: FieldSchema, flexible: bool, env: dict[str, Any], source: str) -> list[str]:
        if not field.is_array:
            return [f" v = {source}", *(f" {x}" for x in self._encode_value(field, flexible, env, field.nullable))]
        env["i32"] = struct.Struct(">i").pack
        lines = [f" a = {source}", " if a is None:"]
        null_bytes = "out.append(0)" if flexible else "out += i32(-1)"
        lines.append(f"  {null_bytes}" if field.nullable else f"  raise null({field.name!r})")
        lines += [" else:", "  uvarint(out, len(a) + 1)" if flexible else "  out += i32(len(a))"]
        if field.kind in FIXED:
            name = f"array{len(env)}"
            env[name] = _fixed_array_encoder(FIXED[field.kind])
            return [*lines, f"  out += {name}(a)"]
        return [*lines, "  for v in a:", *(f"   {x}" for x in self._encode_value(field, flexible, env, False))]

    def _encode_value(self, field: FieldSchema, flexible: bool, env: dict[str, Any], nullable: bool) -> list[str]:
        if field.kind in FIXED:
            name = f"pack{len(env)}"
            env[name] = struct.Struct(">" + FIXED[field.kind]).pack
            return [f"out += {name}(v)"]
        if field.kind == "uuid":
            return ["out += v.bytes"]
        if field.kind == "struct":
            assert field.struct is not None
            name = f"struct{len(env)}"
            env[name] = self.encoder(field.struct)
            if not nullable:
                return [f"{name}(out, v)"]
            return ["if v is None: out.append(255)", f"else: out.append(1); {name}(out, v)"]
        env["i16"], env["i32"] = struct.Struct(">h").pack, struct.Struct(">i").pack
        packer = "i16" if field.kind == "string" else "i32"
        null_bytes = "out.append(0)" if flexible else f"out += {packer}(-1)"
        # A newer version made the field nullable: what has no value yet is empty in the older ones.
        empty = "out.append(1)" if flexible else f"out += {packer}(0)"
        on_null = null_bytes if nullable else empty
        length = "uvarint(out, len(b) + 1)" if flexible else f"out += {packer}(len(b))"
        convert = "v.encode()" if field.kind == "string" else "v"
        return [f"if v is None: {on_null}", f"else: b = {convert}; {length}; out += b"]

    def _encode_tags(self, tagged: list[FieldSchema], env: dict[str, Any]) -> list[str]:
        if not tagged:
            return [" out.append(0)"]
        lines = [" tags = []"]
        for field in sorted(tagged, key=lambda f: f.tag or 0):
            name = f"default{len(env)}"
            default = field.default
            env[name] = self._classes[default.name]() if isinstance(default, StructSchema) else default
            lines += [f" if o.{field.name} != {name}:", "  whole, out = out, bytearray()"]
            lines += [" " + line for line in self._encode_one(field, True, env, f"o.{field.name}")]
            lines.append(f"  tags.append(({field.tag}, out)); out = whole")
        return [*lines, " uvarint(out, len(tags))", " for tag, body in tags:",
                "  uvarint(out, tag); uvarint(out, len(body)); out += body"]  # fmt: skip


def _fixed_array_decoder(code: str) -> Callable[[Any, int, int], tuple[list[Any], int]]:
    width = struct.calcsize(">" + code)

    def decode(buf: Any, pos: int, count: int) -> tuple[list[Any], int]:
        _check_count(buf, pos, count * width)
        return list(struct.unpack_from(f">{count}{code}", buf, pos)), pos + count * width

    return decode


def _fixed_array_encoder(code: str) -> Callable[[Any], bytes]:
    return lambda values: struct.pack(f">{len(values)}{code}", *values)


def _define(lines: list[str], env: dict[str, Any], name: str, label: str) -> Any:
    exec(compile("\n".join(lines), f"<{name} {label}>", "exec"), env)
    return env[name]
