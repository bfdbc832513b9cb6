"""Topics: listed, described by partition, created, grown, emptied, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.client.metadata import TopicView
    from penstock.operate.session import Session


def topic_rows(session: Session, hidden: bool = False) -> list[dict[str, Any]]:
    """Every topic with its partitions, replicas, and how many of those are missing."""
    return [
        {
            "name": t.name,
            "partitions": len(t.partitions),
            "replicas": max((len(p.replicas) for p in t.partitions.values()), default=0),
            "under_replicated": sum(len(p.isr) < len(p.replicas) for p in t.partitions.values()),
            "internal": t.is_internal,
            "topic_id": str(t.topic_id),
        }
        for t in sorted(admin.cluster(session).topics.values(), key=lambda t: t.name)
        if hidden or not admin.is_hidden(t.name, t.is_internal)
    ]


def partition_rows(session: Session, topic: TopicView) -> list[dict[str, Any]]:
    """Per partition: leader, replicas, in-sync set, first and next offset."""
    name = topic.name
    keys = [(name, index) for index, p in topic.partitions.items() if p.leader_id >= 0]
    starts = admin.list_offsets(session, dict.fromkeys(keys, admin.EARLIEST))
    ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
    rows = []
    for index, p in topic.partitions.items():
        start, end = starts.get((name, index), (None, 0))[0], ends.get((name, index), (None, 0))[0]
        rows.append(
            {
                "partition": index,
                "leader": p.leader_id if p.leader_id >= 0 else None,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline": list(p.offline_replicas),
                "start": start,
                "end": end,
                "records": end - start if start is not None and end is not None else None,
            }
        )
    return rows


def create_topics(
    session: Session,
    names: list[str],
    partitions: int = -1,
    replicas: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    assignment: Mapping[int, list[int]] | None = None,
) -> list[Any]:
    """The controller's answer for each name (error_code, num_partitions, …); -1 is the broker's default."""
    api = messages.api("create_topics")
    settings = [api.request_struct("CreatableTopicConfig")(name=k, value=v) for k, v in (configs or {}).items()]
    placed = [
        api.request_struct("CreatableReplicaAssignment")(partition_index=index, broker_ids=nodes)
        for index, nodes in sorted((assignment or {}).items())
    ]
    wanted = [
        api.request_struct("CreatableTopic")(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=placed, configs=settings
        )
        for name in names
    ]
    request = api.Request(topics=wanted, timeout_ms=30_000, validate_only=validate_only)
    answer = session.client.call_controller("create_topics", request)
    return list(answer.topics)


def delete_topics(session: Session, names: list[str]) -> list[Any]:
    """The controller's answer for each name."""
    api = messages.api("delete_topics").load_all_versions()
    states = [api.request_struct("DeleteTopicState")(name=name) for name in names]
    request = api.Request(topics=states, topic_names=names, timeout_ms=30_000)
    answer = session.client.call_controller("delete_topics", request)
    return list(answer.responses)


def grow_topic(session: Session, name: str, total: int) -> None:
    api = messages.api("create_partitions")
    wanted = api.CreatePartitionsTopic(name=name, count=total, assignments=None)
    answer = session.client.call_controller("create_partitions", api.Request(topics=[wanted], timeout_ms=30_000))
    for row in answer.results:
        if row.error_code:
            raise admin.refuse(row.error_code, row.name, row.error_message or None)


def offsets_before(session: Session, topic: TopicView, moment_ms: int) -> dict[int, int]:
    """Per partition the first offset that is not older than the moment; the end if all is older."""
    name, targets = topic.name, {}
    keys = [(name, index) for index in topic.partitions]
    ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
    for key, (found, _) in admin.list_offsets(session, dict.fromkeys(keys, moment_ms)).items():
        targets[key[1]] = found if found >= 0 else ends[key][0]
    return targets


def delete_records(session: Session, name: str, targets: Mapping[int, int]) -> list[dict[str, Any]]:
    """Drop what lies below these offsets (-1: everything); where each partition starts then."""
    api = messages.api("delete_records")
    rows = []
    for partition, target in sorted(targets.items()):
        row = api.request_struct("DeleteRecordsPartition")(partition_index=partition, offset=target)
        wanted = api.request_struct("DeleteRecordsTopic")(name=name, partitions=[row])
        request = api.Request(topics=[wanted], timeout_ms=30_000)
        answer = session.client.call_leader(name, partition, "delete_records", request).topics[0].partitions[0]
        if answer.error_code:
            raise admin.refuse(answer.error_code, f"{name}-{partition}")
        rows.append({"topic": name, "partition": partition, "start": answer.low_watermark})
    return rows
