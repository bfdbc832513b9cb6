"""`penstock pipeline`: declare, try, run and watch data pipelines. What runs where is in penstock.pipelines."""

from __future__ import annotations

import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import pipeline_views as views
from penstock.cli.options import Yes, confirm
from penstock.cli.output import Output
from penstock.cli.pipeline_base import (
    Backfill,
    DiscardState,
    File,
    Master,
    Name,
    Reset,
    StateDir,
    app,
    insist_on_spark,
    load,
    place_of,
    session_for,
)
from penstock.cli.session import Session
from penstock.cli.typed import command, local_command
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.operate.pipelines import list_row, log_line, status_rows

if TYPE_CHECKING:
    from penstock.pipelines.control.store import Applied


@local_command(app)
def validate(output: Output, file: File) -> None:
    """Check a pipeline without Spark and without a cluster."""
    from penstock.pipelines.load import is_spark_declarative

    if is_spark_declarative(file):
        raise usage_error("Spark checks its own pipeline files", f"penstock pipeline dry-run {file}")
    spec = load(file)
    row = {"name": spec.name, "sources": list(spec.sources), "views": list(spec.views), "sinks": list(spec.sinks)}
    output.result(row, f"{spec.name}: {len(spec.sources)} sources, {len(spec.views)} views, {len(spec.sinks)} sinks")


@command(app, "dry-run")
def dry_run(
    session: Session, file: File, state_dir: StateDir = "penstock-data/pipelines", master: Master = None
) -> None:
    """Build the whole query graph on Spark, check it against topics, tables and checkpoints, and run nothing."""
    from penstock.pipelines.execution import Execution
    from penstock.pipelines.load import is_spark_declarative
    from penstock.pipelines.spec import SpecError

    if is_spark_declarative(file):
        _declarative(session, file, dry=True)
        return
    spec = load(file)
    spark = session_for(spec, master)
    try:
        _, prepared = Execution.prepare(spec, spark, place_of(session, state_dir), keep=False)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    rows = [
        {"query": item.query.name, "reads": item.query.view, "columns": item.rows.schema.simpleString()}
        for item in prepared
    ]
    session.output.rows(rows, ["query", "reads", "columns"])


@command(app)
def run(
    session: Session,
    file: File,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="End when all is read.")] = False,
    state_dir: StateDir = "penstock-data/pipelines",
    reset: Reset = False,
    backfill: Backfill = False,
    discard_state: DiscardState = False,
    master: Master = None,
) -> None:
    """Run a pipeline in the foreground with a live view. Ctrl-C stops it; the next run goes on from there."""
    from penstock.pipelines import ending
    from penstock.pipelines.execution import PipelineFailed
    from penstock.pipelines.execution import run as run_pipeline
    from penstock.pipelines.load import is_spark_declarative
    from penstock.pipelines.spec import SpecError

    if is_spark_declarative(file):
        _declarative(session, file, dry=False, until_caught_up=until_caught_up)
        return
    spec = load(file)
    place = place_of(session, state_dir)
    spark = session_for(spec, master)
    _one_of(reset, backfill, discard_state)
    if discard_state:
        ending.fence(place.client(spec), spec.name)
        try:
            lost = ending.discard_state(place.client(spec), spec.name, place.state_of(spec, spark))
        except SpecError as error:
            raise UserError(str(error), None, ExitCode.REFUSED) from None
        session.output.note(f"{spec.name} goes on where it was; lost: {'; '.join(lost) or 'nothing, it had no state'}")
    if reset or backfill:
        ending.fence(place.client(spec), spec.name)
        ending.reset(place.client(spec), spec.name, place.state_of(spec, spark), backfill=backfill)
    stopping = _stop_signals()
    try:
        with views.live_view(session.output, spec.name) as on_progress:
            run_pipeline(
                spec,
                spark,
                place,
                until_caught_up=until_caught_up,
                on_progress=on_progress,
                should_stop=stopping.is_set,
            )
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    except PipelineFailed as error:
        hint = "nothing of the failed batch was written; the next run starts with it"
        raise UserError(f"{spec.name} failed: {error}", hint) from None


