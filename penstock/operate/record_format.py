"""How a consumed record is printed: kcat's format strings with rpk's modifiers, JSON lines, or the bare value.

%t topic  %p partition  %o offset  %k key  %s or %v value  %T timestamp (ms)  %h headers  %K %S lengths  %% percent
%k{hex} %v{base64} %v{json} %h{json} %T{iso} change how a field is written; %{ is a brace; \\n \\t \\\\ as usual
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.operate.errors import usage_error
from penstock.operate.positions import format_time

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
    "v": lambda m: m.value() or b"",
    "T": lambda m: str(m.timestamp()[1]).encode(),
    "h": _headers,
    "K": lambda m: _size(m.key()),
    "S": lambda m: _size(m.value()),
}


def _json_of(data: bytes | None) -> bytes:
    """JSON stays JSON, on one line; any other text becomes a JSON string, bytes that are no text one in base64."""
    try:
        plain = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        plain = text_or_base64(data)[0]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


_BYTES: dict[str, Callable[[bytes | None], bytes]] = {
    "hex": lambda data: (data or b"").hex().encode(),
    "base64": lambda data: base64.b64encode(data or b""),
    "json": _json_of,
}


def _modified(field: str, modifier: str) -> Part | None:
    """How a field is written with `{modifier}` behind it; None where that means nothing."""
    if field in "ksv" and modifier in _BYTES:
        write = _BYTES[modifier]
        return (lambda m: write(m.key())) if field == "k" else (lambda m: write(m.value()))
    if field == "h" and modifier == "json":
        return lambda m: json.dumps([_header(*pair) for pair in m.headers() or ()], ensure_ascii=False).encode()
    if field == "T" and modifier == "iso":
        return lambda m: format_time(m.timestamp()[1]).encode()
    return None


def compile_format(text: str) -> Callable[[Any], bytes]:
    """A function from a message to its bytes; errors name the position in the format string."""
    parts: list[Part | bytes] = []
    position = 0
    while position < len(text):
        char = text[position]
        follower = text[position + 1 : position + 2]
        if char == "%":
            part, taken = _field(text, position)
            parts.append(part)
            position += taken
        elif char == "\\":
            parts.append(_escape(follower, f"format string, position {position + 1}"))
            position += 2
        else:
            parts.append(char.encode())
            position += 1

    def render(message: Any) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return render


def _field(text: str, position: int) -> tuple[Part | bytes, int]:
    """What a % at this position stands for, and how many characters say so."""
    where, follower = f"format string, position {position + 1}", text[position + 1 : position + 2]
    if follower and follower in "%{":
        return follower.encode(), 2
    if follower not in _FIELDS:
        shown = f"%{follower}" if follower else "a single %"
        raise usage_error(f"{where}: {shown} means nothing", f"there is {' '.join(f'%{n}' for n in _FIELDS)} %%")
    if text[position + 2 : position + 3] != "{":
        return _FIELDS[follower], 2
    modifier, brace, _ = text[position + 3 :].partition("}")
    part = _modified(follower, modifier) if brace else None
    if part is None:
        hint = "there is {hex}, {base64} and {json} for %k, %s and %v, {json} for %h, {iso} for %T; %{ is a brace"
        raise usage_error(f"{where}: %{follower}{{{modifier}{brace} means nothing", hint)
    return part, len(modifier) + 4


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


class Decoded:
    """A message whose key and value are read as what they mean: filters and formats see JSON instead of the bytes."""

    def __init__(self, message: Any, decoders: Mapping[str, Callable[[bytes], Any]]) -> None:
        raw = {"key": message.key(), "value": message.value()}
        self._texts = dict(raw)
        self.fields: dict[str, Any] = {}
        for name, decode in decoders.items():
            if raw[name] is not None:
                self.fields[name] = decode(raw[name])
                self._texts[name] = json.dumps(self.fields[name], ensure_ascii=False, default=_plain).encode()
        self.topic, self.partition, self.offset = message.topic, message.partition, message.offset
        self.timestamp, self.headers = message.timestamp, message.headers

    def key(self) -> bytes | None:
        return self._texts["key"]

    def value(self) -> bytes | None:
        return self._texts["value"]


def _plain(value: Any) -> str:
    """What decoders give and JSON lacks: bytes, times, decimals."""
    return text_or_base64(value)[0] or "" if isinstance(value, bytes) else str(value)


def as_object(message: Any) -> dict[str, Any]:
    """A record as `consume --json` prints it and `produce --format json` reads it."""
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
    }
    decoded = message.fields if isinstance(message, Decoded) else {}
    for name, data in (("key", message.key()), ("value", message.value())):
        if name in decoded:
            row[name] = decoded[name]
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


def json_line(message: Any) -> bytes:
    return json.dumps(as_object(message), ensure_ascii=False, separators=(",", ":"), default=_plain).encode() + b"\n"


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
