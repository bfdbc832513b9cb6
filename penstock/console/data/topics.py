"""Topics: listed by the page, one in depth, and every change of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data.paging import Page, Query, page_of
from penstock.console.data.viewer import Viewer
from penstock.operate import admin, configs
from penstock.operate.errors import usage_error
from penstock.operate.topics import create_topics, delete_records, delete_topics, grow_topic, partition_rows

EMPTY_WITH = -1


def topic_page(viewer: Viewer, query: Query | None = None, *, internal: bool = False) -> Page:
    """Rows of topics with figures of the last look."""
    rows = [
        {
            "name": t.name,
            "partitions": t.partitions,
            "replicas": t.replicas,
            "under_replicated": t.under_replicated,
            "offline": t.offline,
            "records": t.records,
            "bytes": t.bytes,
            "records_per_second": t.rate,
            "bytes_per_second": t.byte_rate,
            "internal": t.internal,
        }
        for t in viewer.snapshot.topics.values()
        if (internal or not t.internal) and viewer.sees(t.name)
    ]
    return page_of(rows, query or Query())


def topic(viewer: Viewer, name: str) -> dict[str, Any]:
    """One topic: partitions with leader, replicas, in-sync set and offsets; figures; who consumes it."""
    found = viewer.topic(name)
    figures = viewer.snapshot.topics.get(name)
    own = {
        c.name: c.value
        for c in admin.describe_configs(viewer.session, admin.TOPIC_RESOURCE, name)
        if c.name in ("retention.ms", "retention.bytes", "cleanup.policy") or c.config_source == 1
    }
    return {
        "name": name,
        "topic_id": str(found.topic_id),
        "internal": admin.is_hidden(name, found.is_internal),
        "partitions": partition_rows(viewer.session, found),
        "bytes": figures.bytes if figures else None,
        "records_per_second": figures.rate if figures else None,
        "bytes_per_second": figures.byte_rate if figures else None,
        "configs": own,
        "consumers": consumers(viewer, name),
    }


def consumers(viewer: Viewer, name: str) -> list[dict[str, Any]]:
    """Groups that have committed offsets of a topic."""
    viewer.topic(name)
    return [
        {"group": g.name, "state": g.state, "lag": g.lag_by_topic[name], "records_per_second": g.rate}
        for g in viewer.snapshot.groups.values()
        if name in g.lag_by_topic and viewer.sees_group(g.name, g.lag_by_topic)
    ]


def topic_configs(viewer: Viewer, name: str) -> list[dict[str, Any]]:
    """Every setting of a topic: its value, where that comes from, and what it means."""
    viewer.topic(name)
    found = configs.describe(viewer.session, admin.TOPIC_RESOURCE, name)
    return [configs.config_row(c) for c in sorted(found, key=lambda c: c.name)]


def create_topic(
    viewer: Viewer, name: str, partitions: int = -1, replicas: int = -1, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    if not viewer.allows(name):
        raise usage_error(f"a topic {name!r} would not be visible to {viewer.user.role}s")
    with viewer.change(
        viewer.role_to_change(name), "topic.create", name, partitions=partitions, replicas=replicas
    ) as session:
        (row,) = create_topics(session, [name], partitions, replicas, settings)
        if row.error_code:
            raise admin.refuse(row.error_code, name, row.error_message or None)
    return {"name": name, "partitions": row.num_partitions, "replicas": row.replication_factor}


def delete_topic(viewer: Viewer, name: str) -> None:
    viewer.topic(name)
    with viewer.change(viewer.role_to_change(name), "topic.delete", name) as session:
        (row,) = delete_topics(session, [name])
        if row.error_code:
            raise admin.refuse(row.error_code, name, row.error_message or None)


def grow(viewer: Viewer, name: str, partitions: int) -> None:
    current = len(viewer.topic(name).partitions)
    if partitions <= current:
        raise usage_error(f"{name} has {current} partitions already", f"name a number above {current}")
    with viewer.change(viewer.role_to_change(name), "topic.grow", name, partitions=partitions) as session:
        grow_topic(session, name, partitions)


def empty(viewer: Viewer, name: str) -> None:
    """Drop all records; the topic stays."""
    found = viewer.topic(name)
    with viewer.change(viewer.role_to_change(name), "topic.empty", name) as session:
        delete_records(session, name, dict.fromkeys(found.partitions, EMPTY_WITH))


def configure(viewer: Viewer, name: str, changes: Mapping[str, str | None]) -> None:
    """Set settings; None takes one back to its default."""
    viewer.topic(name)
    with viewer.change(viewer.role_to_change(name), "topic.configure", name, changes=dict(changes)) as session:
        configs.check_names(session, admin.TOPIC_RESOURCE, name, list(changes))
        rows = [(key, 1 if value is None else 0, value) for key, value in changes.items()]
        admin.alter_configs(session, admin.TOPIC_RESOURCE, name, rows)
