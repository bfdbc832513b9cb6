"""`penstock pipeline diff | backfill | compare | repoint`: a pipeline changes without fear."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Yes, confirm
from penstock.cli.pipeline_base import File, Master, Name, StateDir, app, load, place_of, session_for
from penstock.cli.session import Session
from penstock.cli.typed import command
from penstock.operate.errors import ExitCode, UserError


@command(app)
def diff(session: Session, file: File, state_dir: StateDir = "penstock-data/pipelines", master: Master = None) -> None:
    """What applying a pipeline would change, and which offsets and state its checkpoints would lose. Writes nothing."""
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.difference import spec_changes, state_changes
    from penstock.pipelines.execution import Execution
    from penstock.pipelines.spec import SpecError

    spec = load(file)
    applied = PipelineStore(session.client).all().get(spec.name)
    changes = spec_changes({} if applied is None else applied.spec, spec.to_data())
    spark, place = session_for(spec, master), place_of(session, state_dir)
    try:
        now = Execution(spec, spark, place, keep=False).fingerprints()
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    rows = [{"what": item.place, "before": item.before, "after": item.after} for item in changes]
    for query in state_changes(place.state_of(spec, spark), now):
        goes_on = query.reason or "goes on where it was"
        lost = f"; lost: {'; '.join(query.lost)}" if query.lost else ""
        rows.append({"what": f"checkpoint of {query.query}", "before": "", "after": f"{goes_on}{lost}"})
    session.output.rows(rows, ["what", "before", "after"])


@command(app)
def backfill(
    session: Session,
    file: File,
    since: Annotated[str, typer.Option("--from", help="Records from this time on: 2026-11-01T12:00:00, 7d, …")],
    until: Annotated[str, typer.Option("--to", help="Up to this time, not including it.")],
    suffix: Annotated[str, typer.Option(help="Write to TOPIC and this instead of TOPIC, for example .v2.")] = "",
    state_dir: StateDir = "penstock-data/pipelines",
    master: Master = None,
) -> None:
    """Put the records between two times through a pipeline once more, as a batch job beside whatever runs.

    No checkpoint is read or changed. Aggregates see the records of the stretch alone. The same file and the same two
    times (absolute ones) make the same job: repeated, also after a kill, it writes nothing twice.
    """
    from penstock.operate.positions import parse_time
    from penstock.pipelines.backfill import BackfillFailed, Stretch
    from penstock.pipelines.backfill import backfill as run_backfill
    from penstock.pipelines.spec import SpecError

    spec = load(file)
    try:
        stretch = Stretch(parse_time(since), parse_time(until))
        given = run_backfill(spec, session_for(spec, master), place_of(session, state_dir), stretch, suffix)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    except BackfillFailed as error:
        raise UserError(f"{spec.name}: {error}", "repair it and give the same command again") from None
    told = ", ".join(f"{name} {count} rows" for name, count in given.items())
    session.output.result({"name": spec.name, "rows": given}, f"{spec.name}: {told}")


@command(app)
def compare(
    session: Session,
    before: Annotated[str, typer.Argument(help="A topic that a pipeline wrote.")],
    after: Annotated[str, typer.Argument(help="The one of a replay, for example its name and .v2.")],
    newest_only: Annotated[bool, typer.Option("--newest-only", help="Only the newest value of a key counts.")] = False,
    show: Annotated[int, typer.Option(min=0, help="So many differences are shown with their values.")] = 10,
) -> None:
    """Compare what a pipeline wrote with what a replay writes: counts, keys that differ, the first differences.

    Records are compared by key, as many of each value, in any order. Ends with code 1 if they differ.
    """
    from penstock.operate import admin
    from penstock.pipelines.compare import compare as compare_topics

    for topic in (before, after):
        admin.topic(session, topic)  # complains if it is not there
    found = compare_topics(session.client, before, after, newest_only=newest_only, most=show)
    row = {
        "equal": found.is_equal,
        "records": list(found.records),
        "keys": list(found.keys),
        "only_before": found.only_before,
        "only_after": found.only_after,
        "differing": found.differing,
        "first": [vars(item) for item in found.first],
    }
    told = [
        f"records {found.records[0]} and {found.records[1]}, keys {found.keys[0]} and {found.keys[1]}: "
        + ("the same" if found.is_equal else f"{found.differing} keys differ")
        + (f", {found.only_before} only in {before}" if found.only_before else "")
        + (f", {found.only_after} only in {after}" if found.only_after else "")
    ]
    for item in found.first:
        told += [f"{'without key' if item.key is None else item.key}: {item.kind}"]
        told += [f"  {topic}: {text}" for topic, text in ((before, item.before), (after, item.after)) if text]
    session.output.result(row, "\n".join(told))
    if not found.is_equal:
        raise typer.Exit(ExitCode.FAILED)


@command(app)
def repoint(
    session: Session,
    name: Name,
    suffix: Annotated[str, typer.Option(help="What the new topics have behind the old names, for example .v2.")],
    groups: Annotated[bool, typer.Option("--groups", help="Also move other groups that have read all.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Yes = False,
) -> None:
    """Let a stopped pipeline write to TOPIC and the suffix from now on, and let whoever reads TOPIC read that.

    Pipelines that read it must be stopped and have read it to its end: they go on at the end of the new topic, without
    what they remember. Groups outside are shown with where they would go on; those with records left are not moved.
    """
    from penstock.operate.repoint import plan_repoint
    from penstock.operate.repoint import repoint as do_repoint
    from penstock.pipelines.spec import SpecError

    plan = plan_repoint(session, name, suffix)
    rows = [{"what": f"{name} writes", "from": old, "to": new} for old, new in plan.topics.items()]
    for reader, begins in plan.begins.items():
        rows += [{"what": f"{reader} reads", "from": "", "to": f"{new} from {where}"} for new, where in begins.items()]
    for move in plan.groups:
        offsets = {index: offset for (_, index), offset in move.offsets.items()}
        to = f"not moved: {move.left} records left" if move.left else f"{move.topic} from {offsets}"
        rows.append({"what": f"group {move.group}", "from": "", "to": to})
    session.output.rows(rows, ["what", "from", "to"])
    if dry_run:
        return
    confirm(f"Re-point {', '.join(plan.specs)}?", yes)
    try:
        do_repoint(session, plan, groups=groups)
    except SpecError as error:
        raise UserError(str(error), "repeat this: what is re-pointed already stays so", ExitCode.REFUSED) from None
    session.output.note(f"re-pointed: {', '.join(plan.specs)}; they start now")
