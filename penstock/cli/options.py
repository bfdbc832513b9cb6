"""Options and questions that several commands share; light, so that a command's help need not load its neighbours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.operate.errors import UserError, usage_error

MOST_CORES = 256

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="A file in the format of Kafka's server.properties."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="One setting; may be repeated.")
]


def confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{question} Nobody is there to answer", "add --yes")
    if not typer.confirm(question):
        raise UserError("nothing was done")


def parse_overrides(pairs: list[str] | None) -> dict[str, str]:
    overrides = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"--set {pair!r} is not NAME=VALUE", "for example --set log.retention.hours=24")
        overrides[name.strip()] = value.strip()
    return overrides


def insist_on_folder(folder: Path, content: str, option: str, mode: int = 0o777) -> None:
    """Made if it is not there. Told here once, instead of by each part in its own words."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        refused = "" if os.access(folder, os.W_OK | os.X_OK) else "it may not be written to"
    except FileExistsError:
        refused = "it is a file"
    except OSError as error:
        refused = str(error.strerror)
    if refused:
        raise UserError(f"{folder} cannot hold {content}: {refused}", f"{option} FOLDER takes another one")
