"""`penstock topic`: list, describe, create, alter, delete, add-partitions, trim; import, export, copy: transfer.py."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin, suggest
from penstock.cli.errors import ExitCode, UserError, usage_error
from penstock.cli.transfer import register as register_transfers
from penstock.cli.typed import command, new_app
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("List, describe, create, change, import, export and delete topics.")
register_transfers(app)

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=suggest.topics)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", show_default=False, autocompletion=suggest.topics)]
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
All = Annotated[bool, typer.Option("--all", "-a", help="Also internal topics, whose names start with __.")]


def parse_configs(pairs: list[str] | None) -> dict[str, str]:
    configs = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise usage_error(f"--config {pair!r} is not KEY=VALUE", "for example --config retention.ms=3600000")
        configs[key.strip()] = value.strip()
    return configs


def confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{question} Nobody is there to answer", "add --yes")
    if not typer.confirm(question):
        raise UserError("nothing was done")


@command(app, "list")
def list_topics(session: Session, all_: All = False) -> None:
    """List topics with partitions, replicas, and how many of those are missing."""
    rows = [
        {
            "name": t.name,
            "partitions": len(t.partitions),
            "replicas": max((len(p.replicas) for p in t.partitions.values()), default=0),
            "under_replicated": sum(len(p.isr) < len(p.replicas) for p in t.partitions.values()),
            "internal": t.is_internal,
            "topic_id": str(t.topic_id),
        }
        for t in sorted(admin.cluster(session).topics.values(), key=lambda t: t.name)
        if all_ or not admin.is_hidden(t.name, t.is_internal)
    ]
    columns = ["name", "partitions", "replicas", "under_replicated"]
    session.output.rows(rows, columns, right=columns[1:], empty="no topics yet; `penstock topic create NAME` makes one")


@command(app)
def describe(session: Session, name: Name) -> None:
    """Show a topic's partitions (leader, replicas, in-sync set, offsets) and its own settings."""
    topic = admin.topic(session, name)
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
    configs = admin.describe_configs(session, admin.TOPIC_RESOURCE, name)
    own = {c.name: c.value for c in configs if c.config_source == 1}
    if session.output.as_json:
        session.output.record({"name": name, "topic_id": str(topic.topic_id), "configs": own, "partitions": rows})
        return
    session.output.text(f"{name}  id {topic.topic_id}")
    session.output.text(f"settings: {', '.join(f'{k}={v}' for k, v in sorted(own.items())) or 'all at their defaults'}")
    columns = ["partition", "leader", "replicas", "isr", "start", "end", "records"]
    session.output.rows(rows, columns, right=["partition", "leader", "start", "end", "records"])


@command(app)
def create(
    session: Session,
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-n", help="Partitions; -1: the broker's default.")] = -1,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="Replicas; -1: the broker's default.")] = -1,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is fine.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check, but create nothing.")] = False,
) -> None:
    """Create topics."""
    api = messages.api("create_topics")
    settings = [api.request_struct("CreatableTopicConfig")(name=k, value=v) for k, v in parse_configs(config).items()]
    wanted = [
        api.request_struct("CreatableTopic")(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=settings
        )
        for name in names
    ]
    request = api.Request(topics=wanted, timeout_ms=30_000, validate_only=validate_only)
    answer = session.client.call_controller("create_topics", request)
    done = "would be created" if validate_only else "created"

    def report(row: Any) -> tuple[dict[str, Any], str]:
        shown = {"name": row.name, "partitions": row.num_partitions, "replicas": row.replication_factor}
        return shown, f"{row.name} {done} with {row.num_partitions} partitions, {row.replication_factor} replicas"

    _each(session, answer.topics, report, tolerate=36 if if_not_exists else 0)


@command(app)
def delete(session: Session, names: Names, yes: Yes = False) -> None:
    """Delete topics and all their data."""
    known = admin.cluster(session).topics
    for name in names:
        if name not in known:
            admin.topic(session, name)
    confirm(f"Delete {', '.join(names)} with all data?", yes)
    api = messages.api("delete_topics").load_all_versions()
    states = [api.request_struct("DeleteTopicState")(name=name) for name in names]
    request = api.Request(topics=states, topic_names=names, timeout_ms=30_000)
    answer = session.client.call_controller("delete_topics", request)
    _each(session, answer.responses, lambda row: ({"name": row.name, "deleted": True}, f"{row.name} deleted"))


