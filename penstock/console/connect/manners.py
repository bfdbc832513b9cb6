"""How Connect's REST server treats requests before any route sees them: media types, HEAD, and bodies as texts."""

from __future__ import annotations

import json
from typing import Any

from penstock.console.access.guard import App, Receive, Scope, Send, send_response

_READABLE = frozenset({"application/json", "application/*", "*/*"})


class Manners:
    """JSON in, JSON out: another content type is answered with 415, another wish with 406."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = _refusal(scope["method"], headers)
        if refusal is not None:
            told = {"error_code": refusal[0], "message": f"HTTP {refusal[0]} {refusal[1]}"}
            await send_response(send, refusal[0], json.dumps(told).encode(), [(b"content-type", b"application/json")])
            return
        if scope["method"] == "HEAD":  # the server below leaves the body out
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


def _refusal(method: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
    given = _main(headers.get(b"content-type", b"").decode("latin-1"))
    has_body = headers.get(b"content-length", b"0") not in (b"", b"0")
    if method in ("POST", "PUT", "PATCH") and (given or has_body) and given not in _READABLE:
        return 415, "Unsupported Media Type"
    wished = [_main(part) for part in headers.get(b"accept", b"").decode("latin-1").split(",")]
    if wished != [""] and not _READABLE & set(wished):
        return 406, "Not Acceptable"
    return None


def _main(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def texts(config: dict[str, Any]) -> dict[str, str]:
    """A config as Connect reads it: numbers and truth values are texts. ValueError names what is neither."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, str):
            found[key] = value
        elif isinstance(value, bool | int | float):
            found[key] = json.dumps(value)
        elif value is not None:
            raise ValueError(key)
    return found
