"""How a consumed record is printed: kcat's format strings, JSON lines, or the bare value.

%t topic  %p partition  %o offset  %k key  %s value  %T timestamp (ms)  %h headers  %K %S lengths  %% percent
\\n \\t \\\\ as usual
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from penstock.operate.errors import usage_error

Part = Callable[[Any], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _headers(message: Any) -> bytes:
    pairs = (name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in message.headers() or ())
    return b",".join(pairs)


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


_FIELDS: dict[str, Part] = {
    "t": lambda m: m.topic().encode(),
    "p": lambda m: str(m.partition()).encode(),
    "o": lambda m: str(m.offset()).encode(),
    "k": lambda m: m.key() or b"",
    "s": lambda m: m.value() or b"",
    "T": lambda m: str(m.timestamp()[1]).encode(),
    "h": _headers,
    "K": lambda m: _size(m.key()),
    "S": lambda m: _size(m.value()),
}


def compile_format(text: str) -> Callable[[Any], bytes]:
    """A function from a message to its bytes; errors name the position in the format string."""
    parts: list[Part | bytes] = []
    position = 0
    while position < len(text):
        char = text[position]
        follower = text[position + 1 : position + 2]
        if char == "%":
            if follower == "%":
                parts.append(b"%")
            elif follower in _FIELDS:
                parts.append(_FIELDS[follower])
            else:
                shown = f"%{follower}" if follower else "a single %"
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise usage_error(
                    f"format string, position {position + 1}: {shown} means nothing", f"there is {known} %%"
                )
            position += 2
        elif char == "\\":
            parts.append(_escape(follower, f"format string, position {position + 1}"))
            position += 2
        else:
            parts.append(char.encode())
            position += 1

    def render(message: Any) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return render


def _escape(follower: str, where: str) -> bytes:
    if follower not in _ESCAPES:
        shown = f"\\{follower}" if follower else "a single \\"
        raise usage_error(f"{where}: {shown} means nothing", r"there is \n \t \r \0 \\")
    return _ESCAPES[follower]


def unescape(text: str, what: str) -> bytes:
    """The bytes of a text in which \\n, \\t, … stand for what they cannot hold."""
    parts, position = [], 0
    while position < len(text):
        if text[position] == "\\":
            parts.append(_escape(text[position + 1 : position + 2], f"{what}, position {position + 1}"))
            position += 2
        else:
            parts.append(text[position].encode())
            position += 1
    return b"".join(parts)


def text_or_base64(data: bytes | None) -> tuple[str | None, bool]:
    """(text, False), or (base64, True) for bytes that are no text."""
    if data is None:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), True


def as_object(message: Any, decode: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """A record as `consume --json` prints it and `produce --format json` reads it."""
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
    }
    for name, data in (("key", message.key()), ("value", message.value())):
        if name == "value" and decode is not None and data is not None:
            row[name] = decode(data)
            continue
        row[name], encoded = text_or_base64(data)
        if encoded:
            row[f"{name}_encoding"] = "base64"
    headers = message.headers()
    if headers:
        row["headers"] = [_header(name, value) for name, value in headers]
    return row


def _header(name: str, value: bytes | None) -> list[Any]:
    text, encoded = text_or_base64(value)
    return [name, text, "base64"] if encoded else [name, text]


def json_line(message: Any, decode: Callable[[bytes], Any] | None = None) -> bytes:
    return (
        json.dumps(as_object(message, decode), ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n"
    )


def bytes_of(value: Any, encoding: str | None, where: str) -> bytes | None:
    """The bytes that a JSON field stands for."""
    if value is None:
        return None
    if encoding == "base64":
        try:
            return base64.b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise usage_error(f"{where}: not base64", "leave out the encoding for plain text") from None
    if encoding is not None:
        raise usage_error(f"{where}: unknown encoding {encoding!r}", "there is base64")
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def for_terminal(data: bytes, limit: int = 2000) -> bytes:
    """What may be shown to a person: no control characters that would act on the terminal, and not megabytes."""
    cut = data[:limit]
    shown = "".join(
        c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in cut.decode("utf-8", "backslashreplace")
    )
    if len(data) > limit:
        shown = shown.rstrip("\n") + f"… ({len(data)} bytes)\n"
    return shown.encode()
