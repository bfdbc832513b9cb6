"""`penstock log`: what lies in segment files, indexes and snapshots on this machine's disk, and what is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.typed import local_command, new_app
from penstock.operate.errors import ExitCode, UserError, usage_error

if TYPE_CHECKING:
    from penstock.cli.output import Output

app = new_app("Look into and verify segment files on disk; accept that a disk is lost.")

Target = Annotated[
    Path, typer.Argument(metavar="PATH", help="A file, a partition's folder or a log directory.", show_default=False)
]


def _existing(path: Path) -> Path:
    if not path.exists():
        raise UserError(f"there is no file or folder {path}", code=ExitCode.NOT_FOUND)
    if not _holds_a_log(path):
        raise usage_error(
            f"{path} holds no log", "name a segment, a partition's folder like orders-0, or a log directory"
        )
    return path


def _holds_a_log(path: Path) -> bool:
    from penstock.log.files import PARTITION_METADATA, offset_of
    from penstock.log.log_directory import META_PROPERTIES, partition_of

    if not path.is_dir():
        name = path.name
        return (
            offset_of(name) is not None or name.endswith("-checkpoint") or name in (PARTITION_METADATA, META_PROPERTIES)
        )
    return any(
        (not entry.is_dir() or partition_of(entry.name) is not None) and _holds_a_log(entry) for entry in path.iterdir()
    )


@local_command(app)
def dump(
    output: Output,
    path: Target,
    records: Annotated[bool, typer.Option("--records", "-r", help="Open the batches.")] = False,
) -> None:
    """Print segments, indexes, snapshots and checkpoints."""
    from penstock.log.dump import dump as rows_of

    for row in rows_of(_existing(path), records=records):
        if output.as_json:
            output.record(row)
        else:
            output.text(_line(row))


def _line(row: dict[str, Any]) -> str:
    nested = row.get("records")
    shown = "  ".join(f"{key}={value}" for key, value in row.items() if key != "records" and value is not None)
    if not nested:
        return shown
    return "\n".join([shown, *("  | " + "  ".join(f"{k}={v}" for k, v in record.items()) for record in nested)])


@local_command(app)
def verify(output: Output, path: Target) -> None:
    """Check checksums, offsets and indexes; exit code 7 when something is wrong."""
    from penstock.log.verify import verify as problems_of

    problems = list(problems_of(_existing(path)))
    output.rows(problems, ["file", "position", "problem"], empty="everything is in order")
    if problems:
        raise typer.Exit(ExitCode.UNHEALTHY)


@local_command(app, name="accept-loss")
def accept_loss(
    output: Output,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A log directory of the stopped broker.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give up replicas whose disk is gone: at its next start the broker makes them anew.

    A broker takes no log directory that it does not know, and begins no replica anew that it once had: its partitions
    stay off line, so that an empty disk never becomes a leader. After this command, run on the broker's machine for the
    new (or any) log directory, it uses the directory and copies what it misses from the other replicas. A partition
    whose last in-sync replica is lost waits for `penstock partition elect --unclean`; one without other replicas
    begins empty.
    """
    from penstock.cli.options import confirm
    from penstock.log.log_directory import accept_loss as accept

    confirm(f"Give up every replica that the broker of {directory} does not find?", yes or output.as_json)
    try:
        accept(directory)
    except OSError as error:
        raise UserError(f"{directory} cannot be written: {error}") from error
    output.text(f"{directory}: what is missing is given up at the broker's next start")
