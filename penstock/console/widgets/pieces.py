"""Small pieces: panels, tiles, pills, empty and error states, text as code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from penstock.base.printable import printable, printable_cell
from penstock.console.widgets import waiting

TONES = {"ok": "pk-ok", "warning": "pk-warning", "problem": "pk-problem", "accent": "pk-accent", "": ""}


def text(tag: str, content: str, classes: str = "") -> ui.element:
    """An element with plain text in it: never taken for HTML."""
    with ui.element(tag).classes(classes) as made:
        ui.label(printable(content)).style("display: contents")
    return made


@contextmanager
def panel(title: str = "", *, flush: bool = False, sub: str = "") -> Iterator[ui.element]:
    """A surface with a heading; `flush` for tables, which reach its edges."""
    with ui.element("section").classes("pk-panel" + (" pk-flush" if flush else "")) as made:
        if title:
            with ui.element("div").classes("pk-panel-head").style("padding: 16px 20px 0" if flush else ""):
                text("h2", title)
                if sub:
                    ui.label(sub).classes("pk-sub")
        yield made


@contextmanager
def title_row(title: str, sub: str = "") -> Iterator[None]:
    """The page's one `<h1>`, with what belongs beside it."""
    waiting.over()
    with ui.element("div").classes("pk-title"):
        text("h1", title)
        if sub:
            ui.label(sub).classes("pk-sub")
        ui.element("div").classes("pk-grow")
        yield


class Tile:
    """A figure with its name and unit."""

    def __init__(self, name: str, hint: str = "") -> None:
        with ui.element("div").classes("pk-tile") as self._made:
            text("div", name, "pk-tile-name")
            with ui.element("div").classes("pk-tile-value"):
                self._value = ui.label("–").style("display: inline")
                with ui.element("small"):
                    self._unit = ui.label("").style("display: inline")
            self._hint = ui.label(hint).classes("pk-sub")
            self._hint.set_visibility(bool(hint))

    def show(self, value: str, unit: str = "", tone: str = "", hint: str | None = None) -> None:
        self._value.text, self._unit.text = value, unit
        self._made.classes(remove="pk-ok pk-warning pk-problem", add=TONES[tone])
        if hint is not None:
            self._hint.text = hint
            self._hint.set_visibility(bool(hint))


def pill(content: str, tone: str = "") -> ui.label:
    return ui.label(content).classes(f"pk-pill {TONES[tone]}")


STATE_TONES = {
    "stable": "ok", "running": "ok", "empty": "", "dead": "problem", "failed": "problem", "lost": "problem",
    "ongoing": "warning", "preparingrebalance": "warning", "completingrebalance": "warning", "assigning": "warning",
    "reconciling": "warning", "starting": "accent", "stopping": "warning",
}  # fmt: skip


STATE_MEANINGS = {
    "stable": "every member knows what it owns",
    "empty": "nobody reads; the offsets are kept",
    "dead": "it is being deleted",
    "preparingrebalance": "waits for its members to join",
    "completingrebalance": "its leader divides the partitions",
    "assigning": "the coordinator divides the partitions",
    "reconciling": "members give back and take over partitions",
}


def state_tone(state: str) -> str:
    return STATE_TONES.get(state.lower(), "")


def state_pill(state: str) -> ui.label:
    return pill(state, state_tone(state))


def empty_state(icon: str, headline: str, next_step: str, action: tuple[str, Callable[[], Any]] | None = None) -> None:
    """Nothing to show: say so, and what to do next."""
    with ui.element("div").classes("pk-empty"):
        ui.icon(icon).props("aria-hidden=true")
        text("b", headline)
        with_code(next_step)
        if action is not None:
            primary(action[0], action[1])


def with_code(words: str) -> None:
    """A sentence in which `this` is a command or a name."""
    with ui.element("p").style("margin: 0"):
        for place, part in enumerate(words.split("`")):
            text("code" if place % 2 else "span", part)


def error_state(message: str, hint: str | None = None) -> None:
    with ui.element("section").classes("pk-panel").props("role=alert"), ui.element("div").classes("pk-empty"):
        ui.icon("error_outline").props("aria-hidden=true")
        text("b", message)
        if hint:
            ui.label(hint)


def not_available(what: str, reason: str) -> None:
    """What this cluster cannot tell, and why."""
    with ui.element("div").classes("pk-row"):
        pill("not available")
        ui.label(f"{what}: {reason}").classes("pk-sub")


def primary(label: str, on_click: Callable[..., Any], icon: str | None = None) -> ui.button:
    return ui.button(label, on_click=on_click, icon=icon, color=None).classes("pk-primary").props("unelevated no-caps")


def plain(label: str, on_click: Callable[..., Any], icon: str | None = None) -> ui.button:
    return ui.button(label, on_click=on_click, icon=icon, color=None).classes("pk-plain").props("unelevated no-caps")


def danger(label: str, on_click: Callable[..., Any], icon: str | None = None) -> ui.button:
    return ui.button(label, on_click=on_click, icon=icon, color=None).classes("pk-danger").props("unelevated no-caps")


def icon_button(icon: str, label: str, on_click: Callable[..., Any]) -> ui.element:
    """A button that is only an icon: its label is for screen readers and for the pointer that rests on it."""
    with ui.element("button").classes("pk-icon").props(f'type=button aria-label="{label}" title="{label}"') as made:
        ui.icon(icon).props("aria-hidden=true")
    made.on("click", on_click)
    return made


def facts(rows: dict[str, str]) -> None:
    with ui.element("dl").classes("pk-facts"):
        for name, value in rows.items():
            text("dt", name)
            text("dd", value)


def code(content: str) -> ui.element:
    """Text as it is, in a box that scrolls."""
    made = text("pre", content, "pk-pre")
    made.props("tabindex=0")
    return made


def shown_value(value: dict[str, Any] | None) -> None:
    """Bytes as the data service shows them: JSON indented, text as it is, hex otherwise."""
    if value is None:
        ui.label("null").classes("pk-sub")
        return
    content = value["text"]
    if value["kind"] == "json":
        content = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    code(content)
    if value.get("problem"):
        ui.label(f"shown as it is: {value['problem']}").classes("pk-sub")
    if value["cut"]:
        ui.label(f"only the beginning is shown; it has {value['size']:,} bytes").classes("pk-sub")


def one_line(value: dict[str, Any] | None) -> str:
    """The beginning of a key or value for a table's cell."""
    if value is None:
        return "null"
    start = printable_cell(" ".join(str(value["text"])[:200].split()))
    return start if start else ("(empty)" if value["size"] == 0 else start)
