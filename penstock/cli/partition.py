"""`penstock partition`: move replicas (by plan or automatically), elect leaders, see what is going on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import suggest
from penstock.cli.options import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.brokers import known_broker, log_folders, move_to_folder, replicas_on
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.operate.group_reset import chosen_partitions
from penstock.operate.reassignment_plan import even_plan
from penstock.operate.reassignments import (
    Plan,
    current_replicas,
    elect_leaders,
    moving,
    submit,
    throttle_moves,
    unthrottle,
    unusual_partitions,
)

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Move partitions between brokers and elect leaders.")


@command(app)
def status(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this one.", autocompletion=suggest.topics)
    ] = None,
) -> None:
    """Show partitions that move, miss replicas, or have no leader."""
    rows = unusual_partitions(session, topic)
    columns = ["topic", "partition", "state", "leader", "replicas", "isr", "adding", "removing"]
    session.output.rows(
        rows, columns, right=["partition", "leader"], empty="all partitions are whole and at their place"
    )


@command(app)
def elect(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this topic.", autocompletion=suggest.topics)
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Only these; may be repeated.")] = None,
    unclean: Annotated[bool, typer.Option("--unclean", help="Any live replica may lead: records may be lost.")] = False,
    yes: Yes = False,
) -> None:
    """Give leadership back to the preferred replicas (the first of each list)."""
    if partition and topic is None:
        raise usage_error("--partition needs --topic", "for example --topic orders --partition 0")
    if unclean:
        confirm("Elect leaders that may miss records?", yes)
    rows = elect_leaders(session, topic, partition, unclean)
    session.output.rows(
        rows, ["topic", "partition", "result"], right=["partition"], empty="every leader is the preferred one"
    )
    if any(row["result"] not in ("elected", "already preferred") for row in rows):
        raise UserError("some partitions got no new leader", code=ExitCode.INCOMPLETE)


@command(app)
def reassign(
    session: Session,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these; all if none.", autocompletion=suggest.topics)
    ] = None,
    brokers: Annotated[str | None, typer.Option("--brokers", help="Spread evenly over these ids, e.g. 1,2,4.")] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="A plan in the format of kafka-reassign-partitions.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call off what is moving.")] = False,
    throttle: Annotated[int, typer.Option("--throttle", min=0, help="Bytes per second and broker; 0: none.")] = 0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show progress until it is done.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    yes: Yes = False,
) -> None:
    """Move partitions: by a plan, or evenly over brokers with as few moves as possible. The plan is shown first."""
    if cancel:
        called_off = moving(session)
        submit(session, dict.fromkeys(called_off))
        session.output.result({"cancelled": len(called_off)}, f"{len(called_off)} moves called off")
        return
    view = admin.cluster(session)
    current: Plan = {
        (t.name, index): list(p.replicas)
        for t in view.topics.values()
        for index, p in t.partitions.items()
        if topic is None or t.name in topic
    }
    for name in topic or []:
        admin.topic(session, name)
    if plan is not None:
        target = _read_plan(plan)
        current = current_replicas(session, target)
    else:
        target = even_plan(current, _broker_ids(brokers, set(view.brokers)))
    changed = {key: replicas for key, replicas in target.items() if current.get(key) != replicas}
    rows = [
        {"topic": name, "partition": index, "from": current.get((name, index)), "to": replicas}
        for (name, index), replicas in sorted(changed.items())
    ]
    session.output.rows(rows, ["topic", "partition", "from", "to"], right=["partition"], empty="nothing has to move")
    if dry_run or not changed:
        return
    confirm(f"Move {len(changed)} partitions?", yes)
    if throttle:
        throttle_moves(session, changed, current, throttle)
    try:
        submit(session, changed)
        if wait:
            _watch(session, set(changed))
    finally:
        if throttle and wait:
            unthrottle(session, {name for name, _ in changed})
    if not session.output.as_json:
        session.output.text(f"{len(changed)} partitions moved" if wait else f"{len(changed)} partitions are moving")


@command(app, "move-folder")
def move_folder(
    session: Session,
    broker: Annotated[int, typer.Option("--broker", help="The id of the broker whose folders these are.")],
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="One of its log.dirs.")],
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="What to move; may be repeated."),
    ],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show progress until it is done.")] = True,
) -> None:
    """Move replicas of one broker between its log folders, while it serves them."""
    known_broker(session, broker)
    folders = [row["folder"] for row in log_folders(session, broker)]
    if to not in folders:
        raise not_found("log folder", to, folders)
    lie_in = replicas_on(session, broker)
    keys = [key for key in chosen_partitions(session, topic) if key in lie_in]
    if not keys:
        raise UserError(f"broker {broker} has no replica of these", code=ExitCode.NOT_FOUND)
    keys = [key for key in keys if lie_in[key] != to]
    rows = move_to_folder(session, broker, keys, to) if keys else []
    columns = ["topic", "partition", "broker", "to", "result"]
    session.output.rows(rows, columns, right=columns[1:3], empty="they lie there already")
    failed = [row for row in rows if row["result"] != "moving"]
    if failed:
        code = ExitCode.REFUSED if len(failed) == len(rows) else ExitCode.INCOMPLETE
        raise UserError(f"{len(failed)} of {len(rows)} replicas do not move", code=code)
    if wait:
        with session.output.progress("moving", len(keys)) as progress:
            while left := [key for key in keys if replicas_on(session, broker).get(key) != to]:
                progress.update(len(keys) - len(left))
                time.sleep(0.2)


def _broker_ids(text: str | None, live: set[int]) -> list[int]:
    if text is None:
        return sorted(live)
    try:
        wanted = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise usage_error(f"--brokers {text!r} is not a list of ids", "for example 1,2,4") from None
    unknown = [node for node in wanted if node not in live]
    if unknown:
        raise UserError(
            f"broker {unknown[0]} is not live", f"live: {', '.join(map(str, sorted(live)))}", ExitCode.NOT_FOUND
        )
    return wanted


def _read_plan(path: Path) -> Plan:
    if not path.is_file():
        raise UserError(f"there is no file {path}", code=ExitCode.NOT_FOUND)
    try:
        rows = json.loads(path.read_text())["partitions"]
        if any(folder != "any" for row in rows for folder in row.get("log_dirs", [])):
            raise usage_error(f"{path} names log_dirs", "`penstock partition move-folder` moves between folders")
        return {(row["topic"], int(row["partition"])): [int(node) for node in row["replicas"]] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        hint = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise usage_error(f"{path} is no plan: {error!r}", hint) from None


def _watch(session: Session, keys: set[tuple[str, int]]) -> None:
    with session.output.progress("moving", len(keys)) as progress:
        while left := keys & set(moving(session)):
            progress.update(len(keys) - len(left))
            time.sleep(0.5)
        progress.update(len(keys))
