"""What stands in a page until it knows what to show: its heading at once, and after a moment that it asks."""

from __future__ import annotations

from contextvars import ContextVar

from nicegui import ui

_stands: ContextVar[ui.element | None] = ContextVar("waiting", default=None)


def stand_in(title: str) -> None:
    """Until the page that is being built in this task puts up a heading of its own."""
    with ui.element("div").classes("pk-waiting") as made:
        with ui.element("div").classes("pk-title"), ui.element("h1"):
            ui.label(title).style("display: contents")
        with ui.element("div").classes("pk-empty pk-late").props("role=status"):
            ui.spinner(size="28px")
            ui.label("asking the cluster…")
    _stands.set(made)


def over() -> None:
    made = _stands.get()
    if made is not None and not made.is_deleted:
        made.delete()
    _stands.set(None)
