"""Groups: listed by the page, one in depth, its journal, and moving or deleting it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.console.data.paging import Page, Query, page_of
from penstock.console.data.viewer import Viewer
from penstock.operate import admin
from penstock.operate import groups as operate
from penstock.operate.errors import UserError, not_found, usage_error
from penstock.operate.group_reset import plan_reset


def group_page(viewer: Viewer, query: Query | None = None, *, internal: bool = False) -> Page:
    """Rows of groups with figures of the last look."""
    rows = [
        {
            "name": g.name,
            "state": g.state,
            "type": g.kind,
            "protocol": g.protocol or None,
            "topics": len(g.lag_by_topic),
            "lag": g.lag if g.offsets else None,
            "lag_seconds": g.lag_seconds,
            "records_per_second": g.rate,
        }
        for g in viewer.snapshot.groups.values()
        if (internal or not admin.is_hidden(g.name)) and viewer.sees_group(g.lag_by_topic)
    ]
    return page_of(rows, query or Query())


def _known(viewer: Viewer, name: str) -> Any:
    """A group that this viewer sees, freshly looked up."""
    known = operate.all_groups(viewer.session)
    figures = viewer.snapshot.groups.get(name)
    if name not in known or (figures is not None and not viewer.sees_group(figures.lag_by_topic)):
        seen = (g.name for g in viewer.snapshot.groups.values() if viewer.sees_group(g.lag_by_topic))
        raise not_found("group", name, seen)
    return known[name]


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
        "records_per_second": figures.rate if figures is not None else None,
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
    with viewer.change("editor", "group.reset", name, to=to, shift=shift, topics=topics) as session:
        rows = plan(viewer, name, to, shift, topics)
        operate.insist_on_no_members(session, name)
        operate.commit_offsets(session, name, {(row["topic"], row["partition"]): row["to"] for row in rows})
    return rows


def delete(viewer: Viewer, name: str) -> None:
    _known(viewer, name)
    with viewer.change("editor", "group.delete", name) as session:
        operate.delete_group(session, name)
