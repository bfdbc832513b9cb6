"""The primitive types of internal-topic records, old (fixed lengths) and flexible (compact) alike."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

__all__ = ["MalformedRecord", "Reader", "Writer"]

T = TypeVar("T")
_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class MalformedRecord(Exception):
    """The bytes of an internal record do not follow its schema."""


class Writer:
    """Appends fields to `data`."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def i8(self, value: int) -> Writer:
        self.data += _I8.pack(value)
        return self

    def i16(self, value: int) -> Writer:
        self.data += _I16.pack(value)
        return self

    def i32(self, value: int) -> Writer:
        self.data += _I32.pack(value)
        return self

    def i64(self, value: int) -> Writer:
        self.data += _I64.pack(value)
        return self

    def uuid(self, value: UUID) -> Writer:
        self.data += value.bytes
        return self

    def uvarint(self, value: int) -> Writer:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)
        return self

    def string(self, value: str | None) -> Writer:
        if value is None:
            return self.i16(-1)
        encoded = value.encode()
        self.i16(len(encoded))
        self.data += encoded
        return self

    def blob(self, value: bytes) -> Writer:
        self.i32(len(value))
        self.data += value
        return self

    def compact_string(self, value: str | None) -> Writer:
        return self.compact_bytes(None if value is None else value.encode())

    def compact_bytes(self, value: bytes | None) -> Writer:
        if value is None:
            return self.uvarint(0)
        self.uvarint(len(value) + 1)
        self.data += value
        return self

    def tags(self, fields: dict[int, bytes] | None = None) -> Writer:
        self.uvarint(len(fields or {}))
        for tag, content in sorted((fields or {}).items()):
            self.uvarint(tag).uvarint(len(content))
            self.data += content
        return self

    def done(self) -> bytes:
        return bytes(self.data)


class Reader:
    """Takes fields from `data`, front to back."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def _take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise MalformedRecord(f"{length} bytes wanted, {len(self.data) - self.position} are left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def i8(self) -> int:
        return int(_I8.unpack(self._take(1))[0])

    def i16(self) -> int:
        return int(_I16.unpack(self._take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self._take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedRecord("a variable-length number is too long")

    def nullable_string(self) -> str | None:
        length = self.i16()
        return None if length < 0 else _text(self._take(length))

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        length = self.i32()
        return b"" if length < 0 else self._take(length)

    def compact_nullable_bytes(self) -> bytes | None:
        length = self.uvarint()
        return None if length == 0 else self._take(length - 1)

    def compact_nullable_string(self) -> str | None:
        content = self.compact_nullable_bytes()
        return None if content is None else _text(content)

    def compact_string(self) -> str:
        return self.compact_nullable_string() or ""

    def array(self, item: Callable[[], T]) -> list[T]:
        return self._items(self.i32(), item)

    def compact_array(self, item: Callable[[], T]) -> list[T]:
        return self._items(self.uvarint() - 1, item)

    def _items(self, count: int, item: Callable[[], T]) -> list[T]:
        if count > len(self.data) - self.position:
            raise MalformedRecord(f"an array of {count} items does not fit")
        return [item() for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        fields: dict[int, bytes] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            fields[tag] = self._take(self.uvarint())
        return fields


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(str(error)) from None
