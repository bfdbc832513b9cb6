"""Open pages of the console without a browser: the same connection, kept open and answered, but nothing is drawn.

Fifty tabs of a real browser would take more of a small machine than the console and the broker that are to be measured.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import uuid
from types import TracebackType
from typing import Any, Self

import aiohttp
import socketio  # type: ignore[import-untyped]

QUERY = re.compile(r"query: (\{.*?\}),\n")
LISTENER = re.compile(r'"listener_id":"([0-9a-f-]+)","type":"console_visit"')
PATIENCE_SECONDS = 60.0


class Visitor:
    """One open page: `async with Visitor(address, {"authorization": …}, "/c/local/topics")`; leaves with the block."""

    def __init__(self, address: str, headers: dict[str, str], path: str) -> None:
        self._address, self._path = address, path
        scheme, _, rest = address.partition("://")
        self._origin, _, base = rest.partition("/")
        self._base = f"/{base}" if base else ""
        self._origin = f"{scheme}://{self._origin}"
        self._headers = {**headers, "origin": self._origin}
        self._socket = socketio.AsyncClient(reconnection=False)
        self._client_id = self._listener = ""
        self._elements: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Condition()
        self.updates = 0
        self.scripts: list[str] = []
        """What the browser was told to do."""

    async def __aenter__(self) -> Self:
        where = self._address + self._path
        async with aiohttp.ClientSession(headers=self._headers) as session, session.get(where) as page:
            page.raise_for_status()
            html = await page.text()
        query, listener = QUERY.search(html), LISTENER.search(html)
        if query is None or listener is None:
            raise ValueError("the page does not say how to connect")
        words: dict[str, Any] = ast.literal_eval(query[1])
        words |= {"document_id": str(uuid.uuid4()), "tab_id": str(uuid.uuid4()), "implicit_handshake": "true"}
        self._client_id, self._listener = words["client_id"], listener[1]
        self._socket.on("update", self._on_update)
        self._socket.on("run_javascript", self._on_javascript)
        asked = "&".join(f"{name}={value}" for name, value in words.items() if value is not None)
        await self._socket.connect(
            f"{self._origin}?{asked}",
            headers=self._headers,
            transports=["websocket"],
            socketio_path=f"{self._base}/_nicegui_ws/socket.io",
            wait_timeout=PATIENCE_SECONDS,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.disconnect()

    async def go(self, path: str) -> None:
        """As a click on a link does; `path` with the base path."""
        event = {"id": 0, "client_id": self._client_id, "listener_id": self._listener, "args": [json.dumps(path)]}
        await self._socket.emit("event", event)

    @property
    def heading(self) -> str:
        """Of the page that is shown: there is never more than one."""
        found = [one for one in self._elements.values() if one.get("tag") == "h1"]
        assert len(found) < 2, found
        return self._text(found[0]) if found else ""

    def _text(self, element: dict[str, Any]) -> str:
        children = (self._elements.get(str(child), {}) for child in element.get("children", []))
        return str(element.get("text") or "") + "".join(self._text(child) for child in children)

    def shows(self, words: str) -> bool:
        """Whether a text or a table's row holds these words."""
        return any(words in json.dumps(one, ensure_ascii=False) for one in self._elements.values())

    async def until(self, condition: Any) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(condition), PATIENCE_SECONDS)

    async def _on_update(self, message: dict[str, Any]) -> None:
        next_id = message.pop("_id") + 1
        for number, element in message.items():
            if element is None:
                self._elements.pop(number, None)
            else:
                self._elements[number] = element
        self.updates += 1
        await self._socket.emit("ack", {"client_id": self._client_id, "next_message_id": next_id})
        async with self._changed:
            self._changed.notify_all()

    async def _on_javascript(self, message: dict[str, Any]) -> None:
        self.scripts.append(message["code"])
        if "request_id" in message:  # of all that pages ask for, only the time zone is more than a number
            result = "UTC" if "zone()" in message["code"] else 1000
            answer = {"request_id": message["request_id"], "client_id": self._client_id, "result": result}
            await self._socket.emit("javascript_response", answer)
        async with self._changed:
            self._changed.notify_all()
