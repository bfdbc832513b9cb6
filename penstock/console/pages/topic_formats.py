"""Choosing how a topic's keys and values are read: the format, its schema as text or file, or a registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from penstock.console.data import formats
from penstock.console.formats import KINDS, LARGEST_SCHEMA, PARTS, SUFFIXES
from penstock.console.page import Here
from penstock.console.widgets.dialogs import attempt, buttons, dialog, tell

NAMES = {
    "": "As it is (text, JSON, hex)",
    "avro": "Avro",
    "protobuf": "Protobuf",
    "json-schema": "JSON with a schema",
} | {kind: f"Number ({kind})" for kind in KINDS if kind not in SUFFIXES}


async def formats_dialog(here: Here, topic: str, after: Callable[[], Awaitable[None]]) -> None:
    """Kept for all who look at this topic."""
    known = await here.viewer.ask(formats.of_topic, topic)
    with dialog(f"How {topic} is read", "Kept in the console's state folder, for everybody who looks here.") as made:
        parts = {part: _Part(here, part, known.get(part, {})) for part in PARTS}

        async def save() -> bool:
            async def work() -> None:
                for part, chosen in parts.items():
                    await here.viewer.ask(formats.choose, topic, part, *chosen.values)

            good = await attempt(work, "saved")
            if good:
                await after()
            return good

        buttons(made, "Save", save)


class _Part:
    def __init__(self, here: Here, part: str, known: dict[str, Any]) -> None:
        label = part.capitalize()
        self._kind = ui.select(NAMES, value=known.get("kind", ""), label=f"{label} format").props("outlined dense")
        with ui.element("div").style("width: 100%") as details:
            self._schema = ui.textarea(f"{label} schema", value=known.get("schema", ""))
            self._schema.props("outlined input-class=pk-mono rows=5").style("width: 100%")
            upload = ui.upload(label=f"{label} schema from a file", auto_upload=True, max_file_size=LARGEST_SCHEMA)
            upload.props("flat dense accept=.avsc,.proto,.json").style("width: 100%")
            upload.on_upload(self._take)
            self._registry = ui.input(f"{label} registry (for the Confluent format)", value=known.get("registry") or "")
            self._registry.props('outlined dense placeholder="http://registry:8081"').style("width: 100%")
            self._registry.set_visibility(here.viewer.may("admin"))
        details.bind_visibility_from(self._kind, "value", lambda kind: kind in SUFFIXES)

    async def _take(self, event: Any) -> None:
        try:
            self._schema.value = (await event.file.read()).decode("utf-8")
        except UnicodeDecodeError:
            tell("this file is no text: a schema is a .avsc, .proto or .json file", good=False)

    @property
    def values(self) -> tuple[str, str, str]:
        return str(self._kind.value or ""), self._schema.value or "", self._registry.value or ""
