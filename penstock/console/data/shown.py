"""A record as it is shown: text, JSON, or hex of its bytes; large ones cut, with their size said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


def decoded(data: bytes | None, decode: Callable[[bytes], Any] | None, limit: int) -> dict[str, Any] | None:
    """Bytes as their format reads them, as JSON; what it cannot read as it is, with the reason in `problem`."""
    plain = shown_bytes(data, limit)
    if data is None or decode is None or plain is None:
        return plain
    found = decode(data)
    if isinstance(found, dict) and set(found) == {"undecodable", "reason"}:
        return {**plain, "problem": found["reason"]}
    text = json.dumps(found, ensure_ascii=False, default=_as_json)
    return {"kind": "json" if len(text) <= limit else "text", "text": text[:limit], "size": len(data),
            "cut": len(text) > limit, "decoded": True}  # fmt: skip


def _as_json(value: Any) -> Any:
    return value.hex(" ") if isinstance(value, bytes) else str(value)


def shown(
    topic: str,
    partition: int,
    record: Record,
    limit: int = PREVIEW_BYTES,
    decoders: Mapping[str, Callable[[bytes], Any]] | None = None,
) -> dict[str, Any]:
    using = decoders or {}
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": decoded(record.key, using.get("key"), limit),
        "value": decoded(record.value, using.get("value"), limit),
        "headers": [{"name": name, "value": shown_bytes(value, limit)} for name, value in record.headers],
    }
