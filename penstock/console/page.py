"""What a page is, and what it is handed: the viewer, the reader's clock, its arguments, links and timers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data.viewer import Viewer
from penstock.console.widgets.numbers import Clock
from penstock.operate.errors import ExitCode, UserError


@dataclass(frozen=True)
class Here:
    """Where a page stands."""

    viewer: Viewer
    clock: Clock
    arguments: Mapping[str, str]
    """Parts of the path and parameters of the query, by name."""
    base_path: str = ""

    def link(self, path: str = "", **query: Any) -> str:
        """The address of a page of the same cluster: `here.link("/topics/orders", tab="messages")`."""
        return link_to(self.base_path, self.viewer.cluster.name, path, query)

    def go(self, path: str = "", **query: Any) -> None:
        go_to(self.link(path, **query))

    def every(self, seconds: float, work: Callable[[], Awaitable[Any]]) -> None:
        """Do it now and then while the page is open. A cluster that is away is the banner's to tell.

        What the page shows may be deleted meanwhile: that is told once, and what was known stays on the screen.
        """
        told = False

        async def quietly() -> None:
            nonlocal told
            try:
                await work()
            except UserError as error:
                if error.code == ExitCode.NOT_FOUND and not told:
                    told = True
                    words = f"{error.message} any more; what is shown is the last that was known"
                    ui.notification(words, type="warning", position="bottom-right", timeout=None, close_button="Close")
            except ClientError:
                return

        ui.timer(seconds, quietly, immediate=False)


@dataclass(frozen=True)
class Page:
    path: str
    """Under the cluster: `/topics/{name}`."""
    title: str
    build: Callable[[Here], Awaitable[None]]
    label: str = ""
    """In the navigation; a page without one is reached from others."""
    icon: str = ""
    under: str = ""
    """The path of the page in the navigation that this one belongs to, where its own does not begin with it."""
    role: str = "viewer"
    """Who may open it."""


def link_to(base_path: str, cluster: str, path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    words = f"?{urlencode(given)}" if given else ""
    return f"{base_path}/c/{quote(cluster, safe='')}{path}{words}"


def go_to(address: str) -> None:
    """As if a link to it had been clicked."""
    ui.run_javascript(f"penstockConsole.go({json.dumps(address)})")


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")
