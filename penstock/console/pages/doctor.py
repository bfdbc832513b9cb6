"""Doctor: what an experienced operator would find, worst first, and what to do about it."""

from __future__ import annotations

import re
from typing import Any

from nicegui import ui

from penstock.client.errors import ClientError
from penstock.console.data import overview
from penstock.console.page import Here, Page
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import described
from penstock.console.widgets.pieces import empty_state, error_state, panel, pill, plain, text, title_row
from penstock.operate.errors import UserError

OF_BROKER = re.compile(r"broker (\d+): (.*)", re.DOTALL)
ORDER = ("problem", "warning", "note", "ok")
TONES = {"problem": "problem", "warning": "warning", "note": "accent", "ok": "ok"}
WORDS = {"problem": "problem", "warning": "warning", "note": "to know", "ok": "in order"}
MEANINGS = {
    "connectivity": "brokers can be reached where they say they are",
    "replicas": "every partition has a leader and all its replicas",
    "records": "what is stored can be read, and nothing lies around that nobody knows",
    "skew": "brokers lead and hold about as much as each other",
    "lag": "no group is more than five minutes behind",
    "disk": "disks work and have room",
    "transactions": "no transaction is open for long or without an owner",
    "settings": "no setting is risky",
    "copies": "internal topics are kept on as many brokers as there should be",
    "machines": "copies of a partition lie on different machines",
}


async def build(here: Here) -> None:
    with title_row("Doctor", "what an experienced operator would look at"):
        plain("Look again", lambda: look(), icon="refresh")
    box = ui.element("div").classes("pk-stack")

    async def look() -> None:
        box.clear()
        with box, panel(), ui.element("div").classes("pk-empty").props("role=status"):
            ui.spinner(size="28px")
            ui.label("looking at the whole cluster…")
        try:
            rows = await here.viewer.ask(overview.doctor)
        except (UserError, ClientError) as error:
            box.clear()
            with box:
                error_state(described(error))
            return
        if box.is_deleted:
            return
        box.clear()
        with box:
            _show(rows)

    await look()


def _show(rows: list[dict[str, Any]]) -> None:
    findings = merged([row for row in rows if row["severity"] != "ok"])
    findings.sort(key=lambda row: ORDER.index(row["severity"]))
    fine = [row for row in rows if row["severity"] == "ok"]
    with panel("Findings", sub=numbers.plural(len(findings), "finding") if findings else ""):
        if not findings:
            empty_state("favorite", "Nothing was found", "The cluster is in good health.")
        else:
            with ui.element("ul").classes("pk-findings"):
                for row in findings:
                    with ui.element("li"):
                        pill(WORDS[row["severity"]], TONES[row["severity"]])
                        with ui.element("div"):
                            text("b", row["finding"])
                            _hint(row["hint"] or "")
                        ui.label(row["check"]).classes("pk-sub pk-wide")
    if fine:
        sub = f"{numbers.plural(len(fine), 'check')} without a finding"
        with panel("In order", sub=sub), ui.element("ul").classes("pk-list"):
            for row in fine:
                with ui.element("li"):
                    ui.icon("check_circle").classes("pk-fine").props("aria-hidden=true")
                    text("span", row["check"])
                    ui.label(MEANINGS.get(row["check"], "")).classes("pk-sub")


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same finding of several brokers is told once, with all their numbers."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    nodes: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        match = OF_BROKER.match(row["finding"])
        what = match[2] if match else row["finding"]
        key = (row["check"], row["severity"], what, row["hint"] or "", "" if match is None else "broker")
        nodes.setdefault(key, []).extend([match[1]] if match else [])
        found[key] = row
        if len(nodes[key]) > 1:
            found[key] = {**row, "finding": f"brokers {', '.join(nodes[key])}: {what}"}
    return list(found.values())


def _hint(words: str) -> None:
    """What stands between backticks is a command."""
    if not words:
        return
    with ui.element("p"):
        for number, part in enumerate(words.split("`")):
            if part:
                text("code" if number % 2 else "span", part)


PAGE = Page("/doctor", "Doctor", build, label="Doctor", icon="health_and_safety", role="editor")
