"""Groups: listed by the page, one in depth, its journal, and moving or deleting it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.console.data.paging import Page, Query, page_of
from penstock.console.data.viewer import Viewer
from penstock.console.snapshot import GroupFigures
from penstock.operate import admin
from penstock.operate import groups as operate
from penstock.operate.errors import UserError, not_found, usage_error
from penstock.operate.group_reset import plan_reset


def group_page(viewer: Viewer, query: Query | None = None, *, internal: bool = False) -> Page:
    """Rows of groups with figures of the last look."""
    rows = [
        _row(viewer, g)
        for g in viewer.snapshot.groups.values()
        if (internal or not admin.is_hidden(g.name)) and viewer.sees_group(g.name, g.lag_by_topic)
    ]
    return page_of(rows, query or Query())


def _row(viewer: Viewer, group: GroupFigures) -> dict[str, Any]:
    """Without what its hidden topics add to the figures."""
    lags = seen_lags(viewer, group)
    whole = len(lags) == len(group.lag_by_topic)
    return {
        "name": group.name,
        "state": group.state,
        "type": group.kind,
        "protocol": group.protocol or None,
        "topics": len(lags),
        "lag": sum(lags.values()) if group.offsets else None,
        "lag_seconds": group.lag_seconds if whole else None,
        "records_per_second": group.rate if whole else None,
    }


def seen_lags(viewer: Viewer, group: GroupFigures) -> dict[str, int]:
    return {topic: lag for topic, lag in group.lag_by_topic.items() if viewer.sees(topic)}


def _known(viewer: Viewer, name: str) -> Any:
    """A group that this viewer sees, freshly looked up."""
    known = operate.all_groups(viewer.session)
    if name not in known or not viewer.sees_group(name, _topics_of(viewer, name, known[name])):
        groups = viewer.snapshot.groups.values()
        raise not_found("group", name, (g.name for g in groups if viewer.sees_group(g.name, g.lag_by_topic)))
    return known[name]


def _topics_of(viewer: Viewer, name: str, listed: Any) -> set[str]:
    """What it has committed to or owns now; the last look may be older than the group."""
    if viewer.sees_everything:
        return set()
    owned = (key for member in operate.describe_members(viewer.session, name, listed) for key in member["assignment"])
    return {topic for topic, _ in (*admin.committed_offsets(viewer.session, name), *owned)}


def group(viewer: Viewer, name: str) -> dict[str, Any]:
    """One group: members with what they own, offsets with lag in records and seconds."""
    listed = _known(viewer, name)
    members = operate.describe_members(viewer.session, name, listed)
    owners = {key: member for member in members for key in member["assignment"]}
    offsets = admin.committed_offsets(viewer.session, name)
    keys = [key for key in sorted(set(offsets) | set(owners)) if viewer.sees(key[0])]
    rows = operate.lag_rows(viewer.session, keys, offsets)
    for row in rows:
        owner = owners.get((row["topic"], row["partition"]), {})
        row |= {"member": owner.get("member"), "client": owner.get("client"), "host": owner.get("host")}
    figures = viewer.snapshot.groups.get(name)
    ages = [row["lag_seconds"] for row in rows if row["lag_seconds"] is not None]
    return {
        "name": name,
        "state": listed.group_state,
        "type": listed.group_type or "classic",
        "lag": sum(row["lag"] or 0 for row in rows),
        "lag_seconds": max(ages, default=None),
        "records_per_second": _row(viewer, figures)["records_per_second"] if figures is not None else None,
        "members": [
            {**m, "assignment": [list(key) for key in m["assignment"] if viewer.sees(key[0])]} for m in members
        ],
        "offsets": rows,
        "topics": dict(Counter(row["topic"] for row in rows)),
    }


def rebalances(viewer: Viewer, name: str, count: int = 50) -> dict[str, Any]:
    """The group's journal, newest first, or why there is none."""
    _known(viewer, name)
    try:
        return {"rows": operate.rebalance_journal(viewer.session, name)[-count:][::-1], "missing": None}
    except UserError as error:
        return {"rows": [], "missing": error.message}


def plan(
    viewer: Viewer, name: str, to: str | None, shift: int | None = None, topics: list[str] | None = None
) -> list[dict[str, Any]]:
    """Where a reset would take the group: per partition from, to and the change."""
    if (to is None) == (shift is None):
        raise usage_error("say where to", "one of `to` and `shift`")
    if not viewer.sees_everything:
        _known(viewer, name)
    for word in topics or []:
        viewer.topic(word.partition(":")[0])
    found = plan_reset(viewer.session, name, topics, to, shift, None)
    return [
        {"topic": t, "partition": p, "from": old, "to": new, "change": None if old is None else new - old}
        for (t, p), (old, new) in sorted(found.items())
        if viewer.sees(t)
    ]


def reset(
    viewer: Viewer, name: str, to: str | None, shift: int | None = None, topics: list[str] | None = None
) -> list[dict[str, Any]]:
    """Do what `plan` says; the group must have no members."""
    with viewer.change(viewer.role_to_change(name), "group.reset", name, to=to, shift=shift, topics=topics) as session:
        rows = plan(viewer, name, to, shift, topics)
        operate.insist_on_no_members(session, name)
        operate.commit_offsets(session, name, {(row["topic"], row["partition"]): row["to"] for row in rows})
    return rows


def delete(viewer: Viewer, name: str) -> None:
    _known(viewer, name)
    with viewer.change(viewer.role_to_change(name), "group.delete", name) as session:
        operate.delete_group(session, name)
