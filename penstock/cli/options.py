"""Options and questions that several commands share; light, so that a command's help need not load its neighbours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.operate.errors import UserError, usage_error

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
