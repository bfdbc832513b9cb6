"""Transaction: since when it is open, what it holds back where, and ending it as the command line does."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import transactions
from penstock.console.page import Here, Page, segment
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, confirm_typed, tell
from penstock.console.widgets.pieces import Tile, danger, panel, pill, state_pill, state_tone, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed

REFRESH_SECONDS = 5.0
LONG_SECONDS = 900


async def build(here: Here) -> None:
    name = here.arguments.get("id", "")
    found = await here.viewer.ask(transactions.transaction, name)
    with title_row(name):
        state = state_pill(found["state"])
        if found["two_phase"]:
            pill("two-phase").tooltip("it waits for its decision for ever")
        end = danger("End it", lambda: _end(here, name, refresh), icon="stop_circle")
    tiles = _Tiles()
    with ui.element("div").classes("pk-note").props("role=note"):
        explanation = ui.label("")
    with panel("Partitions", sub="where it has written, and what it holds back", flush=True):
        table = ServerTable(
            [
                Column("partition", "Partition", link=lambda row: _partition(here, row)),
                Column(
                    "last_stable_offset",
                    "Readable up to",
                    text=lambda row: numbers.count(row["last_stable_offset"]),
                    right=True,
                ),
                Column("end", "End", text=lambda row: numbers.count(row["end"]), right=True, wide=True),
                Column(
                    "held_back",
                    "Held back",
                    text=lambda row: numbers.plural(row["held_back"], "record"),
                    right=True,
                ),
            ],
            fixed([], name="partition"),
            key="partition",
            sort="held_back",
            descending=True,
            empty=("task_alt", "Nothing is held back", "The transaction is not open."),
        )

    async def refresh() -> None:
        now = await here.viewer.ask(transactions.transaction, name)
        if state.is_deleted:
            return
        is_open = now["state"] == "Ongoing"
        state.text = now["state"]
        state.classes(remove="pk-ok pk-warning pk-problem pk-accent", add=f"pk-{state_tone(now['state'])}")
        end.set_visibility(is_open and here.viewer.may("admin"))
        tiles.show(now)
        explanation.text = _explained(now)
        table.change_fetch(fixed(now["held_back"], name="partition"))
        await table.refresh()

    await refresh()
    here.every(REFRESH_SECONDS, refresh)


def _partition(here: Here, row: Any) -> str:
    return here.link(f"/topics/{segment(row['partition'].rpartition('-')[0])}", tab="partitions")


def _explained(now: dict[str, Any]) -> str:
    if now["state"] != "Ongoing":
        return "It is not open: consumers wait for nothing of it."
    if now["two_phase"]:
        return (
            "It is prepared or may be, and stays open until its owner decides: read-committed consumers wait for that."
        )
    return (
        "Read-committed consumers do not get what was written after its first record until it ends. "
        f"Its coordinator aborts it {numbers.duration(now['timeout_ms'])} after its start."
    )


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._held = Tile("Held back")
            self._age = Tile("Open for")
            self._timeout = Tile("Ends by itself")
            self._producer = Tile("Producer")

    def show(self, now: dict[str, Any]) -> None:
        held = sum(row["held_back"] or 0 for row in now["held_back"])
        hint = f"in {numbers.plural(len(now['partitions']), 'partition')}"
        self._held.show(
            numbers.count(held), "record" if held == 1 else "records", tone="warning" if held else "", hint=hint
        )
        age = now["age_seconds"]
        tone = "warning" if age is not None and age > LONG_SECONDS else ""
        self._age.show(numbers.seconds(age), tone=tone, hint="since its first record")
        self._timeout.show("never" if now["two_phase"] else numbers.duration(now["timeout_ms"]), hint="after its start")
        self._producer.show(str(now["producer_id"]), hint=f"epoch {now['epoch']}")


def _end(here: Here, name: str, refresh: Any) -> None:
    async def work() -> bool:
        done: list[bool] = []

        async def ask() -> None:
            done.append(await here.viewer.ask(transactions.abort, name))

        if not await attempt(ask):
            return False
        tell(f"{name} is aborted" if done[0] else f"{name} was decided by its pipeline, so it is committed")
        await refresh()
        return True

    confirm_typed(
        f"End the transaction of {name}?",
        "It is aborted: what it wrote is gone for read-committed consumers, and its producer is told at its next step."
        " One that a pipeline has decided on is committed instead, so that no rows are lost.",
        name,
        "End it",
        work,
    )


PAGE = Page("/transaction", "{id}", build, under="/transactions")
