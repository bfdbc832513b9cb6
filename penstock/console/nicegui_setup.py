"""The one place that touches NiceGUI's inside: nonces in its template, its texts, its start within our application."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import jinja2
from fastapi import FastAPI
from nicegui import client, core, ui
from nicegui.elements.mixins.text_element import TextElement

from penstock.base.printable import printable

SCRIPT = re.compile(r"<script(?=[\s>])")


def run_with(app: FastAPI, title: str) -> None:
    _add_nonces()
    _show_only_printable_text()
    logging.getLogger("nicegui").addFilter(_is_ours_to_know)
    core.sio.eio.cors_allowed_origins = []  # the guard has checked the origin before anything comes here
    # Quasar's bar on top of the page has no name for screen readers, and says nothing that the page does not say.
    core.app.config.quasar_config["loadingBar"] = {"skipHijack": True}
    ui.run_with(
        app,
        title=title,
        language="en-US",
        dark=None,
        tailwind=False,
        reconnect_timeout=10.0,
        binding_refresh_interval=None,
        show_welcome_message=False,
    )


def _is_ours_to_know(record: logging.LogRecord) -> bool:
    """An address that is not there is told to who asked for it; the log would repeat whatever strangers ask for."""
    return not (record.levelno == logging.WARNING and record.getMessage().endswith(" not found"))


def _show_only_printable_text() -> None:
    """Every label and tooltip: any of them may hold a name or message of others, and none is to turn its line around.

    Here and not where labels are made, because one that is forgotten would be enough.
    """

    def keep(self: TextElement, text: str) -> None:
        self._text = printable(text) if isinstance(text, str) else text

    setattr(TextElement, "_text_to_model_text", keep)  # noqa: B010


def _add_nonces() -> None:
    """Scripts of the template get the nonce of their request; what pages put into it does not."""
    folder = Path(client.__file__).parent / "templates"

    def load(name: str) -> str | None:
        path = folder / name
        if path.parent != folder or not path.is_file():
            return None
        return SCRIPT.sub('<script nonce="{{ request.state.csp_nonce }}"', path.read_text())

    client.templates.env.loader = jinja2.FunctionLoader(load)
