"""From page to page inside one open frame: the browser says where it went, the new page is built over the connection.

`static/console.js` is the other half: it takes clicks on links, keeps the history, and moves the focus. Every visit is
checked as a full load is: the login anew, the cluster, the role. Why this is not `ui.sub_pages`: decision 0016.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from fastapi import Request
from nicegui import background_tasks, ui
from nicegui.events import GenericEventArguments

from penstock.client.errors import ClientError
from penstock.console.access.logins import Login
from penstock.console.context import Context
from penstock.console.page import Here, Page
from penstock.console.widgets import waiting
from penstock.console.widgets.numbers import Clock
from penstock.console.widgets.pieces import error_state, text
from penstock.operate.errors import UserError

log = logging.getLogger(__name__)

LONGEST_ADDRESS = 8192


@dataclass(frozen=True)
class Place:
    """An address taken apart; `page` is None where there is none of that name."""

    address: str
    cluster: str
    page: Page | None
    arguments: dict[str, str]

    @property
    def title(self) -> str:
        return self.page.title.format_map(defaultdict(str, self.arguments)) if self.page else "Not found"


def asked_for(request: Request) -> str:
    """Path and query as the browser sent them: what is encoded in a name stays so until the path is split."""
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


def find(address: str, base_path: str, pages: tuple[Page, ...]) -> Place:
    path, _, query = address.partition("?")
    parts = [unquote(part) for part in path.removeprefix(base_path).rstrip("/").split("/")[1:]]
    cluster, rest = (parts[1], parts[2:]) if len(parts) > 1 and parts[0] == "c" else ("", parts)
    for page in pages:
        given = _match(page.path, rest)
        if given is not None:
            return Place(address, cluster, page, dict(parse_qsl(query)) | given)
    return Place(address, cluster, None, {})


def _match(pattern: str, parts: list[str]) -> dict[str, str] | None:
    wanted = pattern.split("/")[1:]
    if len(wanted) != len(parts):
        return None
    given = {}
    for name, part in zip(wanted, parts, strict=True):
        if name.startswith("{") and part:
            given[name.strip("{}")] = part
        elif name != part:
            return None
    return given


class Router:
    """Of one open browser page."""

    def __init__(
        self, context: Context, login: Login, pages: tuple[Page, ...], on_visit: Callable[[Place], None]
    ) -> None:
        self._context, self._login, self._pages, self._on_visit = context, login, pages, on_visit
        self._client = ui.context.client
        self._clock = Clock()
        self._content: ui.element | None = None
        self._visits = 0
        self._building: asyncio.Task[Any] | None = None
        ui.on("console_visit", self._on_browser)

    def find(self, address: str) -> Place:
        return find(address, self._context.base_path, self._pages)

    def start(self, content: ui.element, clock: Clock, first: Place) -> None:
        """Show the page that the browser asked for, and those that it goes to from there, inside of `content`."""
        self._content, self._clock = content, clock
        self._visit(first)

    def _on_browser(self, event: GenericEventArguments) -> None:
        if self._content is None:
            self._client.run_javascript("location.reload()")  # so early that the first page has not begun
        elif not self._context.logins.still(self._login):
            self._client.run_javascript("location.reload()")  # as any full load without a login: to the login page
        else:
            self._visit(self.find(str(event.args)[:LONGEST_ADDRESS]))

    def _visit(self, place: Place) -> None:
        """What the page left behind had under way ends with its elements: timers, tails, a page half built."""
        assert self._content is not None
        if self._building is not None:
            self._building.cancel()
        self._visits += 1
        self._on_visit(place)
        self._content.clear()
        with self._content, ui.element("div").classes("pk-page").props(f"data-visit={self._visits}") as box:
            ui.page_title(f"{place.title} · Penstock")
            self._building = background_tasks.create(self._build(place, box), name=f"page {place.title}", context=box)
        if self._visits > 1:
            self._client.run_javascript(f"penstockConsole.arrived({self._visits})")

    async def _build(self, place: Place, box: ui.element) -> None:
        waiting.stand_in(place.title)
        try:
            viewer = self._context.viewer(self._login, place.cluster)
            if place.page is None:
                raise UserError("there is no page at this address", "the navigation leads to all there are")
            viewer.require(place.page.role)
            await place.page.build(Here(viewer, self._clock, place.arguments, self._context.base_path))
        except UserError as error:
            _show_error(box, place.title, error.message, error.hint)
        except ClientError as error:
            _show_error(box, place.title, str(error), "the page works again when the cluster does")
        except Exception:
            if box.is_deleted:
                return  # it was left while it was being built
            log.exception("the page %s failed", place.title)
            _show_error(box, place.title, "this page failed", "the console's log tells why")
        else:
            waiting.over()


def _show_error(box: ui.element, title: str, message: str, hint: str | None) -> None:
    if box.is_deleted:
        return
    box.clear()
    with box:
        text("h1", title)
        error_state(message, hint)