def _declarative(session: Session, file: Path, *, dry: bool, until_caught_up: bool = True) -> None:
    from penstock.pipelines import declarative

    insist_on_spark()
    stopping = _stop_signals()
    try:
        declarative.run(
            file, session.properties, dry=dry, continuously=not (dry or until_caught_up), should_stop=stopping.is_set
        )
    except declarative.DeclarativeError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None


def _stop_signals() -> threading.Event:
    """Set by Ctrl-C or SIGTERM; a second one ends at once."""
    stopping = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stopping


@command(app)
def apply(
    session: Session,
    file: File,
    reset: Reset = False,
    backfill: Backfill = False,
    discard_state: DiscardState = False,
) -> None:
    """Store a pipeline in the cluster; a runner starts it, or restarts it if it has changed."""
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.spec import SpecError

    spec = load(file)
    try:
        _one_of(reset, backfill, discard_state)
        asked = uuid.uuid4().hex if reset or backfill or discard_state else None
        store = PipelineStore(session.client)
        applied = store.apply(spec, reset=asked, backfill=backfill, discard_state=discard_state)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    row = {"name": applied.name, "generation": applied.generation}
    session.output.result(row, f"applied {applied.name}, generation {applied.generation}")


def _one_of(reset: bool, backfill: bool, discard_state: bool) -> None:
    if discard_state and (reset or backfill):
        raise usage_error("--discard-state keeps the offsets, --reset and --backfill forget them", "give one of them")


@command(app, "list")
def list_pipelines(session: Session) -> None:
    """The applied pipelines."""
    from penstock.pipelines.control import events
    from penstock.pipelines.control.store import PipelineStore

    states = events.latest_states(session.client)
    rows = [list_row(item, states.get(name)) for name, item in PipelineStore(session.client).all().items()]
    session.output.rows(
        rows, ["name", "desired", "state", "generation", "error"], right=["generation"], empty="no pipeline is applied"
    )


@command(app)
def status(
    session: Session, name: Annotated[str | None, typer.Argument(help="One pipeline; else all.")] = None
) -> None:
    """How the applied pipelines do: rows, lag, batch times, state, watermark, errors."""
    from penstock.pipelines.control import events
    from penstock.pipelines.control.store import PipelineStore

    applied = PipelineStore(session.client).all()
    if name is not None:
        _known(applied, name)
        applied = {name: applied[name]}
    states = events.latest_states(session.client)
    rows = [row for item in applied.values() for row in status_rows(item, states.get(item.name))]
    session.output.rows(rows, views.STATUS_COLUMNS, right=views.STATUS_NUMBERS, empty="no pipeline is applied")


def _known(applied: dict[str, Applied], name: str) -> Applied:
    if name not in applied:
        raise not_found("pipeline", name, applied)
    return applied[name]


@command(app)
def stop(session: Session, name: Name) -> None:
    """Stop an applied pipeline; `restart` lets it go on from where it was."""
    _change(session, name, "stopped", "stops")


@command(app)
def restart(session: Session, name: Name) -> None:
    """Start an applied pipeline, or start it again."""
    _change(session, name, "running", "starts")


def _change(session: Session, name: str, desired: Any, verb: str) -> None:
    from penstock.pipelines.control.store import Conflict, PipelineStore

    store = PipelineStore(session.client)
    try:
        changed = store.change(_known(store.all(), name), desired)
    except Conflict as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    session.output.result({"name": name, "desired": desired, "generation": changed.generation}, f"{name} {verb}")


