"""The one place that touches NiceGUI's inside: nonces in its page template, and its start within our application."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
from fastapi import FastAPI
from nicegui import client, core, ui

SCRIPT = re.compile(r"<script(?=[\s>])")


def run_with(app: FastAPI, title: str) -> None:
    _add_nonces()
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


def _add_nonces() -> None:
    """Scripts of the template get the nonce of their request; what pages put into it does not."""
    folder = Path(client.__file__).parent / "templates"

    def load(name: str) -> str | None:
        path = folder / name
        if path.parent != folder or not path.is_file():
            return None
        return SCRIPT.sub('<script nonce="{{ request.state.csp_nonce }}"', path.read_text())

    client.templates.env.loader = jinja2.FunctionLoader(load)
