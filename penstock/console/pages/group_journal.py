"""A group's rebalances as a timeline: when, why in words, what it cost, and what to do about it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.page import Here
from penstock.console.widgets import numbers
from penstock.console.widgets.pieces import empty_state, not_available, text

WORDS = {
    "joined": "{who} joined",
    "left": "{who} left",
    "timed_out": "{who} was silent for too long and was put out",
    "subscription": "{who} subscribed to other topics",
    "metadata": "topics or partitions changed",
    "static_replaced": "{who} came back as a static member",
    "other": "{who} asked for it",
}
HINTS = {
    "timed_out": "It stopped polling: lower max.poll.records, raise max.poll.interval.ms, or look at its process.",
}
SHOWN_CAUSES = 4


def show_journal(here: Here, box: ui.element, found: dict[str, Any]) -> None:
    box.clear()
    with box:
        if found["missing"]:
            not_available("rebalances", found["missing"])
        elif not found["rows"]:
            empty_state("event_available", "No rebalance yet", "Each one is noted here with its cause.")
        else:
            with ui.element("ol").classes("pk-timeline"):
                for row in found["rows"]:
                    _entry(here, row)


def _entry(here: Here, row: dict[str, Any]) -> None:
    kinds = {cause["kind"] for cause in row["causes"]}
    with ui.element("li").classes("pk-warning" if "timed_out" in kinds else ""):
        with ui.element("div").classes("pk-row"):
            text("b", "; ".join(causes_in_words(row)))
        cost = [numbers.plural(row["members"], "member")]
        if row.get("partitions") is not None:
            cost.append(f"{row.get('moved') or 0} of {numbers.plural(row['partitions'], 'partition')} moved")
        cost.append(f"took {numbers.duration(row['duration_ms'])}")
        cost.append(f"generation {row['generation']}")
        ui.label(f"{here.clock.text(row['at_ms'])} · {' · '.join(cost)}").classes("pk-sub")
        for kind in sorted(kinds & HINTS.keys()):
            ui.label(HINTS[kind]).classes("pk-hint")


def causes_in_words(row: dict[str, Any]) -> list[str]:
    """Each cause once; members by the part of their id that a person chose."""
    told: dict[str, int] = {}
    for cause in row["causes"]:
        who = short_member(cause.get("member") or "") or "a member"
        words = WORDS.get(cause["kind"], WORDS["other"]).format(who=who)
        if cause["kind"] == "other" and cause.get("detail"):
            words = cause["detail"]
        told[words] = told.get(words, 0) + 1
    lines = [words if count == 1 else f"{words} ({count} times)" for words, count in told.items()]
    left_out = len(lines) - SHOWN_CAUSES + int(row.get("causes_left_out") or 0)
    if len(lines) > SHOWN_CAUSES or row.get("causes_left_out"):
        lines = [*lines[:SHOWN_CAUSES], f"and {left_out} more"]
    return lines or ["no cause was noted"]


def short_member(member: str) -> str:
    """`shop-1-6f0c…` → `shop-1`: brokers add a random id to what the client called itself."""
    parts = member.split("-")
    if len(parts) > 5 and len(parts[-1]) == 12:  # a UUID at the end
        return "-".join(parts[:-5])
    return member
