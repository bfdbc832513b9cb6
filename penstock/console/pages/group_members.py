"""A group's assignment drawn: a row for each member, a square for each partition that it owns."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.pieces import empty_state, panel, text

MOST_SQUARES = 200
LATE_SECONDS = 60


class AssignmentPicture:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._last: Any = None
        with panel("Assignment", sub="one square is one partition"):
            self._box = ui.element("div").style("width: 100%")

    def show(self, group: dict[str, Any]) -> None:
        """Drawn anew only if something looks different."""
        rows = {(row["topic"], row["partition"]): row for row in group["offsets"]}
        drawn = [(m["member"], m["client"], m["host"], m["instance"], m["assignment"]) for m in group["members"]]
        looks = (drawn, [(key, _tone(row), row["lag"]) for key, row in rows.items()])
        if looks == self._last:
            return
        self._last = looks
        self._box.clear()
        with self._box:
            if not group["members"]:
                empty_state("person_off", "No members", "Start a consumer of this group; its offsets wait for it.")
                return
            with ui.element("ul").classes("pk-members"):
                for member in sorted(group["members"], key=lambda m: (m["client"], m["member"])):
                    keys = [(topic, partition) for topic, partition in member["assignment"]]
                    _member(member["client"] or member["member"], _about(member), keys, rows)
                orphans = [key for key, row in rows.items() if row["member"] is None]
                if orphans:
                    _member("nobody", "no member owns these", orphans, rows, orphaned=True)
            _legend()


def _about(member: dict[str, Any]) -> str:
    words = [member["host"].lstrip("/"), member["member"]]
    if member["instance"]:
        words.insert(0, f"instance {member['instance']}")
    return " · ".join(words)


def _member(
    name: str, about: str, keys: list[tuple[str, int]], rows: dict[tuple[str, int], Any], *, orphaned: bool = False
) -> None:
    with ui.element("li"):
        with ui.element("div").classes("pk-member-head"):
            text("b", name, "pk-cut")
            ui.label(numbers.plural(len(keys), "partition")).classes("pk-sub pk-num")
            ui.label(about).classes("pk-sub pk-cut pk-wide").tooltip(about)
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(keys)[:MOST_SQUARES]:
            by_topic.setdefault(topic, []).append(partition)
        for topic, partitions in by_topic.items():
            with ui.element("div").classes("pk-squares"):
                ui.label(topic).classes("pk-sub pk-cut pk-squares-name")
                for partition in partitions:
                    _square(topic, partition, rows.get((topic, partition)), orphaned)
        if not keys:
            ui.label("owns nothing: there are more members than partitions").classes("pk-sub")
        elif len(keys) > MOST_SQUARES:
            ui.label(f"and {len(keys) - MOST_SQUARES} more").classes("pk-sub")


def _tone(row: dict[str, Any] | None) -> str:
    if row is None or not row["lag"]:
        return "ok"
    return "warning" if (row["lag_seconds"] or 0) > LATE_SECONDS else "accent"


def _square(topic: str, partition: int, row: dict[str, Any] | None, orphaned: bool) -> None:
    tone = "orphan" if orphaned else _tone(row)
    made = ui.label(str(partition)).classes(f"pk-square pk-{tone}")
    lag = "no offset yet" if row is None or row["lag"] is None else f"lag {numbers.count(row['lag'])} records"
    made.tooltip(f"{topic}-{partition}: {lag}")


def _legend() -> None:
    with ui.element("div").classes("pk-row pk-legend"):
        for tone, words in (
            ("ok", "has read everything"),
            ("accent", "has some to read"),
            ("warning", f"more than {LATE_SECONDS} s behind"),
        ):
            with ui.element("span").classes("pk-row"):
                ui.element("span").classes(f"pk-square pk-{tone}").props("aria-hidden=true")
                ui.label(words).classes("pk-sub")
