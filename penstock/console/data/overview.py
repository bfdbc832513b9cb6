"""The cluster at a glance: health, totals, largest lags, pipelines, recent changes; and the search over names."""

from __future__ import annotations

from typing import Any

from penstock.console.data.groups import seen_lags
from penstock.console.data.pipelines import seen_rows, summaries
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.console.history import Point
from penstock.operate import admin
from penstock.operate.doctor import examine


def overview(viewer: Viewer) -> dict[str, Any]:
    snapshot = viewer.snapshot
    topics = [t for t in snapshot.topics.values() if viewer.sees(t.name)]
    groups = [
        (g, sum(seen_lags(viewer, g).values()))
        for g in snapshot.groups.values()
        if viewer.sees_group(g.name, g.lag_by_topic) and not admin.is_hidden(g.name)
    ]
    offline = sum(t.offline for t in topics)
    short = sum(t.under_replicated for t in topics)
    problems = []
    if snapshot.view.controller_id not in snapshot.view.brokers:
        problems.append("there is no live controller")
    if offline:
        problems.append(f"{offline} partitions have no leader")
    if any(folder["error_code"] for folder in snapshot.folders):
        problems.append("a log folder is off line")
    warnings = [f"{short} partitions miss replicas"] if short else []
    return {
        "cluster": viewer.cluster.name,
        "cluster_id": snapshot.view.cluster_id,
        "at_ms": snapshot.at_ms,
        "error": viewer.cluster.error,
        "is_penstock": snapshot.is_penstock,
        "health": "problem" if problems else "warning" if warnings else "ok",
        "findings": problems + warnings,
        "brokers": len(snapshot.view.brokers),
        "controller": snapshot.view.controller_id,
        "topics": sum(not t.internal for t in topics),
        "partitions": sum(t.partitions for t in topics),
        "internal_partitions": sum(t.partitions for t in topics if t.internal),
        "offline_partitions": offline,
        "under_replicated_partitions": short,
        "bytes": sum(t.bytes or 0 for t in topics) if "sizes" not in snapshot.missing else None,
        "records_in_per_second": sum(t.rate or 0 for t in topics if not t.internal),
        "bytes_in_per_second": sum(t.byte_rate or 0 for t in topics if not t.internal),
        "records_out_per_second": sum(g.rate or 0 for g, _ in groups),
        "groups": len(groups),
        "lag": sum(lag for _, lag in groups),
        "missing": dict(snapshot.missing),
        "largest_lag": [
            {"name": g.name, "state": g.state, "lag": lag, "records_per_second": g.rate}
            for g, lag in sorted(groups, key=lambda pair: -pair[1])[:5]
        ],
        "busiest_topics": [
            {"name": t.name, "records_per_second": t.rate or 0.0, "bytes": t.bytes}
            for t in sorted((t for t in topics if not t.internal), key=lambda t: (-(t.rate or 0), t.name))[:5]
        ],
        "pipelines": summaries(viewer),
        "changes": _changes(viewer),
    }


def _changes(viewer: Viewer) -> list[dict[str, Any]]:
    """The newest entries of the audit log; who does not see every topic sees what was done to those, and their own."""
    if not viewer.may("editor"):
        return []
    found = viewer.audit.recent(8 if viewer.sees_everything else 200, viewer.cluster.name)
    if not viewer.sees_everything:
        found = [row for row in found if row["user"] == viewer.user.name or _is_seen(viewer, row)]
    return found[:8]


def _is_seen(viewer: Viewer, row: dict[str, Any]) -> bool:
    return str(row["action"]).startswith("topic.") and viewer.sees(str(row["target"]))


def figures(viewer: Viewer, names: list[str], seconds: int = 3600) -> dict[str, list[Point]]:
    """Series of figures by name; those of what the viewer does not see are empty."""
    return {
        name: [] if _is_hidden(viewer, name) else viewer.cluster.history.points(name, seconds)
        for name in dict.fromkeys(names)
    }


def _is_hidden(viewer: Viewer, series: str) -> bool:
    """Figures of what is no longer there are for who sees everything: nobody knows any more what they were of."""
    if viewer.sees_everything:
        return False
    kind, _, rest = series.partition(":")
    if kind == "topic":
        return not viewer.sees(rest.rpartition(":")[0])
    if kind == "group":
        group = viewer.snapshot.groups.get(rest.rpartition(":")[0])
        return group is None or not viewer.sees_group(group.name, group.lag_by_topic)
    if kind == "pipeline":
        return rest.split(":")[0] not in {row["pipeline"] for row in seen_rows(viewer)}
    return False


def find(viewer: Viewer, text: str, limit: int = 12) -> list[dict[str, str]]:
    """Names that hold the text: topics, groups, brokers, pipelines. Those that begin with it come first."""
    wanted = text.strip().casefold()
    snapshot = viewer.snapshot
    names = [("topic", t.name) for t in snapshot.topics.values() if viewer.sees(t.name)]
    names += [("group", g.name) for g in snapshot.groups.values() if viewer.sees_group(g.name, g.lag_by_topic)]
    names += [("pipeline", row["pipeline"]) for row in seen_rows(viewer)]
    names += [("broker", str(node)) for node in snapshot.view.brokers]
    found = [pair for pair in dict.fromkeys(names) if wanted in pair[1].casefold()]
    found.sort(key=lambda pair: (admin.is_hidden(pair[1]), not pair[1].casefold().startswith(wanted), pair[1]))
    return [{"kind": kind, "name": name} for kind, name in found[:limit]]


def doctor(viewer: Viewer) -> list[dict[str, Any]]:
    """The findings of `penstock doctor`: they name topics and groups, so they are an editor's to see."""
    viewer.require("editor")
    if not viewer.sees_everything:
        raise AccessDenied("the doctor names topics and groups of all kinds: it is for who sees every topic")
    return list(examine(viewer.session))
