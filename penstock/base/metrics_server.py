"""A small HTTP server for `/metrics`, `/health` and `/ready`; nothing else is served, and no client can hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.base.metrics import Metrics

__all__ = ["parse_address", "start_metrics_server"]

MAX_REQUEST_BYTES = 8192
REQUEST_TIMEOUT_S = 5.0
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` of `penstock.metrics.listener`, with or without `http://`."""
    host, separator, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"penstock.metrics.listener is {text!r}; write host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


async def start_metrics_server(
    metrics: Metrics, host: str, port: int, healthy: Callable[[], bool], ready: Callable[[], bool]
) -> asyncio.Server:
    """Serve until the returned server is closed. Health: the process works; ready: it serves clients."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, metrics, healthy, ready))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # a client that does not speak HTTP to its end gets no answer
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port, limit=MAX_REQUEST_BYTES)


def _answer(head: bytes, metrics: Metrics, healthy: Callable[[], bool], ready: Callable[[], bool]) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method not in (b"GET", b"HEAD"):
        status, kind, body = "405 Method Not Allowed", "text/plain", b"only GET is served\n"
    elif path == b"/metrics":
        status, kind, body = "200 OK", TEXT_FORMAT, metrics.render()
    elif path in (b"/health", b"/ready"):
        good = healthy() if path == b"/health" else ready()
        status, kind = ("200 OK" if good else "503 Service Unavailable"), "text/plain"
        body = b"ok\n" if good else b"not yet\n"
    else:
        status, kind, body = "404 Not Found", "text/plain", b"there are /metrics, /health and /ready\n"
    headers = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return headers.encode() + (b"" if method == b"HEAD" else body)
