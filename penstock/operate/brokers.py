"""Brokers: which live, what each leads and holds, and its folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import not_found
from penstock.protocol import messages
from penstock.protocol.errors import error_name

if TYPE_CHECKING:
    from penstock.operate.session import Session


def broker_rows(session: Session) -> list[dict[str, Any]]:
    view = admin.cluster(session)
    partitions = [p for t in view.topics.values() for p in t.partitions.values()]
    return [
        {
            "id": node,
            "address": f"{address.host}:{address.port}",
            "rack": address.rack,
            "controller": node == view.controller_id,
            "leads": sum(p.leader_id == node for p in partitions),
            "replicas": sum(node in p.replicas for p in partitions),
        }
        for node, address in sorted(view.brokers.items())
    ]


def known_broker(session: Session, node: int) -> dict[str, Any]:
    rows = {row["id"]: row for row in broker_rows(session)}
    if node not in rows:
        raise not_found("broker", str(node), [str(known) for known in rows])
    return rows[node]


def log_folders(session: Session, node: int) -> list[dict[str, Any]]:
    """A broker's log folders with their sizes."""
    api = messages.api("describe_log_dirs")
    answer = session.client.call_broker(node, "describe_log_dirs", api.Request(topics=None))
    return [
        {
            "folder": result.log_dir,
            "error": error_name(result.error_code) if result.error_code else None,
            "replicas": sum(len(t.partitions) for t in result.topics),
            "bytes": sum(p.partition_size for t in result.topics for p in t.partitions),
            "free_bytes": result.usable_bytes if result.usable_bytes >= 0 else None,
        }
        for result in answer.results
    ]


def replicas_on(session: Session, node: int) -> dict[tuple[str, int], str]:
    """The folder of each replica of a broker."""
    api = messages.api("describe_log_dirs")
    answer = session.client.call_broker(node, "describe_log_dirs", api.Request(topics=None))
    return {
        (t.name, p.partition_index): result.log_dir
        for result in answer.results
        for t in result.topics
        for p in t.partitions
        if not p.is_future_key
    }


def move_to_folder(session: Session, node: int, keys: list[tuple[str, int]], folder: str) -> list[dict[str, Any]]:
    """Have a broker move replicas to another of its log folders; it copies while it serves. How it went for each."""
    api = messages.api("alter_replica_log_dirs")
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    rows = [api.request_struct("AlterReplicaLogDirTopic")(name=name, partitions=p) for name, p in topics.items()]
    wanted = api.request_struct("AlterReplicaLogDir")(path=folder, topics=rows)
    answer = session.client.call_broker(node, "alter_replica_log_dirs", api.Request(dirs=[wanted]))
    return [
        {
            "topic": t.topic_name,
            "partition": p.partition_index,
            "broker": node,
            "to": folder,
            "result": error_name(p.error_code) if p.error_code else "moving",
        }
        for t in answer.results
        for p in t.partitions
    ]
