"""SQL over topics for whoever may see them: one SELECT, bounded in rows and time, run by a process of its own.

What is masked for a role cannot be kept out of what a query computes: topics with masked fields are refused to it.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from penstock.console import workers
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.letters import SUFFIX
from penstock.pipelines.adhoc_guard import insist_on_select, topics_of
from penstock.pipelines.spec import SpecError

MOST_ROWS = 5_000
MOST_SECONDS = 300
LONGEST_TEXT = 20_000
_NAME = re.compile(r"[\w .\-]{1,80}")


class Running:
    """Queries under way, by the name that their asker gave them: a second request can cancel the first."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], threading.Event] = {}
        self._lock = threading.Lock()

    def begin(self, user: str, name: str) -> threading.Event:
        with self._lock:
            if (user, name) in self._events:
                raise UserError(f"a query named {name} runs already", code=ExitCode.REFUSED)
            event = self._events[user, name] = threading.Event()
            return event

    def end(self, user: str, name: str) -> None:
        with self._lock:
            self._events.pop((user, name), None)

    def cancel(self, user: str, name: str) -> None:
        with self._lock:
            event = self._events.get((user, name))
        if event is None:
            raise UserError(f"no query named {name} runs", code=ExitCode.NOT_FOUND)
        event.set()


running = Running()


def query(
    viewer: Viewer,
    text: str,
    *,
    limit: int = 500,
    since: str | None = None,
    seconds: int = 120,
    name: str = "query",
) -> dict[str, Any]:
    """{columns: [{name, type}], rows, more}. `name` is what `cancel` asks for."""
    if len(text) > LONGEST_TEXT:
        raise usage_error(f"a query of {len(text):,} characters is too long", f"{LONGEST_TEXT:,} are allowed")
    try:
        insist_on_select(text)
    except SpecError as error:
        raise usage_error(str(error)) from None
    for topic in topics_of(text):
        viewer.topic(topic)
        viewer.insist_on_reading(topic)
        if viewer.policy.masked_fields(viewer.user.role, topic):
            raise AccessDenied(f"{topic} has fields that are masked for the role {viewer.user.role}: no SQL over it")
        if _may_hold_letters(viewer, topic):
            raise AccessDenied(f"{topic} may hold letters of topics that are hidden or masked: no SQL over it")
    question = {
        "ask": "sql",
        "text": text,
        "limit": max(1, min(limit, MOST_ROWS)),
        "since": since or None,
        "properties": viewer.session.properties,
    }
    cancelled = running.begin(viewer.user.name, name)
    try:
        return workers.spark.ask(question, max(1, min(seconds, MOST_SECONDS)), cancelled)
    finally:
        running.end(viewer.user.name, name)


def _may_hold_letters(viewer: Viewer, topic: str) -> bool:
    """Of topics with something to hide: SQL shows records as they are."""
    policy, role = viewer.policy, viewer.user.role
    if policy.sees_everything(role) and not policy.masks_something(role):
        return False
    specs = (row["spec"] for row in viewer.snapshot.pipelines)
    named = {(spec.get("settings") or {}).get("dead_letter_topic") for spec in specs}
    return topic.endswith(SUFFIX) or topic in named


def cancel(viewer: Viewer, name: str = "query") -> None:
    viewer.require("viewer")
    running.cancel(viewer.user.name, name)


def saved(viewer: Viewer) -> list[dict[str, str]]:
    """Those whose topics the viewer sees."""
    viewer.require("viewer")
    return [
        {"name": name, **query}
        for name, query in viewer.cluster.saved_queries.all().items()
        if all(viewer.sees(topic) for topic in topics_of(query["text"]))
    ]


def save(viewer: Viewer, name: str, text: str) -> None:
    if not _NAME.fullmatch(name.strip()):
        raise usage_error(f"{name!r} is no name for a query", "up to 80 letters, digits, spaces, '.', '_' and '-'")
    try:
        insist_on_select(text)
    except SpecError as error:
        raise usage_error(str(error)) from None
    with viewer.change("editor", "query.save", name):
        viewer.cluster.saved_queries.save(name.strip(), text, viewer.user.name)


def delete(viewer: Viewer, name: str) -> None:
    with viewer.change("editor", "query.delete", name):
        viewer.cluster.saved_queries.delete(name)
