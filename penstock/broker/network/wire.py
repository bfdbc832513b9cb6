"""Straight-line readers and writers that the hand-written codecs of hot APIs share. Everything else uses messages."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception like the others
from typing import Any

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
FRAME = Struct(">ii")
LARGEST_REQUEST_BYTES = 4 * 1024 * 1024  # of requests that are lists of names and numbers: a hundred thousand of them
LARGEST_FRAME_BYTES = LARGEST_REQUEST_BYTES + 64 * 1024  # the same with any header
NO_TAGS = b"\x00"
MOST_TAGGED_FIELDS = 32  # in one place of a request; no message of Kafka's has a third of that


class MalformedFrame(Exception):
    """The client's bytes cannot be a request: its connection is closed, as Kafka does."""


class NotYet(Exception):
    """The broker does not know its cluster yet: the request stays in its connection's buffer until it does."""


# What reading lying lengths raises, beside MalformedFrame. Caught around parsing only.
UNREADABLE = (StructError, IndexError, UnicodeDecodeError)


def read_varint(buffer: Any, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedFrame("variable-length integer is too long")


def skip_tagged_fields(buffer: Any, position: int, end: int) -> int:
    """The position behind them. They must be there: what lies behind `end` is the next request's."""
    if position >= end:
        raise MalformedFrame("request runs over the frame")
    if buffer[position] == 0:  # the usual case
        return position + 1
    count, position = read_varint(buffer, position)
    if count > MOST_TAGGED_FIELDS:
        raise MalformedFrame(f"{count} tagged fields")
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position += size
        if position > end:
            raise MalformedFrame("tagged field beyond the end")
    if position > end:
        raise MalformedFrame("tagged fields beyond the end")
    return position


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(value: bytes) -> bytes:
    return varint(len(value) + 1) + value


def compact_nullable_string(value: str | None) -> bytes:
    return b"\x00" if value is None else compact_string(value.encode())


def string(value: bytes) -> bytes:
    return INT16.pack(len(value)) + value


def nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else string(value.encode())


def begin_frame(correlation_id: int, flexible: bool) -> bytearray:
    """An answer whose size is not known yet: `end_frame` writes it."""
    out = bytearray(4)
    out += INT32.pack(correlation_id)
    if flexible:
        out += NO_TAGS
    return out


def end_frame(out: bytearray, following_bytes: int = 0) -> bytearray:
    INT32.pack_into(out, 0, len(out) - 4 + following_bytes)
    return out
