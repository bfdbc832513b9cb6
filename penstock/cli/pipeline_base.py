"""What the commands of `penstock pipeline` share: options, the file that is read, the Spark session, the place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import Session
from penstock.cli.typed import new_app
from penstock.operate.errors import ExitCode, UserError

if TYPE_CHECKING:
    from penstock.pipelines.spec import PipelineSpec

app = new_app("Data pipelines on Spark: validate, run, apply, watch.")

File = Annotated[Path, typer.Argument(help="A pipeline in YAML, SQL or Python, or Spark's own spark-pipeline.yml.")]
Name = Annotated[str, typer.Argument(help="An applied pipeline.")]
StateDir = Annotated[str, typer.Option(help="Where checkpoints live: a folder, or any path that Spark can write.")]
Reset = Annotated[bool, typer.Option("--reset", help="Forget what was read; sinks get everything again.")]
Backfill = Annotated[bool, typer.Option("--backfill", help="Read from the beginning and rewrite the tables.")]
DiscardState = Annotated[
    bool,
    typer.Option("--discard-state", help="Go on at the same offsets without state; says what is lost."),
]
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


def session_for(spec: PipelineSpec, master: str | None = None) -> Any:
    from penstock.pipelines.secrets import resolve
    from penstock.pipelines.spark.session import session
    from penstock.pipelines.spec import SpecError

    insist_on_spark()
    settings = {"spark.driver.memory": "1g", **resolve(spec.settings.spark)}
    try:
        return session(
            f"penstock {spec.name}",
            master=master or spec.settings.master,
            settings=settings,
            log_level="off",
            requirements=spec.settings.requirements,
        )
    except SpecError as error:  # a package that cannot be had
        raise UserError(str(error), "pip takes such a line here, too: try it there", ExitCode.REFUSED) from None


def place_of(session: Session, state_dir: str) -> Any:
    from penstock.pipelines.execution import Place

    return Place(session.properties, state_dir)
