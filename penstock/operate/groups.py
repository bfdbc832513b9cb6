"""Groups: who is in them, what they own, how far behind they are, their journal; moving and deleting them."""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, not_found
from penstock.operate.reading import latest_values
from penstock.protocol import messages
from penstock.protocol.batch import batch_bytes, iterate_batches, read_records

if TYPE_CHECKING:
    from penstock.operate.session import Session

JOURNAL = "__penstock_rebalances"


def all_groups(session: Session) -> dict[str, Any]:
    api = messages.api("list_groups")
    request = api.Request(states_filter=[], types_filter=[])
    answers = admin.on_every_broker(session, "list_groups", request)
    return {g.group_id: g for answer in answers.values() for g in answer.groups}


def known_group(session: Session, name: str) -> Any:
    groups = all_groups(session)
    if name not in groups:
        raise not_found("group", name, groups)
    return groups[name]


def lag_rows(
    session: Session, keys: list[tuple[str, int]], offsets: dict[tuple[str, int], tuple[int, str | None]]
) -> list[dict[str, Any]]:
    """Per partition: committed offset, end, lag in records, and the age of the first record not yet consumed."""
    known = session.client.metadata({name for name, _ in keys})
    live = [key for key in keys if known.leader(*key) >= 0]
    ends = admin.list_offsets(session, dict.fromkeys(live, admin.LATEST))
    rows = []
    for topic, partition in keys:
        committed, note = offsets.get((topic, partition), (None, None))
        end = ends.get((topic, partition), (None, 0))[0]
        lag = max(0, end - committed) if committed is not None and end is not None else None
        age = record_age(session, topic, partition, committed) if lag else None
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "offset": committed,
                "end": end,
                "lag": lag,
                "lag_seconds": 0 if lag == 0 else age,
                "metadata": note,
            }
        )
    return rows


def record_age(session: Session, topic: str, partition: int, offset: int | None) -> float | None:
    """Seconds since the next record that the group will read was written."""
    if offset is None:
        return None
    data = session.client.fetch({(topic, partition): offset}, max_bytes=1, max_wait_ms=0)[topic, partition].records
    for header in iterate_batches(data):
        if not header.is_control:
            for record in read_records(batch_bytes(data, header)):
                if record.offset >= offset:
                    return round(max(0.0, time.time() - record.timestamp / 1000), 1)
    return None


def describe_members(session: Session, name: str, listed: Any) -> list[dict[str, Any]]:
    """Members with what they own, of both kinds of group."""
    if listed.group_type == "consumer":
        api = messages.api("consumer_group_describe")
        request = api.Request(group_ids=[name])
        group = session.client.call_coordinator("group", name, "consumer_group_describe", request).groups[0]
        _insist(group, name)
        return [
            {"member": m.member_id, "instance": m.instance_id, "client": m.client_id, "host": m.client_host,
             "epoch": m.member_epoch,
             "assignment": [(t.topic_name, p) for t in m.assignment.topic_partitions for p in t.partitions]}
            for m in group.members
        ]  # fmt: skip
    asked = messages.api("describe_groups").Request(groups=[name])
    answer = session.client.call_coordinator("group", name, "describe_groups", asked)
    group = answer.groups[0]
    _insist(group, name)
    return [
        {"member": m.member_id, "instance": m.group_instance_id, "client": m.client_id, "host": m.client_host,
         "epoch": None, "assignment": _classic_assignment(m.member_assignment)}
        for m in group.members
    ]  # fmt: skip


def _insist(group: Any, name: str) -> None:
    if group.error_code:
        raise admin.refuse(group.error_code, f"group {name}", group.error_message)


def _classic_assignment(data: bytes) -> list[tuple[str, int]]:
    """What a member of a classic consumer group owns; empty for payloads of other protocols."""
    if len(data) < 6:
        return []
    found = []
    try:
        (topics,) = struct.unpack_from(">i", data, 2)
        position = 6
        for _ in range(topics):
            (size,) = struct.unpack_from(">h", data, position)
            name = data[position + 2 : position + 2 + size].decode()
            (count,) = struct.unpack_from(">i", data, position + 2 + size)
            found += [(name, p) for p in struct.unpack_from(f">{count}i", data, position + 6 + size)]
            position += 6 + size + 4 * count
    except (struct.error, UnicodeDecodeError):
        return []
    return found


def commit_offsets(session: Session, name: str, offsets: dict[tuple[str, int], int]) -> None:
    """Move a group without members to these offsets."""
    api = messages.api("offset_commit").load_all_versions()
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        row = api.request_struct("OffsetCommitRequestPartition")(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        topics.setdefault(topic, []).append(row)
    rows = [api.request_struct("OffsetCommitRequestTopic")(name=t, partitions=p) for t, p in topics.items()]
    request = api.Request(group_id=name, generation_id_or_member_epoch=-1, member_id="", topics=rows)
    answer = session.client.call_coordinator("group", name, "offset_commit", request, highest_version=8)
    for row in answer.topics:
        for p in row.partitions:
            if p.error_code:
                raise admin.refuse(p.error_code, f"offset of {row.name}-{p.partition_index}")


def delete_offsets(session: Session, name: str, keys: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Forget a group's offsets of these partitions; how it went for each."""
    api = messages.api("offset_delete")
    topics: dict[str, list[Any]] = {}
    for topic, partition in keys:
        row = api.request_struct("OffsetDeleteRequestPartition")(partition_index=partition)
        topics.setdefault(topic, []).append(row)
    rows = [api.request_struct("OffsetDeleteRequestTopic")(name=t, partitions=p) for t, p in topics.items()]
    request = api.Request(group_id=name, topics=rows)
    answer = session.client.call_coordinator("group", name, "offset_delete", request)
    if answer.error_code:
        raise admin.refuse(answer.error_code, f"group {name}")
    return [
        {
            "group": name,
            "topic": row.name,
            "partition": p.partition_index,
            "result": admin.refuse(p.error_code, "").message[2:] if p.error_code else "deleted",
        }
        for row in answer.topics
        for p in row.partitions
    ]


def insist_on_no_members(session: Session, name: str) -> None:
    """Offsets of a group that is at work cannot be moved under it."""
    groups = all_groups(session)
    if name in groups and groups[name].group_state not in ("Empty", "Dead", ""):
        raise UserError(f"{name} is {groups[name].group_state}", "stop its consumers first", ExitCode.REFUSED)


def delete_group(session: Session, name: str) -> None:
    api = messages.api("delete_groups")
    answer = session.client.call_coordinator("group", name, "delete_groups", api.Request(groups_names=[name]))
    if answer.results[0].error_code:
        raise admin.refuse(answer.results[0].error_code, f"group {name}")


def rebalance_journal(session: Session, name: str) -> list[dict[str, Any]]:
    """A group's rebalances, oldest first: when, why, who, how long, how many partitions moved."""
    journal = session.client.metadata([JOURNAL]).topics.get(JOURNAL)
    if journal is None or journal.error_code:
        raise UserError(
            "this cluster keeps no rebalance journal yet", "Penstock writes one with its first group; Kafka has none"
        )
    history = dict(latest_values(session, JOURNAL)).get(name.encode())
    return list(json.loads(history)) if history else []
