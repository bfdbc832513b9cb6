"""Brokers: what each leads, holds and takes in; partitions on the move; spreading replicas; electing leaders."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.data import brokers
from penstock.console.page import Here, Page, segment
from penstock.console.pages.broker_moves import spread_dialog
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, confirm, tell
from penstock.console.widgets.pieces import Tile, panel, pill, plain, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed

REFRESH_SECONDS = 3.0
UNUSUAL = {"moving": "accent", "under-replicated": "warning", "offline": "problem"}


async def build(here: Here) -> None:
    rows = await here.viewer.ask(brokers.brokers)
    with title_row("Brokers"):
        if here.viewer.may("admin"):
            _actions(here, rows)
    tiles = _Tiles()
    with panel(flush=True):
        table = ServerTable(
            _columns(here, any(row["rack"] for row in rows)), fixed(rows, name="address"), key="id", sort="id"
        )
    with panel("Partitions that need a look", sub="on the move, short of replicas, or without a leader", flush=True):
        with ui.element("div").classes("pk-row").style("padding: 0 20px 0"):
            moving = pill("", "accent")
            cancel = plain("Cancel all moves", lambda: _cancel(here), icon="cancel")
        unusual = ServerTable(
            _unusual_columns(here),
            fixed([], name="place"),
            key="place",
            sort="place",
            empty=("task_alt", "Nothing unusual", "Every partition has a leader and all its replicas."),
        )

    async def refresh() -> None:
        now = await here.viewer.ask(brokers.brokers)
        odd = await here.viewer.ask(brokers.unusual)
        tiles.show(now)
        table.change_fetch(fixed(now, name="address"))
        await table.refresh()
        unusual.change_fetch(
            fixed([{**row, "place": f"{row['topic']}-{row['partition']}"} for row in odd], name="place")
        )
        await unusual.refresh()
        count = sum(row["state"] == "moving" for row in odd)
        moving.text = f"{numbers.plural(count, 'partition')} on the move"
        moving.set_visibility(count > 0)
        cancel.set_visibility(count > 0 and here.viewer.may("admin"))

    await refresh()
    here.every(REFRESH_SECONDS, refresh)


def _columns(here: Here, with_racks: bool) -> list[Column]:
    racks = [Column("rack", "Rack", text=lambda row: row["rack"] or numbers.NOTHING, wide=True)]
    return [
        Column("id", "Broker", link=lambda row: here.link(f"/brokers/{row['id']}")),
        Column("address", "Address", wide=True),
        *(racks if with_racks else []),
        Column(
            "controller",
            "Role",
            text=lambda row: "controller" if row["controller"] else "broker",
            tone=lambda row: "accent" if row["controller"] else "",
        ),
        Column("leads", "Leads", right=True),
        Column("replicas", "Replicas", right=True, wide=True),
        Column(
            "records_per_second",
            "Takes in",
            text=lambda row: numbers.rate_text(row["records_per_second"]),
            right=True,
        ),
        Column("bytes", "On disk", text=lambda row: numbers.size_text(row["bytes"]), right=True),
        Column("free_bytes", "Free", text=lambda row: numbers.size_text(row["free_bytes"]), right=True, wide=True),
    ]


def _unusual_columns(here: Here) -> list[Column]:
    def progress(row: Any) -> str:
        if row["state"] != "moving":
            return numbers.NOTHING
        to = (
            f"to {', '.join(map(str, row['adding']))}"
            if row["adding"]
            else "leaving " + ", ".join(map(str, row["removing"]))
        )
        return to if row["progress"] is None else f"{to}: {row['progress']:.0%} copied"

    return [
        Column("place", "Partition", link=lambda row: here.link(f"/topics/{segment(row['topic'])}", tab="partitions")),
        Column("state", "State", tone=lambda row: UNUSUAL.get(row["state"], "")),
        Column(
            "leader", "Leader", text=lambda row: "none" if row["leader"] is None else str(row["leader"]), right=True
        ),
        Column("replicas", "Replicas", text=lambda row: ", ".join(map(str, row["replicas"])), wide=True),
        Column("isr", "In sync", text=lambda row: ", ".join(map(str, row["isr"])), wide=True),
        Column("progress", "Progress", text=progress),
    ]


class _Tiles:
    def __init__(self) -> None:
        with ui.element("div").classes("pk-tiles"):
            self._count = Tile("Brokers")
            self._leads = Tile("Leaders")
            self._rate = Tile("Takes in")
            self._disk = Tile("On disk")
            self._free = Tile("Least free")

    def show(self, rows: list[dict[str, Any]]) -> None:
        controller = next((str(row["id"]) for row in rows if row["controller"]), None)
        hint = f"controller is {controller}" if controller else "no live controller"
        self._count.show(str(len(rows)), tone="" if controller else "problem", hint=hint)
        leads = [row["leads"] for row in rows]
        self._leads.show(
            str(sum(leads)), hint=f"{min(leads)} to {max(leads)} each" if len(rows) > 1 else "on one broker"
        )
        records = [row["records_per_second"] for row in rows if row["records_per_second"] is not None]
        written = sum(row["bytes_per_second"] or 0 for row in rows)
        self._rate.show(
            numbers.count(sum(records)) if records else numbers.NOTHING,
            "rec/s",
            hint=f"{numbers.byte_rate_text(written)} with copies",
        )
        self._disk.show(*numbers.size(sum(row["bytes"] for row in rows)), hint="all replicas")
        free = [row["free_bytes"] for row in rows if row["free_bytes"] is not None]
        self._free.show(*numbers.size(min(free) if free else None), hint="of one disk")


def _actions(here: Here, rows: list[dict[str, Any]]) -> None:
    async def elect() -> bool:
        done: list[dict[str, Any]] = []

        async def work() -> None:
            done.extend(await here.viewer.ask(brokers.elect))

        if not await attempt(work):
            return False
        elected = sum(row["result"] == "elected" for row in done)
        tell(f"{numbers.plural(elected, 'leader')} elected" if elected else "every partition has its preferred leader")
        return True

    plain(
        "Elect preferred leaders",
        lambda: confirm(
            "Elect preferred leaders?",
            "The first replica of each partition leads again where it is in sync; clients follow by themselves.",
            "Elect",
            elect,
        ),
        icon="how_to_vote",
    )
    plain("Spread replicas", lambda: spread_dialog(here, [row["id"] for row in rows]), icon="balance")


def _cancel(here: Here) -> None:
    async def work() -> bool:
        return await attempt(lambda: here.viewer.ask(brokers.cancel_moves), "the moves are called off")

    confirm(
        "Cancel all moves?",
        "Replicas stay where they were; what was copied already is dropped.",
        "Cancel the moves",
        work,
        dangerous=True,
    )


PAGE = Page("/brokers", "Brokers", build, label="Brokers", icon="dns")