@command(app)
def alter(
    session: Session,
    name: Name,
    config: Config = None,
    reset: Annotated[
        list[str] | None, typer.Option("--reset", metavar="KEY", help="Back to the default; may be repeated.")
    ] = None,
) -> None:
    """Change a topic's settings."""
    admin.topic(session, name)
    changes: list[tuple[str, int, str | None]] = [(key, 0, value) for key, value in parse_configs(config).items()]
    changes += [(key, 1, None) for key in reset or []]
    if not changes:
        raise usage_error("nothing to change", "--config KEY=VALUE sets, --reset KEY goes back to the default")
    admin.alter_configs(session, admin.TOPIC_RESOURCE, name, changes)
    session.output.result({"name": name, "changed": [key for key, _, _ in changes]}, f"{name} changed")


@command(app, "add-partitions")
def add_partitions(
    session: Session,
    name: Name,
    total: Annotated[int, typer.Argument(help="How many there shall be.", show_default=False)],
) -> None:
    """Grow a topic to TOTAL partitions. Records with keys may land elsewhere from then on."""
    current = len(admin.topic(session, name).partitions)
    if total <= current:
        raise usage_error(
            f"{name} has {current} partitions already", f"name a number above {current}; they cannot be removed"
        )
    api = messages.api("create_partitions")
    wanted = api.CreatePartitionsTopic(name=name, count=total, assignments=None)
    answer = session.client.call_controller("create_partitions", api.Request(topics=[wanted], timeout_ms=30_000))
    _each(
        session, answer.results, lambda row: ({"name": name, "partitions": total}, f"{name} has {total} partitions now")
    )


@command(app)
def trim(
    session: Session,
    name: Name,
    before: Annotated[
        str | None, typer.Option("--before", metavar="WHEN", help="Drop what is older: a time, or 2h, 3d.")
    ] = None,
    offset: Annotated[
        list[str] | None, typer.Option("--offset", metavar="PARTITION:OFFSET", help="Drop below it; repeatable.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Drop everything.")] = False,
    yes: Yes = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset or a time."""
    from penstock.cli.positions import parse_partition_offsets, parse_time

    topic = admin.topic(session, name)
    keys = [(name, index) for index in topic.partitions]
    if sum([before is not None, bool(offset), all_]) != 1:
        raise usage_error("say what to drop", "one of --before WHEN, --offset PARTITION:OFFSET or --all")
    targets: dict[int, int] = {}
    if before is not None:
        moment = parse_time(before)
        ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
        for key, (found, _) in admin.list_offsets(session, dict.fromkeys(keys, moment)).items():
            targets[key[1]] = found if found >= 0 else ends[key][0]
    elif offset:
        targets = parse_partition_offsets(offset, set(topic.partitions))
    else:
        targets = dict.fromkeys(topic.partitions, -1)
    confirm(f"Drop records of {name} below {_shown(targets)}?", yes)
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
    session.output.rows(rows, ["topic", "partition", "start"], right=["partition", "start"])


def _shown(targets: dict[int, int]) -> str:
    return ", ".join(f"{p}:{'end' if t < 0 else t}" for p, t in sorted(targets.items()))


def _each(session: Session, rows: list[Any], report: Any, tolerate: int = 0) -> None:
    """Say how each went; if some failed, say which, and end with the right code."""
    failures = []
    for row in rows:
        if row.error_code and row.error_code != tolerate:
            failures.append(admin.refuse(row.error_code, row.name, row.error_message or None))
        elif row.error_code:
            session.output.result({"name": row.name, "existed": True}, f"{row.name} existed already")
        else:
            session.output.result(*report(row))
    if not failures:
        return
    if len(failures) < len(rows):
        for failure in failures:
            session.output.note(f"penstock: {failure.message}")
        raise UserError(f"{len(failures)} of {len(rows)} failed", code=ExitCode.INCOMPLETE)
    raise failures[0]
