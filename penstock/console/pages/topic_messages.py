"""A topic's messages: from any position, filtered with progress and a stop, followed live with a pause; one in full."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from nicegui import background_tasks, ui

from penstock.client.errors import ClientError
from penstock.console.data import messages
from penstock.console.data.messages import Progress
from penstock.console.page import Here, segment
from penstock.console.pages.topic_formats import formats_dialog
from penstock.console.pages.topic_produce import produce_dialog
from penstock.console.search.wanted import Wanted
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, described, dialog
from penstock.console.widgets.pieces import (
    empty_state,
    facts,
    one_line,
    panel,
    plain,
    primary,
    shown_value,
    text,
)
from penstock.operate.errors import UserError

STARTS = {"newest": "Newest first", "oldest": "Oldest first", "offset": "From an offset", "time": "From a time"}
KEPT_LIVE = 200
CELL = '<q-td :props="props"><span class="pk-cell pk-cell-%s pk-mono">{{ props.value }}</span></q-td>'


class MessagesTab:
    def __init__(self, here: Here, topic: dict[str, Any]) -> None:
        self._here, self._topic = here, topic
        self._name: str = topic["name"]
        self._rows: dict[str, dict[str, Any]] = {}
        self._progress: Progress | None = None
        self._live: threading.Event | None = None

    async def build(self) -> None:
        with panel():
            self._controls()
            self._status()
        with panel(flush=True):
            self._make_table()
        given = self._here.arguments
        if "offset" in given and "partition" in given:
            await self._show_one(int(given["partition"]), int(given["offset"]))
        await self._browse()

    # --- what is asked for

    def _controls(self) -> None:
        with ui.element("div").classes("pk-row"):
            self._start = (
                ui.select(STARTS, value="newest", label="Start").props("outlined dense").style("min-width: 150px")
            )
            self._position = ui.input("Offset or time").props('outlined dense hint=""').style("width: 190px")
            self._position.bind_visibility_from(self._start, "value", lambda value: value in ("offset", "time"))
            self._position.tooltip("1500, or 2026-11-01T12:00, or 2h for two hours ago")
            choices = {"": "All partitions"} | {
                str(row["partition"]): f"Partition {row['partition']}" for row in self._topic["partitions"]
            }
            self._partition = (
                ui.select(choices, value="", label="Partition").props("outlined dense").style("min-width: 150px")
            )
            self._limit = (
                ui.select([50, 100, 500], value=50, label="At most").props("outlined dense").style("width: 100px")
            )
            ui.element("div").classes("pk-grow")
            plain("Download", self._download, icon="download").tooltip("all that the search finds, as JSON lines")
            if self._here.viewer.may("editor"):
                plain("Format", self._choose_formats, icon="data_object").tooltip(
                    "Avro, Protobuf, numbers: how it is read"
                )
            self._live_button = plain("Follow live", self._toggle_live, icon="play_arrow")
            if self._here.viewer.may("editor"):
                plain("Produce", lambda: produce_dialog(self._here, self._topic, self._after_produce), icon="edit")
        with ui.element("div").classes("pk-row"):
            self._key = ui.input("Key holds").props("outlined dense clearable").style("flex: 1 1 130px")
            self._value = ui.input("Value holds").props("outlined dense clearable").style("flex: 2 1 180px")
            self._header = ui.input("Header (name=text)").props("outlined dense clearable").style("flex: 1 1 150px")
            self._expression = ui.input("Expression").props("outlined dense clearable").style("flex: 2 1 220px")
            self._expression.tooltip('value.amount > 100 and key.startswith("eu-")')
            self._exact = ui.checkbox("Whole field").props("dense")
            self._exact.tooltip("key, value and header are equal to these texts, instead of holding them")
            for field in (self._key, self._value, self._header, self._expression, self._position):
                field.on("keydown.enter", self._browse)
            primary("Search", self._browse, icon="search")

    def _wanted(self) -> Wanted:
        start = str(self._start.value)
        if start in ("offset", "time"):
            start = (self._position.value or "").strip() or "oldest"
        return Wanted(
            start=start,
            partitions=(int(self._partition.value),) if self._partition.value else (),
            limit=int(self._limit.value),
            key=self._key.value or "",
            value=self._value.value or "",
            header=self._header.value or "",
            expression=self._expression.value or "",
            exact=bool(self._exact.value),
        )

    async def _download(self) -> None:
        """The browser fetches the file by itself; a filter that is none is told here before."""
        wanted = self._wanted()
        if not await attempt(lambda: self._here.viewer.ask(messages.check, wanted)):
            return
        words = [
            ("start", wanted.start), ("key", wanted.key), ("value", wanted.value), ("header", wanted.header),
            ("expression", wanted.expression), ("exact", "true" if wanted.exact else ""),
            *(("partition", str(index)) for index in wanted.partitions),
        ]  # fmt: skip
        query = urlencode([(name, value) for name, value in words if value])
        ui.download.from_url(f"{self._api_path}/messages.jsonl?{query}", f"{self._name}.jsonl")

    @property
    def _api_path(self) -> str:
        cluster = segment(self._here.viewer.cluster.name)
        return f"{self._here.base_path}/api/v1/clusters/{cluster}/topics/{segment(self._name)}"

    def _status(self) -> None:
        with ui.element("div").classes("pk-row").props("role=status"):
            self._bar = ui.linear_progress(0.0, show_value=False, size="6px").style("flex: 1 1 120px; max-width: 260px")
            self._bar.props('aria-label="Progress of the search"')
            self._words = ui.label("").classes("pk-sub")
            self._stop_button = plain("Stop", self._stop, icon="stop")
        self._bar.set_visibility(False)
        self._stop_button.set_visibility(False)

    # --- what is shown

    def _make_table(self) -> None:
        columns = [
            {"name": "time", "label": f"Time ({self._here.clock.name})", "field": "time", "align": "left"},
            {
                "name": "partition",
                "label": "Partition",
                "field": "partition",
                "align": "right",
                "classes": "pk-wide",
                "headerClasses": "pk-wide",
            },
            {
                "name": "offset",
                "label": "Offset",
                "field": "offset",
                "align": "right",
                "classes": "pk-wide",
                "headerClasses": "pk-wide",
            },
            {"name": "key", "label": "Key", "field": "key", "align": "left"},
            {"name": "value", "label": "Value", "field": "value", "align": "left"},
        ]
        self._table = ui.table(columns=columns, rows=[], row_key="id", pagination={"rowsPerPage": 50})
        self._table.props('flat rows-per-page-label="Rows" :rows-per-page-options="[50,100,500]"')
        self._table.classes("pk-messages")
        for name in ("key", "value"):
            self._table.add_slot(f"body-cell-{name}", CELL % name)
        self._table.on("rowClick", self._on_row, [[], ["id"], []])
        with self._table.add_slot("no-data"), ui.element("div").style("width: 100%"):
            empty_state(
                "mail_outline", "No messages here", "Produce one, or look from another position or with another filter."
            )

    def _put(self, rows: list[dict[str, Any]]) -> None:
        self._rows = {f"{row['partition']}-{row['offset']}": row for row in rows}
        self._table.rows = [
            {
                "id": key,
                "time": self._here.clock.text(row["timestamp_ms"], precise=True),
                "partition": row["partition"],
                "offset": row["offset"],
                "key": one_line(row["key"]),
                "value": one_line(row["value"]),
            }
            for key, row in self._rows.items()
        ]
        self._table.update()

    # --- searching

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop.set()

    async def _browse(self) -> None:
        self._stop()
        self._end_live()
        self._progress = progress = Progress()
        wanted, found = self._wanted(), []
        try:
            portions = await self._here.viewer.ask(messages.search, self._name, wanted, progress)
            self._begin_search()
            while (portion := await asyncio.to_thread(next, portions, None)) is not None:
                if self._table.is_deleted or self._progress is not progress:
                    progress.stop.set()
                    return
                found += portion
                self._tell_progress(progress)
        except asyncio.CancelledError:  # the page was left before it was built
            progress.stop.set()
            raise
        except (UserError, ClientError) as error:
            self._end_search(described(error))
            return
        self._put(found)
        read = f"{numbers.count(progress.read)} of {numbers.count(progress.total)} offsets read"
        stopped = ", stopped" if progress.stop.is_set() else ""
        self._end_search(f"{numbers.plural(len(found), 'message')}, {read}{stopped}")

    def _begin_search(self) -> None:
        self._words.text = "reading…"
        self._bar.set_value(0)
        self._bar.set_visibility(True)
        self._stop_button.set_visibility(True)

    def _tell_progress(self, progress: Progress) -> None:
        self._bar.set_value(min(1.0, progress.read / progress.total) if progress.total else 1.0)
        found = f"{numbers.count(progress.found)} found in {numbers.count(progress.read)} offsets"
        self._words.text = "waiting until another search ends…" if progress.waits else found

    def _end_search(self, words: str) -> None:
        self._bar.set_visibility(False)
        self._stop_button.set_visibility(False)
        self._words.text = words

    # --- following live

    def _toggle_live(self) -> None:
        if self._live is None:
            self._live = threading.Event()
            background_tasks.create(self._follow(self._live), name=f"tail of {self._name}")
        else:
            self._end_live()

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.set()
            self._live = None
            self._words.text = "paused"
            self._live_button.props("icon=play_arrow").set_text("Follow live")

    async def _follow(self, stop: threading.Event) -> None:
        self._live_button.props("icon=pause").set_text("Pause")
        self._words.text = "looking where the topic ends…"
        wanted = replace(self._wanted(), start="newest", limit=KEPT_LIVE)
        shown = list(self._rows.values())
        try:
            portions: Iterator[list[dict[str, Any]]] = await self._here.viewer.ask(
                messages.tail, self._name, wanted, stop
            )
            while (portion := await asyncio.to_thread(next, portions, None)) is not None:
                if self._table.is_deleted or self._table.client.has_socket_connection is False or stop.is_set():
                    stop.set()
                    return
                self._words.text = "following: new messages come on top"
                if portion:
                    shown = (portion[::-1] + shown)[:KEPT_LIVE]
                    self._put(shown)
        except (UserError, ClientError) as error:
            self._end_live()
            self._words.text = described(error)

    async def _after_produce(self) -> None:
        if self._live is None:
            await self._browse()

    async def _choose_formats(self) -> None:
        await attempt(lambda: formats_dialog(self._here, self._name, self._browse))

    # --- one message

    async def _on_row(self, event: Any) -> None:
        row = self._rows.get(event.args[1]["id"])
        if row is not None:
            await self._show_one(row["partition"], row["offset"])

    async def _show_one(self, partition: int, offset: int) -> None:
        found: dict[str, Any] = {}

        async def fetch() -> None:
            found.update(await self._here.viewer.ask(messages.message, self._name, partition, offset))

        if not await attempt(fetch):
            return
        path = f"/topics/{segment(self._name)}"
        with dialog(f"{self._name}-{partition} at {offset}") as made:
            made.props("full-width=false")
            facts(
                {
                    "Time": f"{self._here.clock.text(found['timestamp_ms'], precise=True)} {self._here.clock.name}",
                    "Size": numbers.size_text((found["value"] or {}).get("size", 0)),
                }
            )
            text("h2", "Key")
            shown_value(found["key"])
            text("h2", "Value")
            shown_value(found["value"])
            if found["headers"]:
                text("h2", "Headers")
                facts({header["name"]: one_line(header["value"]) for header in found["headers"]})
            with ui.element("div").classes("pk-row"):
                _link(self._here.link(path, partition=partition, offset=offset), "Link to this message", download=False)
                _link(f"{self._api_path}/messages/{partition}/{offset}/value", "Download the value", download=True)
                ui.element("div").classes("pk-grow")
                if self._here.viewer.may("editor"):
                    plain("Produce again", lambda: produce_dialog(self._here, self._topic, self._after_produce, found))
                plain("Close", made.close)


def _link(address: str, words: str, *, download: bool) -> None:
    with ui.element("a") as made:
        made.props["href"] = address
        if download:
            made.props("download")
        ui.label(words).style("display: contents")
