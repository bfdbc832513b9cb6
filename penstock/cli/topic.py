"""`penstock topic`: list, describe, create, alter, delete, add-partitions, trim; import, export, copy: transfer.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.options import Yes, confirm
from penstock.cli.transfer import register as register_transfers
from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.configs import check_names
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.machines import by_machine, close_together, machines
from penstock.operate.topics import (
    create_topics,
    delete_records,
    delete_topics,
    grow_topic,
    offsets_before,
    partition_rows,
    topic_rows,
)

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("List, describe, create, change, import, export and delete topics.")
register_transfers(app)

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=suggest.topics)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", show_default=False, autocompletion=suggest.topics)]
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="Also internal topics, whose names start with __.")]


def parse_configs(pairs: list[str] | None) -> dict[str, str]:
    configs = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise usage_error(f"--config {pair!r} is not KEY=VALUE", "for example --config retention.ms=3600000")
        configs[key.strip()] = value.strip()
    return configs


def parse_assignment(words: list[str]) -> dict[int, list[int]]:
    """{partition: broker ids} of words like 0:1,2."""
    placed: dict[int, list[int]] = {}
    for word in words:
        partition, colon, nodes = word.partition(":")
        try:
            if not colon or int(partition) in placed:
                raise ValueError
            placed[int(partition)] = [int(node) for node in nodes.split(",")]
        except ValueError:
            hint = "for example --assign 0:1,2 --assign 1:2,3, each partition once"
            raise usage_error(f"--assign {word!r} is not PARTITION:ID,ID…", hint) from None
    return placed


@command(app, "list")
def list_topics(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC…]",
            help="Only these: names, or regular expressions that begin with ^.",
            show_default=False,
            autocompletion=suggest.topics,
        ),
    ] = None,
    all_: All = False,
) -> None:
    """List topics with partitions, replicas, and how many of those are missing."""
    rows = topic_rows(session, hidden=all_ or bool(names))
    if names:
        chosen = {view.name for view in admin.matching(session, names)}
        rows = [row for row in rows if row["name"] in chosen]
    columns = ["name", "partitions", "replicas", "under_replicated"]
    session.output.rows(rows, columns, right=columns[1:], empty="no topics yet; `penstock topic create NAME` makes one")


@command(app)
def describe(session: Session, name: Name) -> None:
    """Show a topic's partitions (leader, replicas, in-sync set, offsets) and its own settings."""
    topic = admin.topic(session, name)
    rows = partition_rows(session, topic)
    configs = admin.describe_configs(session, admin.TOPIC_RESOURCE, name)
    own = {c.name: c.value for c in configs if c.config_source == 1}
    machine_of = machines(session)
    if session.output.as_json:
        known = {"machines": by_machine(machine_of)} if machine_of else {}
        session.output.record(
            {"name": name, "topic_id": str(topic.topic_id), "configs": own, **known, "partitions": rows}
        )
        return
    session.output.text(f"{name}  id {topic.topic_id}")
    session.output.text(f"settings: {', '.join(f'{k}={v}' for k, v in sorted(own.items())) or 'all at their defaults'}")
    columns = ["partition", "leader", "replicas", "isr", "start", "end", "records"]
    session.output.rows(rows, columns, right=["partition", "leader", "start", "end", "records"])
    for machine, brokers in by_machine(machine_of).items():
        session.output.text(f"machine {machine}: brokers {', '.join(map(str, brokers))}")
    together = [row["partition"] for row in rows if close_together(row["replicas"], machine_of)]
    if together:
        session.output.text(f"several copies on one machine: partitions {', '.join(map(str, together))}")


@command(app)
def create(
    session: Session,
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-n", help="Partitions; -1: the broker's default.")] = -1,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="Replicas; -1: the broker's default.")] = -1,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--assign",
            metavar="PARTITION:ID,ID…",
            help="Where a partition's replicas go; repeat it for each partition.",
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is fine.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check, but create nothing.")] = False,
) -> None:
    """Create topics."""
    placed = parse_assignment(assign) if assign else None
    if placed is not None and (partitions, replicas) != (-1, -1):
        raise usage_error("--assign says how many partitions and replicas there are", "leave out the numbers")
    answers = create_topics(session, names, partitions, replicas, parse_configs(config), validate_only, placed)
    done = "would be created" if validate_only else "created"

    def report(row: Any) -> tuple[dict[str, Any], str]:
        shown = {"name": row.name, "partitions": row.num_partitions, "replicas": row.replication_factor}
        return shown, f"{row.name} {done} with {row.num_partitions} partitions, {row.replication_factor} replicas"

    _each(session, answers, report, tolerate=36 if if_not_exists else 0)


@command(app)
def delete(session: Session, names: Names, yes: Yes = False) -> None:
    """Delete topics and all their data."""
    known = admin.cluster(session).topics
    for name in names:
        if name not in known:
            admin.topic(session, name)
    confirm(f"Delete {', '.join(names)} with all data?", yes)
    _each(
        session, delete_topics(session, names), lambda row: ({"name": row.name, "deleted": True}, f"{row.name} deleted")
    )


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
    check_names(session, admin.TOPIC_RESOURCE, name, reset or [])  # a broker takes the deletion of any name
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
    grow_topic(session, name, total)
    session.output.result({"name": name, "partitions": total}, f"{name} has {total} partitions now")


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
    from penstock.operate.positions import parse_partition_offsets, parse_time

    topic = admin.topic(session, name)
    if sum([before is not None, bool(offset), all_]) != 1:
        raise usage_error("say what to drop", "one of --before WHEN, --offset PARTITION:OFFSET or --all")
    targets: dict[int, int] = {}
    if before is not None:
        targets = offsets_before(session, topic, parse_time(before))
    elif offset:
        targets = parse_partition_offsets(offset, set(topic.partitions), name)
    else:
        targets = dict.fromkeys(topic.partitions, -1)
    confirm(f"Drop records of {name} below {_shown(targets)}?", yes)
    rows = delete_records(session, name, targets)
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
