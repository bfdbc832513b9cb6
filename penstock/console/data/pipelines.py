"""Pipelines: how each does, its spec, its events; starting, stopping, deleting. Nothing here imports Spark."""

from __future__ import annotations

import itertools
from typing import Any, Literal

from penstock.console.data.viewer import Viewer
from penstock.console.snapshot import PIPELINES, PROGRESS
from penstock.operate.errors import not_found
from penstock.operate.pipelines import list_row, log_line, status_rows
from penstock.pipelines.control.store import Applied, PipelineStore


def pipelines(viewer: Viewer) -> list[dict[str, Any]]:
    """A row for each query of each applied pipeline, as of the last look."""
    return [dict(row) for row in viewer.snapshot.pipelines]


def _applied(viewer: Viewer, name: str) -> Applied:
    known: dict[str, Applied] = {}
    if PIPELINES in viewer.session.client.metadata(None).topics:
        known = PipelineStore(viewer.session.client).all()
    if name not in known:
        raise not_found("pipeline", name, known)
    return known[name]


def pipeline(viewer: Viewer, name: str) -> dict[str, Any]:
    """One pipeline: its spec as applied, its state, its queries."""
    from penstock.pipelines.control import events

    applied = _applied(viewer, name)
    has_events = PROGRESS in viewer.snapshot.view.topics
    known = events.latest_states(viewer.session.client).get(name) if has_events else None
    return {**list_row(applied, known), "spec": applied.spec, "queries": status_rows(applied, known)}


def log_lines(viewer: Viewer, name: str, count: int = 200) -> list[dict[str, Any]]:
    """The newest events, newest first."""
    from penstock.pipelines.control import events

    _applied(viewer, name)
    if PROGRESS not in viewer.snapshot.view.topics:
        return []
    found = [event for event in events.recent(viewer.session.client, name) if event["kind"] != events.ALIVE]
    newest = itertools.islice(reversed(found), count)
    return [{"at_ms": event["at_ms"], "kind": event["kind"], "line": log_line(event)} for event in newest]


def change(viewer: Viewer, name: str, desired: Literal["running", "stopped"]) -> dict[str, Any]:
    """Start, stop, or (running → running) restart."""
    applied = _applied(viewer, name)
    with viewer.change("admin", f"pipeline.{desired}", name) as session:
        changed = PipelineStore(session.client).change(applied, desired)
    return list_row(changed, None)


def delete(viewer: Viewer, name: str) -> None:
    _applied(viewer, name)
    with viewer.change("admin", "pipeline.delete", name) as session:
        PipelineStore(session.client).delete(name)
