"""`penstock user`: who may log in (SCRAM): list, set a password, delete; also before a broker's first start."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Config, Set, Yes, confirm, parse_overrides
from penstock.cli.typed import command, local_command, new_app
from penstock.operate.errors import ExitCode, UserError, not_found, usage_error
from penstock.operate.users import (
    DEFAULT_ITERATIONS,
    DEFAULT_MECHANISM,
    MECHANISMS,
    delete_user,
    set_password,
    user_rows,
)

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.cli.session import Session

app = new_app("Users that log in with a password (SCRAM): list, set, delete.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Mechanism = Annotated[str, typer.Option("--mechanism", "-m", help="SCRAM-SHA-512 or SCRAM-SHA-256.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Read the password from a file; else it is asked for."),
]


def _known(mechanism: str) -> str:
    if mechanism.upper() not in MECHANISMS:
        raise usage_error(f"--mechanism {mechanism!r} is unknown", f"there are {' and '.join(MECHANISMS)}")
    return mechanism.upper()


def read_password(file: Path | None) -> str:
    """Never from the command line, where every process of the machine could read it."""
    if file is not None:
        try:
            password = file.read_text().rstrip("\r\n")
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}", code=ExitCode.NOT_FOUND) from error
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise usage_error("the password is empty", "give it on standard input or with --password-file")
    return password


@command(app, "list")
def list_users(session: Session) -> None:
    """List users and their mechanisms; keys are never shown."""
    session.output.rows(
        user_rows(session), ["name", "mechanisms", "iterations"], right=["iterations"], empty="no users"
    )


@command(app, "set")
def set_(
    session: Session,
    name: Name,
    mechanism: Mechanism = DEFAULT_MECHANISM,
    iterations: Annotated[
        int, typer.Option(min=4096, max=16384, help="Rounds of key derivation.")
    ] = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
) -> None:
    """Make a user or give one a new password, read from standard input."""
    set_password(session, name, read_password(password_file), _known(mechanism), iterations)
    session.output.result({"user": name, "mechanism": mechanism.upper()}, f"{name} may log in by {mechanism.upper()}")


@command(app)
def delete(
    session: Session,
    name: Name,
    mechanism: Annotated[str | None, typer.Option("--mechanism", "-m", help="Only this one; else all.")] = None,
    yes: Yes = False,
) -> None:
    """Delete a user; connections that it holds are closed at once."""
    rows = {row["name"]: row["mechanisms"].split(", ") for row in user_rows(session)}
    if name not in rows:
        raise not_found("user", name, rows)
    confirm(f"Delete user {name}?", yes)
    delete_user(session, name, [_known(mechanism)] if mechanism else rows[name])
    session.output.result({"user": name}, f"{name} is gone")


@local_command(app)
def bootstrap(
    output: Output,
    name: Name,
    mechanism: Mechanism = DEFAULT_MECHANISM,
    password_file: PasswordFile = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Write a user into the store before the first start: the first administrator, or the brokers' own user."""
    from penstock.base.settings import Settings, SettingsError
    from penstock.cli.store import stopped
    from penstock.security.bootstrap import store_passwords
    from penstock.store.interface import StoreError

    try:
        settings = Settings.load(config, parse_overrides(set_))
    except SettingsError as error:
        raise UserError(str(error), code=ExitCode.USAGE) from error
    password = read_password(password_file)
    try:
        with stopped(settings.log_dirs if settings.embedded else ()):
            asyncio.run(store_passwords(settings, {name: password}, _known(mechanism)))
    except StoreError as error:
        raise UserError(f"the store cannot be written: {error}", code=ExitCode.UNREACHABLE) from error
    output.result({"user": name, "mechanism": mechanism.upper()}, f"{name} may log in by {mechanism.upper()}")
