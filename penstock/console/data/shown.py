"""A record as it is shown: text, JSON, or hex of its bytes; large ones cut, with their size said."""

from __future__ import annotations

import json
from typing import Any

from penstock.protocol.records import Record

PREVIEW_BYTES = 2_000
WHOLE_BYTES = 1_000_000


def shown_bytes(data: bytes | None, limit: int = PREVIEW_BYTES) -> dict[str, Any] | None:
    """{kind: json | text | hex, text, size, cut}; None for null."""
    if data is None:
        return None
    kind, text = _as_text(data, limit)
    return {"kind": kind, "text": text, "size": len(data), "cut": len(data) > limit}


def _as_text(data: bytes, limit: int) -> tuple[str, str]:
    start = data[:limit]
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) <= limit or error.start < limit - 3:  # not only a character that the cut went through
            return "hex", start[: limit // 3].hex(" ")
        text = start[: error.start].decode("utf-8")
    if any(ord(c) < 32 and c not in "\n\r\t" for c in text):
        return "hex", start[: limit // 3].hex(" ")
    if len(data) <= limit and text[:1] in ("{", "[", '"'):
        try:
            json.loads(text)
            return "json", text
        except (ValueError, RecursionError):
            pass
    return "text", text


def shown(topic: str, partition: int, record: Record, limit: int = PREVIEW_BYTES) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": shown_bytes(record.key, limit),
        "value": shown_bytes(record.value, limit),
        "headers": [{"name": name, "value": shown_bytes(value, limit)} for name, value in record.headers],
    }
