"""`penstock group`: who consumes what, how far behind, and where it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin, suggest
from penstock.cli.errors import ExitCode, UserError, not_found, usage_error
from penstock.cli.group_reset import plan_reset
from penstock.cli.positions import format_time
from penstock.cli.topic import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.protocol import messages
from penstock.protocol.batch import batch_bytes, iterate_batches, read_records

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Consumer groups: members, lag, offsets, rebalances.")

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=suggest.groups)]


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


@command(app, "list")
def list_groups(
    session: Session, state: Annotated[str | None, typer.Option("--state", help="Only groups in this state.")] = None
) -> None:
    """List groups with their state and type."""
    rows = [
        {"group": name, "state": g.group_state, "type": g.group_type or "classic", "protocol": g.protocol_type or None}
        for name, g in sorted(all_groups(session).items())
        if state is None or g.group_state.lower() == state.lower()
    ]
    session.output.rows(rows, ["group", "state", "type", "protocol"], empty="no groups")


@command(app)
def describe(session: Session, name: Group) -> None:
    """Show a group's offsets, its lag in records and in seconds, and who owns which partition."""
    listed = known_group(session, name)
    members = describe_members(session, name, listed)
    owners = {key: m for m in members for key in m["assignment"]}
    offsets = admin.committed_offsets(session, name)
    keys = sorted(set(offsets) | set(owners))
    rows = lag_rows(session, keys, offsets)
    for row in rows:
        owner = owners.get((row["topic"], row["partition"]), {})
        row |= {"member": owner.get("member"), "client": owner.get("client"), "host": owner.get("host")}
    if session.output.as_json:
        shown = [{**m, "assignment": [list(k) for k in m["assignment"]]} for m in members]
        session.output.record({"group": name, "state": listed.group_state, "offsets": rows, "members": shown})
        return
    session.output.text(f"{name}  {listed.group_state}, {len(members)} members, lag {sum(r['lag'] or 0 for r in rows)}")
    columns = ["topic", "partition", "offset", "end", "lag", "lag_seconds", "member", "host"]
    session.output.rows(rows, columns, right=columns[1:6], empty="it has committed nothing and owns nothing")


def lag_rows(
    session: Session, keys: list[tuple[str, int]], offsets: dict[tuple[str, int], tuple[int, str | None]]
) -> list[dict[str, Any]]:
    """Per partition: committed offset, end, lag in records, and the age of the first record not yet consumed."""
    known = admin.cluster(session)
    live = [key for key in keys if known.leader(*key) >= 0]
    ends = admin.list_offsets(session, dict.fromkeys(live, admin.LATEST))
    rows = []
    for topic, partition in keys:
        committed, note = offsets.get((topic, partition), (None, None))
        end = ends.get((topic, partition), (None, 0))[0]
        lag = max(0, end - committed) if committed is not None and end is not None else None
        age = _age(session, topic, partition, committed) if lag else None
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


def _age(session: Session, topic: str, partition: int, offset: int | None) -> float | None:
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
    api = messages.api("describe_groups")
    answer = session.client.call_coordinator("group", name, "describe_groups", api.Request(groups=[name]))
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
    import struct

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


@command(app)
def members(session: Session, name: Group) -> None:
    """Show a group's members and what each owns."""
    rows = describe_members(session, name, known_group(session, name))
    for row in rows:
        row["partitions"] = len(row["assignment"])
        row["assignment"] = [f"{topic}-{partition}" for topic, partition in row["assignment"]]
    columns = ["member", "instance", "client", "host", "partitions", "assignment"]
    session.output.rows(rows, columns, right=["partitions"], empty=f"{name} has no members now")


@command(app)
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", autocompletion=suggest.groups)],
    yes: Yes = False,
) -> None:
    """Delete groups and their offsets; they must have no members."""
    for name in names:
        known_group(session, name)
    confirm(f"Delete {', '.join(names)} with all offsets?", yes)
    api = messages.api("delete_groups")
    for name in names:
        answer = session.client.call_coordinator("group", name, "delete_groups", api.Request(groups_names=[name]))
        if answer.results[0].error_code:
            raise admin.refuse(answer.results[0].error_code, f"group {name}")
        session.output.result({"group": name, "deleted": True}, f"{name} deleted")


@command(app)
def reset(
    session: Session,
    name: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Only these; may be repeated."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="WHERE", help="earliest, latest, current, an offset, or a time (2h, 2026-11-01T12:00)."
        ),
    ] = None,
    shift: Annotated[int | None, typer.Option("--shift", help="So many records forward, or back if negative.")] = None,
    from_file: Annotated[Path | None, typer.Option("--from-file", help="CSV lines topic,partition,offset.")] = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
) -> None:
    """Move a group's offsets. The plan is shown before it is done; the group must have no members."""
    if sum([to is not None, shift is not None, from_file is not None]) != 1:
        raise usage_error("say where to", "one of --to WHERE, --shift N or --from-file FILE")
    plan = plan_reset(session, name, topic, to, shift, from_file)
    rows = [
        {"topic": t, "partition": p, "from": old, "to": new, "change": None if old is None else new - old}
        for (t, p), (old, new) in sorted(plan.items())
    ]
    session.output.rows(
        rows, ["topic", "partition", "from", "to", "change"], right=["partition", "from", "to", "change"]
    )
    if dry_run:
        return
    groups = all_groups(session)
    if name in groups and groups[name].group_state not in ("Empty", "Dead", ""):
        raise UserError(f"{name} is {groups[name].group_state}", "stop its consumers first", ExitCode.REFUSED)
    confirm(f"Move {len(rows)} offsets of {name}?", yes or session.output.as_json)
    _commit(session, name, {key: new for key, (_, new) in plan.items()})
    if not session.output.as_json:
        session.output.text(f"{len(rows)} offsets of {name} moved")


def _commit(session: Session, name: str, offsets: dict[tuple[str, int], int]) -> None:
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


@command(app)
def rebalances(
    session: Session,
    name: Group,
    count: Annotated[int, typer.Option("--count", "-n", help="How many, newest last.")] = 20,
) -> None:
    """Show a group's last rebalances: why, who, how long, how many partitions moved."""
    from penstock.cli.reading import latest_values

    topic = "__penstock_rebalances"
    if topic not in admin.cluster(session).topics:
        raise UserError(
            "this cluster keeps no rebalance journal yet", "Penstock writes one with its first group; Kafka has none"
        )
    history = dict(latest_values(session, topic)).get(name.encode())
    rows = json.loads(history)[-count:] if history else []
    for row in rows:
        row["when"] = format_time(row["at_ms"])
        row["cause"] = ", ".join(f"{cause['member']} {cause['kind']}".strip() for cause in row["causes"])
    columns = ["when", "generation", "cause", "members", "duration_ms", "partitions", "moved"]
    session.output.rows(rows, columns, right=columns[3:], empty=f"{name} has not rebalanced yet")
