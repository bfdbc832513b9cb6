"""The frame around every page: navigation, search, clusters, theme, the banner, and who is logged in."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from nicegui import PageArguments, app, ui
from nicegui.events import GenericEventArguments

from penstock.client.errors import ClientError
from penstock.console import nicegui_setup, theme
from penstock.console.context import Context
from penstock.console.data import overview
from penstock.console.data.viewer import Viewer
from penstock.console.page import Here, Page, link_to, segment
from penstock.console.pages import PAGES
from penstock.console.widgets.numbers import Clock
from penstock.console.widgets.pieces import error_state, icon_button, text
from penstock.operate.errors import UserError

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
KINDS = {"topic": ("topic", "/topics/"), "broker": ("dns", "/brokers/"), "pipeline": ("account_tree", "/pipelines/")}


def install(fastapi: FastAPI, context: Context) -> None:
    """Put pages and their few files into the application."""
    style = theme.css()

    @fastapi.get("/assets/console.css", include_in_schema=False)
    def console_css() -> Response:
        return Response(style, media_type="text/css", headers={"cache-control": "no-cache"})

    @fastapi.get("/assets/console.js", include_in_schema=False)
    def console_js() -> FileResponse:
        return FileResponse(STATIC / "console.js", media_type="text/javascript", headers={"cache-control": "no-cache"})

    @fastapi.get("/", include_in_schema=False)
    def start() -> RedirectResponse:
        return RedirectResponse(link_to(context.base_path, next(iter(context.clusters)), "", {}), 303)

    async def console_page(request: Request, cluster: str) -> None:
        await _Frame(context, request, cluster).build()

    for path in ("/c/{cluster}", "/c/{cluster}/{rest:path}"):
        ui.page(path, title="Penstock")(console_page)
    app.on_exception(lambda error: log.error("a page failed", exc_info=error))
    nicegui_setup.run_with(fastapi, "Penstock")


class _Frame:
    """One open browser page."""

    def __init__(self, context: Context, request: Request, cluster: str) -> None:
        self._context = context
        self._viewer: Viewer = context.viewer(request.state.login, cluster)
        self._base = context.base_path
        self._clock = Clock()
        self._navigation: list[tuple[Page, ui.element]] = []

    async def build(self) -> None:
        ui.add_head_html(f'<link rel="stylesheet" href="{self._base}/assets/console.css">')
        ui.add_head_html(f'<script src="{self._base}/assets/console.js"></script>')
        with ui.element("a").classes("pk-skip").props('href="#pk-main"'):
            ui.label("Skip to the content")
        self._header()
        self._banner()
        content = ui.element("div").props("id=pk-main tabindex=-1").style("width: 100%")
        client = ui.context.client
        await client.connected(timeout=30)
        with contextlib.suppress(TimeoutError):  # the browser went away, or is very slow: then it is UTC
            self._clock = Clock(str(await ui.run_javascript("penstockConsole.zone()", timeout=10)))
        with content:
            prefix = f"/c/{segment(self._viewer.cluster.name)}"
            routes: dict[str, Callable[..., Any]] = {prefix + page.path: self._opener(page) for page in PAGES}
            ui.sub_pages(routes)
        client.sub_pages_router.on_path_changed(self._mark_current)
        self._mark_current(client.sub_pages_router.current_path)

    def _opener(self, page: Page) -> Callable[[PageArguments], Any]:
        async def open_page(args: PageArguments) -> None:
            given = {name: unquote(str(value)) for name, value in args.path_parameters.items()}
            given |= {name: str(value) for name, value in args.query_parameters.items()}
            here = Here(self._viewer, self._clock, given, self._base)
            title = page.title.format_map(defaultdict(str, given))
            ui.page_title(f"{title} · Penstock")
            with ui.element("div").classes("pk-page"):
                try:
                    self._viewer.require(page.role)
                    await page.build(here)
                except UserError as error:
                    text("h1", title)
                    error_state(error.message, error.hint)
                except ClientError as error:
                    text("h1", title)
                    error_state(str(error), "the page works again when the cluster does")

        open_page.__annotations__["args"] = PageArguments  # NiceGUI looks for the class, not for its name
        return open_page

    # --- the pieces of the frame

    def _header(self) -> None:
        with ui.left_drawer(top_corner=False, bottom_corner=True, value=None).props(
            "width=212 breakpoint=900"
        ) as drawer:
            drawer.classes("pk-drawer")
            with ui.element("nav").props('aria-label="Main"').style("width: 100%"):
                for page in PAGES:
                    if page.label and self._viewer.may(page.role):
                        self._nav_item(page)
        with ui.header().classes("pk-header"):
            icon_button("menu", "Navigation", drawer.toggle)
            with ui.element("a").classes("pk-brand") as brand:
                ui.element("span").classes("pk-mark").props("aria-hidden=true")
                ui.label("Penstock")
            brand.props["href"] = link_to(self._base, self._viewer.cluster.name, "", {})
            self._cluster_choice()
            ui.element("div").classes("pk-grow")
            self._search_button()
            self._theme_button()
            self._user_menu()

    def _nav_item(self, page: Page) -> None:
        with ui.element("a").classes("pk-nav") as item:
            item.props["href"] = link_to(self._base, self._viewer.cluster.name, page.path, {})
            ui.icon(page.icon).props("aria-hidden=true")
            ui.label(page.label)
        self._navigation.append((page, item))

    def _mark_current(self, path: str) -> None:
        inner = path.partition("?")[0].removeprefix(f"/c/{segment(self._viewer.cluster.name)}")
        inner = next((page.under for page in PAGES if page.under and page.path == inner), inner)
        for page, item in self._navigation:
            is_current = (
                inner in ("", "/") if not page.path else inner == page.path or inner.startswith(page.path + "/")
            )
            if is_current:
                item.props("aria-current=page")
            else:
                item.props(remove="aria-current")
            item.update()

    def _cluster_choice(self) -> None:
        names = list(self._context.clusters)
        if len(names) < 2:
            return
        choice = ui.select(names, value=self._viewer.cluster.name).props('outlined dense aria-label="Cluster"')
        choice.on_value_change(lambda event: ui.navigate.to(link_to("", event.value, "", {})))

    def _theme_button(self) -> None:
        async def change() -> None:
            chosen = await ui.run_javascript("penstockConsole.nextTheme()", timeout=5)
            ui.notify(f"Theme: {'as the browser' if chosen == 'auto' else chosen}", position="bottom-right")

        icon_button("contrast", "Theme: light, dark or as the browser", change)

    def _user_menu(self) -> None:
        user = self._viewer.user

        async def log_out() -> None:
            ui.run_javascript(f"penstockConsole.logOut({self._base!r})")

        with icon_button("account_circle", f"{user.role} {user.name}".replace('"', ""), lambda: None), ui.menu():
            with ui.element("div").style("padding: 10px 16px"):
                ui.label(user.name).style("font-weight: 600")
                ui.label(user.role).classes("pk-sub")
            ui.menu_item("Log out", log_out)

    def _banner(self) -> None:
        cluster = self._viewer.cluster
        with ui.element("div").classes("pk-banner").props("role=status") as banner:
            ui.icon("cloud_off").props("aria-hidden=true")
            words = ui.label("")
        banner.set_visibility(cluster.error is not None)

        def look() -> None:
            error = "this login is over: log in again" if self._viewer.login.over else cluster.error
            if error:
                words.text = f"{cluster.name} does not answer: {error}. What is shown is the last that was known."
            if banner.visible != bool(error):
                banner.set_visibility(bool(error))

        ui.timer(1.0, look)

    def _search_button(self) -> None:
        with (
            ui.element("button")
            .classes("pk-search")
            .props('type=button id=pk-search aria-label="Search (Ctrl K)"') as made
        ):
            ui.icon("search").props("aria-hidden=true")
            ui.html("<span>Search</span><kbd>Ctrl K</kbd>", sanitize=False).style("display: contents")
        made.on("click", self._open_search)

    def _open_search(self) -> None:
        newest = 0

        def address(row: dict[str, str]) -> str:
            cluster = self._viewer.cluster.name
            if row["kind"] == "page":
                return link_to("", cluster, row["path"], {})
            if row["kind"] == "group":
                return link_to("", cluster, "/group", {"name": row["name"]})
            return link_to("", cluster, KINDS[row["kind"]][1] + segment(row["name"]), {})

        def jump(row: dict[str, str]) -> None:
            dialog.close()
            ui.navigate.to(address(row))

        async def find(words: str) -> list[dict[str, str]]:
            pages = [
                {"kind": "page", "name": page.label, "path": page.path}
                for page in PAGES
                if page.label and self._viewer.may(page.role) and words.strip().casefold() in page.label.casefold()
            ]
            return pages + await self._viewer.ask(overview.find, words)

        async def jump_to_first(event: GenericEventArguments) -> None:
            """To what the box says now: the list below it may still be that of fewer letters."""
            found = await find(str(event.args or ""))
            if found:
                jump(found[0])

        async def search(words: str) -> None:
            nonlocal newest
            newest += 1
            mine = newest
            found = await find(words)
            if mine != newest:
                return  # an older question was answered later
            results.clear()
            with results:
                for row in found:
                    with ui.item(on_click=lambda row=row: jump(row)).props("clickable"):
                        with ui.item_section().props("avatar"):
                            ui.icon(
                                KINDS.get(row["kind"], ("group_work", ""))[0]
                                if row["kind"] != "page"
                                else "arrow_forward"
                            )
                        with ui.item_section():
                            ui.item_label(row["name"])
                            ui.item_label(row["kind"]).props("caption")

        with ui.dialog().props("position=top") as dialog, ui.card().classes("pk-dialog"):
            dialog.props["aria-label"] = "Search"
            words = ui.input(placeholder="Topics, groups, pipelines, brokers, pages")
            words.props('outlined dense autofocus debounce=150 aria-label="Search for"')
            words.on_value_change(lambda event: search(event.value or ""))
            words.on("keydown.enter", jump_to_first, js_handler="(event) => emit(event.target.value)")
            results = ui.list().style("width: 100%; max-height: 50vh; overflow: auto")
        dialog.open()
        ui.timer(0, lambda: search(""), once=True)
