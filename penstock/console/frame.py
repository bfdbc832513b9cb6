"""The frame around every page: navigation, search, clusters, theme, the banner, and who is logged in."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from nicegui import app, ui
from nicegui.events import GenericEventArguments

from penstock.console import nicegui_setup, theme
from penstock.console.access.logins import Login
from penstock.console.context import Context
from penstock.console.data import overview
from penstock.console.page import Page, go_to, link_to, segment
from penstock.console.pages import PAGES
from penstock.console.router import Place, Router, asked_for
from penstock.console.widgets.numbers import Clock
from penstock.console.widgets.pieces import icon_button

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

    async def console_page(request: Request) -> None:
        await _Frame(context, request).build()

    for path in ("/c/{cluster}", "/c/{cluster}/{rest:path}"):
        ui.page(path, title="Penstock")(console_page)
    app.on_exception(lambda error: log.error("a page failed", exc_info=error))
    nicegui_setup.run_with(fastapi, "Penstock")


class _Frame:
    """One open browser page."""

    def __init__(self, context: Context, request: Request) -> None:
        self._context = context
        self._base = context.base_path
        self._login: Login = request.state.login
        self._router = Router(context, self._login, PAGES, self._on_visit)
        self._first = self._router.find(asked_for(request))
        known = self._first.cluster in context.clusters
        self._viewer = context.viewer(self._login, self._first.cluster if known else None)
        self._links: list[tuple[str, ui.element]] = []
        """(path under the cluster, link)"""
        self._navigation: list[tuple[Page, ui.element]] = []
        self._choice: ui.select | None = None
        self._search: ui.dialog | None = None
        if self._first.page is None or not known:
            ui.context.client.status_code = 404

    async def build(self) -> None:
        ui.add_head_html(f'<link rel="stylesheet" href="{self._base}/assets/console.css">')
        ui.add_head_html(f'<script src="{self._base}/assets/console.js"></script>')
        ui.page_title(f"{self._first.title} · Penstock")
        with ui.element("a").classes("pk-skip").props('href="#pk-main"'):
            ui.label("Skip to the content")
        self._header()
        self._banner()
        content = ui.element("div").props("id=pk-main tabindex=-1").style("width: 100%")
        self._on_visit(self._first)
        await ui.context.client.connected(timeout=30)
        clock = Clock()
        with contextlib.suppress(TimeoutError):  # the browser went away, or is very slow: then it is UTC
            clock = Clock(str(await ui.run_javascript("penstockConsole.zone()", timeout=10)))
        self._router.start(content, clock, self._first)

    def _on_visit(self, place: Place) -> None:
        """The frame follows: links, banner and search are of the cluster that is shown."""
        if place.cluster in self._context.clusters:
            self._viewer = self._context.viewer(self._login, place.cluster)
        if self._search is not None:
            self._search.close()
            self._search = None
        cluster = self._viewer.cluster.name
        if self._choice is not None:
            self._choice.value = cluster
        for path, link in self._links:
            link.props["href"] = link_to(self._base, cluster, path, {})
            link.update()
        self._mark_current(place.page)

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
            self._links.append(("", brand))
            self._cluster_choice()
            ui.element("div").classes("pk-grow")
            self._search_button()
            self._theme_button()
            self._user_menu()

    def _nav_item(self, page: Page) -> None:
        with ui.element("a").classes("pk-nav") as item:
            self._links.append((page.path, item))
            ui.icon(page.icon).props("aria-hidden=true")
            ui.label(page.label)
        self._navigation.append((page, item))

    def _mark_current(self, shown: Page | None) -> None:
        path = None if shown is None else shown.under or shown.path
        for page, item in self._navigation:
            is_current = path is not None and (
                path == page.path or (bool(page.path) and path.startswith(page.path + "/"))
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

        def change(name: str) -> None:
            if name != self._viewer.cluster.name:
                go_to(link_to(self._base, name, "", {}))

        self._choice = ui.select(names, value=self._viewer.cluster.name).props('outlined dense aria-label="Cluster"')
        self._choice.on_value_change(lambda event: change(event.value))

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
        with ui.element("div").classes("pk-banner").props("role=status") as banner:
            ui.icon("cloud_off").props("aria-hidden=true")
            words = ui.label("")

        def look() -> None:
            self._context.logins.end_if_due(self._login)
            cluster = self._viewer.cluster
            if self._login.over:
                told = "This login is over: log in again. What is shown is the last that was known."
            elif cluster.error:
                told = f"{cluster.name} does not answer: {cluster.error}. What is shown is the last that was known."
            else:
                told = ""
            if told:
                words.text = told
            if banner.visible != bool(told):
                banner.set_visibility(bool(told))

        look()
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
                return link_to(self._base, cluster, row["path"], {})
            if row["kind"] == "group":
                return link_to(self._base, cluster, "/group", {"name": row["name"]})
            return link_to(self._base, cluster, KINDS[row["kind"]][1] + segment(row["name"]), {})

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
                go_to(address(found[0]))

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
                    # A link, not a button: one that is clicked while a newer list replaces it still leads there.
                    with ui.item().props("clickable") as item:
                        item.props["href"] = address(row)
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
            dialog.on("hide", dialog.delete)
            words = ui.input(placeholder="Topics, groups, pipelines, brokers, pages")
            words.props('outlined dense autofocus debounce=150 aria-label="Search for"')
            words.on_value_change(lambda event: search(event.value or ""))
            words.on("keydown.enter", jump_to_first, js_handler="(event) => emit(event.target.value)")
            results = ui.list().style("width: 100%; max-height: 50vh; overflow: auto")
        self._search = dialog
        dialog.open()
        ui.timer(0, lambda: search(""), once=True)
