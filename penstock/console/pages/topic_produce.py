"""Producing a message by hand: key, value, headers, partition; or one that is there already, once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from penstock.console.data import messages
from penstock.console.page import Here
from penstock.console.widgets.dialogs import attempt, buttons, dialog
from penstock.operate.errors import usage_error


def produce_dialog(
    here: Here, topic: dict[str, Any], after: Callable[[], Awaitable[None]], like: dict[str, Any] | None = None
) -> None:
    """A form for one message; `like` fills it with one that was read."""
    name: str = topic["name"]
    with dialog(f"Produce to {name}") as made:
        key = ui.input("Key", value=_text(like, "key")).props("outlined dense autocomplete=off")
        no_key = ui.checkbox("No key (null)", value=like is None or like["key"] is None)
        key.bind_enabled_from(no_key, "value", lambda value: not value)
        value = ui.textarea("Value", value=_text(like, "value")).props("outlined autofocus input-class=pk-mono rows=6")
        tombstone = ui.checkbox("Tombstone (null value)", value=like is not None and like["value"] is None)
        headers = ui.textarea("Headers, one name=value a line", value=_headers(like)).props("outlined rows=2")
        encoded = ui.checkbox("Encode as this topic is read (Format)", value=bool(like and _is_decoded(like)))
        choices = {-1: "By key"} | {row["partition"]: str(row["partition"]) for row in topic["partitions"]}
        partition = ui.select(choices, value=-1, label="Partition").props("outlined dense")

        async def produce() -> bool:
            async def work() -> None:
                row = {
                    "key": None if no_key.value else key.value or "",
                    "value": None if tombstone.value else value.value or "",
                    "headers": _parsed(headers.value or ""),
                }
                written = await here.viewer.ask(
                    messages.produce, name, row, int(partition.value), encoded=bool(encoded.value)
                )
                ui.notify(
                    f"written to partition {written['partition']} at {written['offset']}",
                    type="positive",
                    position="bottom-right",
                )

            good = await attempt(work)
            if good:
                await after()
            return good

        buttons(made, "Produce", produce)


def _is_decoded(like: dict[str, Any]) -> bool:
    return any((like[part] or {}).get("decoded") for part in ("key", "value"))


def _text(like: dict[str, Any] | None, field: str) -> str:
    found = (like or {}).get(field)
    return found["text"] if found is not None and found["kind"] != "hex" else ""


def _headers(like: dict[str, Any] | None) -> str:
    rows = (like or {}).get("headers", [])
    return "\n".join(f"{row['name']}={(row['value'] or {}).get('text', '')}" for row in rows)


def _parsed(given: str) -> list[list[str]]:
    rows = []
    for number, line in enumerate(given.splitlines(), 1):
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise usage_error(f"headers, line {number}: not name=value", "for example source=web")
            rows.append([name.strip(), value])
    return rows
