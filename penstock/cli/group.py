"""`penstock group`: who consumes what, how far behind, and where it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import suggest
from penstock.cli.options import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, not_among, usage_error
from penstock.operate.group_reset import chosen_partitions, plan_reset
from penstock.operate.groups import (
    all_groups,
    commit_offsets,
    delete_group,
    delete_offsets,
    describe_members,
    insist_on_no_members,
    known_group,
    lag_rows,
    rebalance_journal,
)
from penstock.operate.positions import format_time

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Consumer groups: members, lag, offsets, rebalances.")

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead", "Empty")

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=suggest.groups)]


@command(app, "list")
def list_groups(
    session: Session, state: Annotated[str | None, typer.Option("--state", help="Only groups in this state.")] = None
) -> None:
    """List groups with their state and type."""
    if state is not None and state.lower() not in map(str.lower, GROUP_STATES):
        raise not_among("--state", state, GROUP_STATES)
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
    for name in names:
        delete_group(session, name)
        session.output.result({"group": name, "deleted": True}, f"{name} deleted")


@command(app, "delete-offsets")
def delete_some_offsets(
    session: Session,
    name: Group,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Of these; may be repeated.")
    ],
    yes: Yes = False,
) -> None:
    """Forget a group's offsets of single topics or partitions, which it must not be reading now."""
    known_group(session, name)
    keys = chosen_partitions(session, topic)
    confirm(f"Forget {len(keys)} offsets of {name}?", yes)
    rows = delete_offsets(session, name, keys)
    session.output.rows(rows, ["group", "topic", "partition", "result"], right=["partition"])
    failed = sum(row["result"] != "deleted" for row in rows)
    if failed:
        code = ExitCode.REFUSED if failed == len(rows) else ExitCode.INCOMPLETE
        raise UserError(f"{failed} of {len(rows)} offsets were not deleted", "stop the group's consumers first", code)


@command(app)
def reset(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP…", show_default=False, autocompletion=suggest.groups)
    ] = None,
    all_groups_: Annotated[bool, typer.Option("--all-groups", help="Every group that has no members now.")] = False,
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
    """Move the offsets of groups. The plan is shown before it is done; the groups must have no members."""
    if sum([to is not None, shift is not None, from_file is not None]) != 1:
        raise usage_error("say where to", "one of --to WHERE, --shift N or --from-file FILE")
    if bool(names) == all_groups_:
        raise usage_error("say which groups", "name them, or take --all-groups")
    groups = names or _idle_groups(session, topic)
    plans = {name: plan_reset(session, name, topic, to, shift, from_file) for name in groups}
    rows = [
        {
            "group": name,
            "topic": t,
            "partition": p,
            "from": old,
            "to": new,
            "change": None if old is None else new - old,
        }
        for name, plan in plans.items()
        for (t, p), (old, new) in sorted(plan.items())
    ]
    columns = ["group", "topic", "partition", "from", "to", "change"]
    session.output.rows(rows, columns, right=columns[2:], empty="there is no group to move")
    if dry_run or not rows:
        return
    for name in groups:
        insist_on_no_members(session, name)
    confirm(f"Move {len(rows)} offsets of {', '.join(groups)}?", yes)
    for name, plan in plans.items():
        commit_offsets(session, name, {key: new for key, (_, new) in plan.items()})
        if not session.output.as_json:
            session.output.text(f"{len(plan)} offsets of {name} moved")


def _idle_groups(session: Session, topics: list[str] | None) -> list[str]:
    """Groups without members that have an offset to move, in the chosen topics if some are."""
    chosen = set(chosen_partitions(session, topics)) if topics else None
    idle = sorted(name for name, listed in all_groups(session).items() if listed.group_state in ("Empty", "Dead"))
    offsets = {name: set(admin.committed_offsets(session, name)) for name in idle}
    return [name for name in idle if (offsets[name] if chosen is None else offsets[name] & chosen)]


@command(app)
def rebalances(
    session: Session,
    name: Group,
    count: Annotated[int, typer.Option("--count", "-n", help="How many, newest last.")] = 20,
) -> None:
    """Show a group's last rebalances: why, who, how long, how many partitions moved."""
    rows = rebalance_journal(session, name)[-count:]
    if not rows:
        known_group(session, name)
    for row in rows:
        row["when"] = format_time(row["at_ms"])
        row["cause"] = ", ".join(f"{cause['member']} {cause['kind']}".strip() for cause in row["causes"])
    columns = ["when", "generation", "cause", "members", "duration_ms", "partitions", "moved"]
    session.output.rows(rows, columns, right=columns[3:], empty=f"{name} has not rebalanced yet")