@command(app)
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Stop and forget an applied pipeline: what it was about to write is committed if that was decided, else undone.

    What it wrote stays. Its runner removes its checkpoints. A deletion that was interrupted may be repeated.
    """
    from penstock.operate.pipelines import delete as delete_pipeline

    confirm(f"Delete the pipeline {name} and end what it has open?", yes)
    ended = delete_pipeline(session, name)
    told = f", {ended} open transactions are ended" if ended else ""
    session.output.result(
        {"name": name, "deleted": True, "ended_transactions": ended}, f"{name} is deleted{told}; its output stays"
    )


@command(app)
def logs(
    session: Session,
    name: Name,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many.")] = 100,
    progress: Annotated[bool, typer.Option("--progress", help="Also every batch.")] = False,
) -> None:
    """What a pipeline said: its states, errors and log lines."""
    from penstock.pipelines.control import events

    kinds = {events.STATE, events.LOG} | ({events.PROGRESS} if progress else set())
    found = [event for event in events.recent(session.client, name) if event["kind"] in kinds]
    for event in found[-lines:]:
        if session.output.as_json:
            session.output.record(event)
        else:
            session.output.text(log_line(event))
    if not found:
        from penstock.pipelines.control.store import PipelineStore

        _known(PipelineStore(session.client).all(), name)
        session.output.note(f"{name} has said nothing yet")


@local_command(app)
def test(
    output: Output, file: File, cases: Annotated[Path, typer.Argument(help="Given records and expected rows.")]
) -> None:
    """Run a pipeline on given records, without a cluster, and compare what its sinks get."""
    from penstock.pipelines.spec import SpecError
    from penstock.pipelines.trial import read_cases, run_case

    spec = load(file)
    if not cases.is_file():
        raise UserError(f"there is no file {cases}", code=ExitCode.NOT_FOUND)
    try:
        given = read_cases(spec, cases)  # Spark takes a while to start: mistakes are told before
        spark = session_for(spec)
        results = [run_case(spec, spark, case) for case in given]
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    for result in results:
        output.result(
            {"case": result.name, "passed": not result.differences, "differences": result.differences},
            f"{'ok    ' if not result.differences else 'FAILED'} {result.name}"
            + "".join(f"\n       {line}" for line in result.differences),
        )
    if any(result.differences for result in results):
        raise typer.Exit(ExitCode.FAILED)


@command(app)
def runner(
    session: Session,
    state_dir: StateDir = "penstock-data/pipelines",
    metrics_port: Annotated[int, typer.Option(help="Prometheus metrics on this port; 0 for none.")] = 0,
    env_prefix: Annotated[
        str, typer.Option(help="${env:NAME} is looked up for names that begin so; others are refused.")
    ] = "PENSTOCK_",
    secrets_dir: Annotated[
        str | None, typer.Option(help="${file:PATH} is looked up inside this folder; without it no file is.")
    ] = None,
    open_connector: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A console's editors may apply pipelines with this connector; repeat it."),
    ] = None,
    open_secret: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="… and with these secrets: env:NAME_*, file:PATH; repeat it."),
    ] = None,
) -> None:
    """Run applied pipelines, sharing them with the other runners of the cluster. Prints `ready:` when it has joined."""
    from penstock.pipelines.control.metrics import RunnerMetrics
    from penstock.pipelines.control.registration import Opened
    from penstock.pipelines.control.runner import Runner
    from penstock.pipelines.secrets import Allowed, allow
    from penstock.pipelines.storage import is_local

    insist_on_spark()
    metrics = RunnerMetrics()
    if metrics_port:
        metrics.serve(metrics_port)
    if is_local(state_dir):
        state_dir = str(Path(state_dir).absolute())
    stopping = _stop_signals()

    def ready() -> None:
        sys.stdout.write(f"ready: runs pipelines of {session.bootstrap}\n")
        sys.stdout.flush()

    allowed = Allowed(env_prefix, secrets_dir)
    allow(allowed)
    opened = Opened(tuple(open_connector or ()), tuple(open_secret or ())) if open_connector or open_secret else None
    Runner(session.properties, state_dir, metrics, allowed, opened).run(stopping.is_set, ready)


from penstock.cli import pipeline_change  # noqa: E402, F401 - its commands come last
