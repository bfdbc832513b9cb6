"""Dialogs: a form, and a confirmation that has to be typed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from penstock.base.printable import printable
from penstock.client.errors import ClientError
from penstock.console.widgets.pieces import danger, plain, primary, text
from penstock.operate.errors import UserError


def tell(message: str, *, good: bool = True) -> None:
    """A short word about what was done."""
    words = printable(message)
    ui.notify(words, type="positive" if good else "negative", position="bottom-right", timeout=4000 if good else 9000)


def described(error: Exception) -> str:
    """What went wrong and what to do, in one line."""
    hint = getattr(error, "hint", None)
    return f"{error} – {hint}" if hint else str(error)


async def attempt(work: Callable[[], Awaitable[Any]], done: str | None = None) -> bool:
    """Do it, and say how it went; whether it went well. What the user or the cluster did wrong is told in words."""
    try:
        await work()
    except (UserError, ClientError) as error:
        tell(described(error), good=False)
        return False
    if done:
        tell(done)
    return True


@contextmanager
def dialog(title: str, explanation: str = "") -> Iterator[ui.dialog]:
    """An open dialog with a heading; what is made inside stands under it."""
    with ui.dialog() as made, ui.card().classes("pk-dialog"):
        made.props["aria-label"] = title
        text("h2", title)
        if explanation:
            ui.label(explanation).classes("pk-sub")
        yield made
    made.open()


def buttons(made: ui.dialog, label: str, work: Callable[[], Awaitable[bool]], *, dangerous: bool = False) -> ui.button:
    """Cancel and do; the dialog closes when the work says that it went well."""

    async def do() -> None:
        if await work():
            made.close()

    with ui.element("div").classes("pk-row").style("justify-content: flex-end"):
        plain("Cancel", made.close)
        return (danger if dangerous else primary)(label, do)


def confirm(
    title: str, explanation: str, label: str, work: Callable[[], Awaitable[bool]], *, dangerous: bool = False
) -> None:
    """For what can be taken back, or costs something: one more click."""
    with dialog(title, explanation) as made:
        buttons(made, label, work, dangerous=dangerous)


def confirm_typed(title: str, explanation: str, word: str, label: str, work: Callable[[], Awaitable[bool]]) -> None:
    """For what cannot be undone: the name has to be typed before the button works."""
    with dialog(title, explanation) as made:
        typed = ui.input(f"Type {word} to confirm").props("outlined dense autofocus autocomplete=off")
        button = buttons(made, label, work, dangerous=True)
        button.set_enabled(False)
        typed.on_value_change(lambda event: button.set_enabled(event.value == word))
