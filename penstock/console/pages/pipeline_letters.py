"""Dead letters of a pipeline: what it could not use, why, and back to where that came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from penstock.console.data import letters
from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, buttons, dialog, tell
from penstock.console.widgets.pieces import code, empty_state, facts, one_line, panel, plain, primary, shown_value
from penstock.console.widgets.table import Column, ServerTable, fixed

MOST_OF_A_REASON = 160


class LettersTab:
    def __init__(self, here: Here, name: str) -> None:
        self._here, self._name = here, name
        self._found: dict[str, Any] = {"letters": []}
        with panel("Dead letters", sub="records that it could not use", flush=True):
            with ui.element("div").classes("pk-row").style("padding: 0 20px") as self._bar:
                self._count = ui.label("").classes("pk-sub")
                ui.element("div").classes("pk-grow")
                if here.viewer.may("editor"):
                    plain("Skip all…", lambda: self._ask(skip=True))
                    primary("Redrive…", lambda: self._ask(skip=False), icon="replay")
            self._table = ServerTable(
                [
                    Column("place", "Offset"),
                    Column("reason", "Why", text=lambda row: _short(row["reason"])),
                    Column("origin", "Came from", wide=True),
                    Column("value", "Value", text=lambda row: one_line(row["value"])[:80], sortable=False),
                    Column("timestamp_ms", "When", text=lambda row: here.clock.text(row["timestamp_ms"]), wide=True),
                ],
                fixed([], name="reason"),
                key="place",
                classes="pk-letters",
                on_row=self._open,
                empty=(
                    "mark_email_read",
                    "No dead letters",
                    "What a pipeline cannot use is kept here with the reason.",
                ),
            )

    async def refresh(self) -> None:
        self._found = await self._here.viewer.ask(letters.letters, self._name)
        rows = [
            {**row, "place": f"{row['partition']}-{row['offset']}", "origin": _origin(row)}
            for row in self._found["letters"]
        ]
        self._table.change_fetch(fixed(rows, name="reason"))
        await self._table.refresh()
        more = "the first " if self._found["more"] else ""
        self._count.text = f"{more}{numbers.plural(len(rows), 'letter')} in {self._found['topic']}"
        self._bar.set_visibility(bool(rows))

    def _open(self, shown: Mapping[str, Any]) -> None:
        letter = next(
            (row for row in self._found["letters"] if f"{row['partition']}-{row['offset']}" == shown["place"]), None
        )
        if letter is None:
            return
        with dialog(f"Letter {shown['place']}") as made:
            facts(
                {
                    "Why": letter["reason"] or "unknown",
                    "Came from": _origin(letter),
                    "Expectation": letter["expectation"] or numbers.NOTHING,
                    "Written": self._here.clock.text(letter["timestamp_ms"], precise=True),
                }
            )
            shown_value(letter["value"])
            if letter["stack"]:
                code(letter["stack"])
            with ui.element("div").classes("pk-row").style("justify-content: flex-end"):
                plain("Close", made.close)

    async def _ask(self, *, skip: bool) -> None:
        """Says what would happen, then does it."""
        told: dict[str, Any] = {}

        async def look() -> None:
            told.update(await self._here.viewer.ask(letters.redrive, self._name, skip=skip, dry_run=True))

        if not await attempt(look):
            return
        with dialog("Skip dead letters" if skip else "Redrive dead letters") as made:
            if not (told["redriven"] or told["skipped"]):
                empty_state("done_all", "Nothing to do", "Every letter was dealt with, or cannot go back by itself.")
                plain("Close", made.close)
                return
            if skip:
                ui.label(
                    f"{numbers.plural(told['skipped'], 'letter')} will be noted as dealt with; nothing is written."
                )
            for topic, count in told["to"].items():
                ui.label(f"{numbers.plural(count, 'record')} will be written back to {topic}, each once.")
            for topic, groups in told["also_read_by"].items():
                with ui.element("div").classes("pk-note pk-warning").props("role=note"):
                    ui.label(f"{topic} is also read by {', '.join(groups)}: they get these records once more.")
            if told["left"]:
                ui.label(f"{numbers.plural(told['left'], 'letter')} will be left: their origin is not known.")
            buttons(made, "Skip" if skip else "Redrive", lambda: self._do(skip))

    async def _do(self, skip: bool) -> bool:
        done: dict[str, Any] = {}

        async def work() -> None:
            done.update(await self._here.viewer.ask(letters.redrive, self._name, skip=skip))

        if not await attempt(work):
            return False
        tell(f"{done['skipped']} skipped" if skip else f"{numbers.plural(done['redriven'], 'record')} redriven")
        await self.refresh()
        return True


def _short(reason: str | None) -> str:
    """One line says what is wrong; the whole of it stands in the letter."""
    words = " ".join((reason or "unknown").split())
    return words if len(words) <= MOST_OF_A_REASON else f"{words[:MOST_OF_A_REASON]}…"


def _origin(letter: dict[str, Any]) -> str:
    if letter["source_topic"] is None:
        return numbers.NOTHING
    return f"{letter['source_topic']}-{letter['source_partition']} at {letter['source_offset']}"
