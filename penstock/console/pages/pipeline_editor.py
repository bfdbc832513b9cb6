"""The spec of a pipeline as text: checked while it is typed, tried with sample records, applied by compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data import pipelines
from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import described
from penstock.console.widgets.pieces import code, plain, primary, text
from penstock.operate.errors import UserError

EXAMPLE = """\
name: clean-orders
sources:
  orders:
    topic: orders
    format: {type: json, schema: "id STRING, amount DOUBLE"}
views:
  clean: SELECT id, amount FROM orders WHERE amount > 0
sinks:
  out: {from: clean, topic: orders.clean, key: id}
trigger: 2 seconds
"""


class SpecEditor:
    """`generation` is what the text was made of, 0 for a new pipeline; `on_applied` gets the name."""

    def __init__(
        self, here: Here, content: str, generation: int, on_applied: Callable[[str], Awaitable[None] | None]
    ) -> None:
        self._here, self._generation, self._on_applied = here, generation, on_applied
        self._newest = 0
        self._may = here.viewer.may("editor")
        self._text = ui.textarea(value=content).classes("pk-editor").style("width: 100%")
        self._text.props('outlined debounce=500 spellcheck=false aria-label="Pipeline in YAML"')
        if not self._may:
            self._text.props("readonly")
            ui.label(
                "Changing a pipeline takes the role editor, or admin for what runners do not open to editors."
            ).classes("pk-sub")
            return
        self._note = ui.element("div").classes("pk-note").props("role=status")
        with self._note:
            self._words = ui.label("Checked while you type.")
        with ui.element("div").classes("pk-row"):
            self._apply_button = primary("Apply", self._apply, icon="check")
            self._try_button = plain("Dry run", self._dry_run, icon="science")
        self._result = ui.element("div").style("width: 100%")
        self._text.on_value_change(self._check)

    def _say(self, words: str, tone: str = "") -> None:
        self._words.text = words
        self._note.classes(remove="pk-ok pk-problem pk-warning", add=f"pk-{tone}" if tone else "")

    async def _check(self) -> bool:
        self._newest += 1
        mine = self._newest
        try:
            found = await self._here.viewer.ask(pipelines.check, str(self._text.value or ""))
        except (UserError, ClientError) as error:
            if mine == self._newest:
                self._say(described(error), "problem")
            return False
        if mine == self._newest:
            parts = ", ".join(
                numbers.plural(len(found[kind]), kind.removesuffix("s")) for kind in ("sources", "views", "sinks")
            )
            self._say(f"{found['name']} is a pipeline: {parts}.", "ok")
        return True

    async def _apply(self) -> None:
        self._apply_button.set_enabled(False)
        try:
            done = await self._here.viewer.ask(pipelines.apply, str(self._text.value or ""), self._generation)
        except (UserError, ClientError) as error:
            self._say(described(error), "problem")
            return
        finally:
            self._apply_button.set_enabled(True)
        self._generation = done["generation"]
        self._say(f"Applied: generation {done['generation']}. A runner starts it within seconds.", "ok")
        following = self._on_applied(done["name"])
        if following is not None:
            await following

    async def _dry_run(self) -> None:
        self._try_button.set_enabled(False)
        self._say("Trying it with the newest records of its topics; the first time, Spark has to start …")
        self._result.clear()
        try:
            found = await self._here.viewer.ask(pipelines.dry_run, str(self._text.value or ""))
        except (UserError, ClientError) as error:
            self._say(described(error), "problem")
            return
        finally:
            self._try_button.set_enabled(True)
        read = ", ".join(f"{numbers.plural(count, 'record')} of {name}" for name, count in found["given"].items())
        self._say(f"Nothing was written. It was given {read or 'nothing: no source is a topic'}.", "ok")
        with self._result:
            for sink, rows in found["sinks"].items():
                _sink(sink, rows)


def _sink(name: str, rows: list[dict[str, Any]]) -> None:
    text("h3", f"{name} would get {numbers.plural(len(rows), 'row')}")
    if rows:
        code("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    else:
        ui.label("No rows: a window may not be over yet, or every record is left out.").classes("pk-sub")
