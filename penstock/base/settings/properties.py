"""Kafka's `server.properties` format: Java properties with comments, continuations and escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["parse_properties"]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))"


def parse_properties(text: str) -> dict[str, str]:
    """Names and values of a properties file; of a name that stands twice the last value counts, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        found[_unescape(name)] = _unescape(value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; an odd number of backslashes at the end of one joins the next."""
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """The name ends at the first unescaped `=`, `:` or white space."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    name, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return name, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(_ESCAPE, lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES.get(m[2], m[2]), text)
