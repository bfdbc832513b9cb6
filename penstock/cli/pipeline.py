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
from penstock.cli.output import Output
from penstock.cli.session import Session
from penstock.cli.topic import Yes, confirm
from penstock.cli.typed import command, local_command, new_app
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.operate.pipelines import list_row, log_line, status_rows

if TYPE_CHECKING:
    from penstock.pipelines.control.store import Applied
    from penstock.pipelines.spec import PipelineSpec

app = new_app("Data pipelines on Spark: validate, run, apply, watch.")

File = Annotated[Path, typer.Argument(help="A pipeline in YAML, SQL or Python, or Spark's own spark-pipeline.yml.")]
Name = Annotated[str, typer.Argument(help="An applied pipeline.")]
StateDir = Annotated[str, typer.Option(help="Where checkpoints live: a folder, or any path that Spark can write.")]
Reset = Annotated[bool, typer.Option("--reset", help="Forget what was read; sinks get everything again.")]
Backfill = Annotated[bool, typer.Option("--backfill", help="Read from the beginning and rewrite the tables.")]
Master = Annotated[str | None, typer.Option(help="Where Spark runs, for example spark://host:7077.")]


def load(path: Path) -> PipelineSpec:
    from penstock.pipelines.load import load as load_spec
    from penstock.pipelines.spec import SpecError

    try:
        return load_spec(path)
    except SpecError as error:
        code = ExitCode.NOT_FOUND if not path.is_file() else ExitCode.REFUSED
        raise UserError(str(error), "examples/pipelines shows one of each kind", code) from None


def insist_on_spark() -> None:
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        raise UserError("pipelines need Spark", "install it with: pip install 'penstock[spark]'")


def _session_for(spec: PipelineSpec, master: str | None = None) -> Any:
    from penstock.pipelines.secrets import resolve
    from penstock.pipelines.spark.session import session

    insist_on_spark()
    settings = {"spark.driver.memory": "1g", **resolve(spec.settings.spark)}
    return session(f"penstock {spec.name}", master=master or spec.settings.master, settings=settings, log_level="off")


def _place(session: Session, state_dir: str) -> Any:
    from penstock.pipelines.execution import Place

    return Place(session.properties, state_dir)


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
    spark = _session_for(spec, master)
    try:
        _, prepared = Execution.prepare(spec, spark, _place(session, state_dir), keep=False)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    rows = [
        {"query": item.query.name, "reads": item.query.view, "columns": item.rows.schema.simpleString()}
        for item in prepared
    ]
    session.output.rows(rows, ["query", "reads", "columns"])


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
    spark, place = _session_for(spec, master), _place(session, state_dir)
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
def run(
    session: Session,
    file: File,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="End when all is read.")] = False,
    state_dir: StateDir = "penstock-data/pipelines",
    reset: Reset = False,
    backfill: Backfill = False,
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
    place = _place(session, state_dir)
    spark = _session_for(spec, master)
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
def apply(session: Session, file: File, reset: Reset = False, backfill: Backfill = False) -> None:
    """Store a pipeline in the cluster; a runner starts it, or restarts it if it has changed."""
    from penstock.pipelines.control.store import PipelineStore
    from penstock.pipelines.spec import SpecError

    spec = load(file)
    try:
        asked = uuid.uuid4().hex if reset or backfill else None
        applied = PipelineStore(session.client).apply(spec, reset=asked, backfill=backfill)
    except SpecError as error:
        raise UserError(str(error), None, ExitCode.REFUSED) from None
    row = {"name": applied.name, "generation": applied.generation}
    session.output.result(row, f"applied {applied.name}, generation {applied.generation}")


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
        session.output.note(f"nothing is known of {name}")


@local_command(app)
def test(
    output: Output, file: File, cases: Annotated[Path, typer.Argument(help="Given records and expected rows.")]
) -> None:
    """Run a pipeline on given records, without a cluster, and compare what its sinks get."""
    from penstock.pipelines.spec import SpecError
    from penstock.pipelines.trial import run_cases

    spec = load(file)
    try:
        results = run_cases(spec, _session_for(spec), cases)
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
) -> None:
    """Run applied pipelines, sharing them with the other runners of the cluster. Prints `ready:` when it has joined."""
    from penstock.pipelines.control.metrics import RunnerMetrics
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
    Runner(session.properties, state_dir, metrics, allowed).run(stopping.is_set, ready)
