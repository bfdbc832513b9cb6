"""Brokers: load, disks, settings; partitions that move or miss replicas; moving them; electing leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.settings import BROKER_SETTINGS
from penstock.base.settings.per_listener import setting_behind
from penstock.console.data.viewer import Viewer
from penstock.console.policy import MASK
from penstock.operate import admin, configs, reassignments
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.operate.reassignment_plan import even_plan
from penstock.operate.reassignments import Plan


def brokers(viewer: Viewer) -> list[dict[str, Any]]:
    snapshot = viewer.snapshot
    partitions = [p for t in snapshot.view.topics.values() for p in t.partitions.values()]
    return [
        {
            "id": node,
            "address": f"{address.host}:{address.port}",
            "rack": address.rack,
            "controller": node == snapshot.view.controller_id,
            "leads": sum(p.leader_id == node for p in partitions),
            "replicas": sum(node in p.replicas for p in partitions),
            "records_per_second": snapshot.broker_rates.get(node, (None, None))[0],
            "bytes_per_second": snapshot.broker_rates.get(node, (None, None))[1],
            "bytes": sum(f["bytes"] for f in snapshot.folders if f["broker"] == node),
            "free_bytes": _least([f["free_bytes"] for f in snapshot.folders if f["broker"] == node]),
            "folders": [
                {"replicas": len(folder["sizes"])} | {key: value for key, value in folder.items() if key != "sizes"}
                for folder in snapshot.folders
                if folder["broker"] == node
            ],
        }
        for node, address in sorted(snapshot.view.brokers.items())
    ]


def broker(viewer: Viewer, node: int) -> dict[str, Any]:
    for row in brokers(viewer):
        if row["id"] == node:
            return row
    raise not_found("broker", str(node), (str(known) for known in viewer.snapshot.view.brokers))


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def broker_configs(viewer: Viewer, node: int) -> list[dict[str, Any]]:
    live = admin.live_brokers(viewer.session)
    if node not in live:
        raise not_found("broker", str(node), (str(known) for known in live))
    found = configs.describe(viewer.session, admin.BROKER_RESOURCE, str(node))
    return [configs.config_row(c) for c in sorted(found, key=lambda c: c.name)]


def configure(viewer: Viewer, node: int | None, changes: Mapping[str, str | None]) -> None:
    """Settings of one broker, or (None) of all of them."""
    name = "" if node is None else str(node)
    with viewer.change("admin", "broker.configure", name or "all", changes=_without_secrets(changes)) as session:
        configs.check_names(session, admin.BROKER_RESOURCE, name, list(changes))
        rows = [(key, 1 if value is None else 0, value) for key, value in changes.items()]
        admin.alter_configs(session, admin.BROKER_RESOURCE, name, rows)


def _without_secrets(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """For the audit log, which others read too: what nobody knows may be a secret."""
    shown: dict[str, str | None] = {}
    for name, value in changes.items():
        setting = BROKER_SETTINGS.get(name) or setting_behind(name)
        shown[name] = value if value is None or (setting is not None and not setting.sensitive) else MASK
    return shown


def unusual(viewer: Viewer) -> list[dict[str, Any]]:
    """Partitions that move, miss replicas, or have no leader; of moves, how much of the data has arrived.

    What moves is asked for, once for all pages; the rest is of the last look: every open page asks again and again.
    """
    session = viewer.session
    moving = viewer.cluster.recent.of(session, "moving", lambda: reassignments.moving(session))
    found = reassignments.unusual_partitions(session, known=viewer.snapshot.view, under_way=moving)
    rows = [row for row in found if viewer.sees(row["topic"])]
    sizes = _sizes(viewer) if rows else {}
    for row in rows:
        whole = sizes.get((row["leader"], row["topic"], row["partition"]), 0)
        arrived = [sizes.get((node, row["topic"], row["partition"]), 0) for node in row["adding"]]
        row["progress"] = min(1.0, sum(arrived) / (whole * len(arrived))) if arrived and whole else None
    return rows


def _sizes(viewer: Viewer) -> dict[tuple[int | None, str, int], int]:
    return {
        (folder["broker"], *key): size for folder in viewer.snapshot.folders for key, size in folder["sizes"].items()
    }


def bytes_to_copy(viewer: Viewer, moves: list[dict[str, Any]]) -> int:
    """How much a plan would send through the network."""
    sizes = _sizes(viewer)
    largest: dict[tuple[str, int], int] = {}
    for (_, name, index), size in sizes.items():
        largest[name, index] = max(size, largest.get((name, index), 0))
    return sum(
        largest.get((row["topic"], row["partition"]), 0) * len(set(row["to"]) - set(row["from"])) for row in moves
    )


def plan(viewer: Viewer, topics: list[str] | None = None, nodes: list[int] | None = None) -> list[dict[str, Any]]:
    """An even spread with few moves: per partition from and to, only those that change."""
    view = admin.cluster(viewer.session)
    for name in topics or []:
        viewer.topic(name)
    for node in nodes or []:
        if node not in view.brokers:
            raise UserError(f"broker {node} is not live", code=ExitCode.NOT_FOUND)
    current: Plan = {
        (t.name, index): list(p.replicas)
        for t in view.topics.values()
        if viewer.sees(t.name) and (topics is None or t.name in topics)
        for index, p in t.partitions.items()
    }
    target = even_plan(current, sorted(nodes or view.brokers))
    return [
        {"topic": name, "partition": index, "from": current[name, index], "to": replicas}
        for (name, index), replicas in sorted(target.items())
        if current[name, index] != replicas
    ]


def reassign(viewer: Viewer, moves: list[dict[str, Any]], throttle: int = 0) -> None:
    """Start moves (topic, partition, to); `throttle` in bytes per second and broker."""
    if not moves:
        raise usage_error("nothing to move")
    wanted: Plan = {(row["topic"], int(row["partition"])): [int(node) for node in row["to"]] for row in moves}
    for name, _ in wanted:
        viewer.topic(name)
    with viewer.change("admin", "partition.reassign", f"{len(wanted)} partitions", throttle=throttle) as session:
        current = reassignments.current_replicas(session, wanted)
        if throttle:
            reassignments.throttle_moves(session, wanted, current, throttle)
        reassignments.submit(session, wanted)


def cancel_moves(viewer: Viewer) -> int:
    with viewer.change("admin", "partition.cancel", "all moves") as session:
        moving = reassignments.moving(session)
        if moving:
            reassignments.submit(session, dict.fromkeys(moving))
    return len(moving)


def unthrottle(viewer: Viewer, topics: list[str]) -> None:
    """Moves that are over need no limit any more."""
    for name in topics:
        viewer.topic(name)
    with viewer.change("admin", "partition.unthrottle", ", ".join(topics)) as session:
        reassignments.unthrottle(session, set(topics))


def elect(viewer: Viewer, topic: str | None = None, partitions: list[int] | None = None) -> list[dict[str, Any]]:
    """Leadership back to the preferred replicas."""
    if topic is not None:
        viewer.topic(topic)
    with viewer.change("admin", "partition.elect", topic or "all topics") as session:
        return reassignments.elect_leaders(session, topic, partitions)
