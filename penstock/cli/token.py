"""`penstock token`: delegation tokens, which let their holder log in (by SCRAM) as somebody, for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.operate import tokens
from penstock.operate.positions import format_time, parse_duration

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Delegation tokens: create, list, renew, delete.")

TokenId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
COLUMNS = ["id", "owner", "requester", "expires", "ends"]


@command(app)
def create(
    session: Session,
    owner: Annotated[
        str | None, typer.Option("--for", metavar="USER", help="Whom its holder is; yourself if not said.")
    ] = None,
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="May renew it, too; may be repeated.")
    ] = None,
    lifetime: Annotated[
        str | None, typer.Option("--lifetime", metavar="TIME", help="Its longest life, e.g. 7d; else the broker's.")
    ] = None,
) -> None:
    """Make a token and print its id and its secret: user name and password of a login by SCRAM with tokenauth=true."""
    lifetime_ms = int(parse_duration(lifetime) * 1000) if lifetime else -1
    made = tokens.create(session, owner, renewer or [], lifetime_ms)
    session.output.result(made, f"{made['id']}\n{made['secret']}")


@command(app, "list")
def list_tokens(session: Session) -> None:
    """List the tokens that you may see; their secrets are not shown."""
    session.output.rows(tokens.token_rows(session), COLUMNS, empty="no tokens")


@command(app)
def renew(
    session: Session,
    token: TokenId,
    period: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it lives on, e.g. 1d; else the broker's.")
    ] = None,
) -> None:
    """Let a token live on, until its last day at most."""
    until = tokens.renew(session, token, int(parse_duration(period) * 1000) if period else -1)
    session.output.result({"id": token, "expires": format_time(until)}, f"{token} lives until {format_time(until)}")


@command(app)
def delete(session: Session, token: TokenId, yes: Yes = False) -> None:
    """End a token at once: whoever is logged in with it is thrown out."""
    confirm(f"End the token {token}?", yes)
    tokens.end(session, token)
    session.output.result({"id": token, "deleted": True}, f"{token} is over")
