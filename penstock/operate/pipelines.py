"""Applied pipelines as rows: the state as a user should read it, how each query does, lines of logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.operate.errors import not_found

if TYPE_CHECKING:
    from penstock.operate.session import Session
    from penstock.pipelines.control.store import Applied

SILENT_MS = 30_000  # a driver speaks every few seconds; one that does not is gone


def delete(session: Session, name: str) -> int:
    """Forget a pipeline, fence its driver and end its sinks; how many transactions were still open."""
    from penstock.pipelines import ending
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.spark import sink_journal

    store = PipelineStore(session.client)
    applied = store.all()
    known = {state.pipeline for state in session.client.run(sink_journal.all_states).values()}
    if name in applied:
        store.delete(name)
    elif name not in known:  # one that nobody applied, or whose deletion was interrupted, may still have sinks
        raise not_found("pipeline", name, applied)
    ending.fence(session.client, name)
    return ending.end_pipeline(session.client, name)


def pipeline_state(applied: Applied, known: Mapping[str, Any] | None) -> tuple[str, str | None]:
    """(state, error) as a user should read it."""
    if known is None:
        return ("stopped" if applied.desired == "stopped" else "waiting for a runner"), None
    state = known["state"]
    silent = time.time() * 1000 - known.get("seen_at_ms", 0) > SILENT_MS
    is_older = isinstance(known.get("generation"), int) and known["generation"] < applied.generation
    if applied.desired == "running" and is_older and (silent or state not in ("running", "starting")):
        return "waiting for a runner", None  # what is known is of what was applied before
    if state in ("running", "starting") and silent:
        return "lost", "its driver is silent; is a runner up?"
    if applied.desired == "stopped" and state in ("running", "starting"):
        return "stopping", None
    return state, known.get("error")


def list_row(applied: Applied, known: Mapping[str, Any] | None) -> dict[str, Any]:
    state, error = pipeline_state(applied, known)
    return {
        "name": applied.name,
        "desired": applied.desired,
        "state": state,
        "generation": applied.generation,
        "changed_at_ms": applied.changed_at_ms,
        "changed_by": applied.changed_by,
        "error": error,
    }


def status_rows(applied: Applied, known: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    state, error = pipeline_state(applied, known)
    common = {"pipeline": applied.name, "state": state, "error": error}
    queries = (known or {}).get("queries", {})
    if not queries:
        return [common]
    return [{**query, **common} for _, query in sorted(queries.items())]


def log_line(event: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if event["kind"] == "state":
        return f"{at} {event['state']}" + (f": {event['error']}" if event.get("error") else "")
    if event["kind"] == "progress":
        return f"{at} {event['query']}: batch {event['batch']}, {event['rows']} rows, {event['batch_ms']} ms"
    return f"{at} {event['line']}"
