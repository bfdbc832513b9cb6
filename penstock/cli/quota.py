"""`penstock quota`: limits of users, client ids and addresses; list, set, delete, and explain which one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.typed import command, new_app
from penstock.operate.errors import usage_error

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Limits of users, client ids and addresses.")

Whose = Annotated[
    str,
    typer.Argument(metavar="WHOSE", help="user:anna, client:app, user:anna,client:app, ip:ADDRESS; * is the default.",
                   show_default=False),
]  # fmt: skip


@command(app, "list")
def list_(session: Session) -> None:
    """All quotas."""
    from penstock.operate import quotas

    rows = [
        {"whose": quotas.shown(entity), "quota": key, "limit": value, "unit": quotas.UNITS.get(key, "")}
        for entity, values in quotas.listed(session)
        for key, value in sorted(values.items())
    ]
    session.output.rows(rows, ["whose", "quota", "limit", "unit"], right=["limit"], empty="there are no quotas")


@command(app, "set")
def set_(
    session: Session,
    whose: Whose,
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=LIMIT…", help="produce, fetch, request, topics, connections.",
                       show_default=False),
    ],
) -> None:  # fmt: skip
    """Set limits: bytes, percent, partitions or connections per second."""
    from penstock.operate import quotas

    entity = quotas.parse_entity(whose)
    changes: dict[str, float | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        try:
            changes[quotas.parse_key(key, entity)] = float(value)
        except ValueError:
            raise usage_error(f"{pair!r} is not QUOTA=LIMIT", "for example produce=1000000") from None
        if not equals:
            raise usage_error(f"{pair!r} is not QUOTA=LIMIT", "for example produce=1000000")
    quotas.alter(session, entity, changes)
    session.output.result({"whose": whose, "set": changes}, f"{whose}: {', '.join(pairs)}")


@command(app)
def delete(
    session: Session,
    whose: Whose,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA…]", show_default=False)] = None,
) -> None:
    """Take limits away: the named ones, or all of somebody."""
    from penstock.operate import quotas

    entity = quotas.parse_entity(whose)
    if keys:
        wanted = [quotas.parse_key(key, entity) for key in keys]
    else:
        wanted = [key for known, values in quotas.listed(session) if known == entity for key in values]
    if wanted:
        quotas.alter(session, entity, dict.fromkeys(wanted))
    session.output.result({"whose": whose, "deleted": wanted}, f"{whose}: {len(wanted)} limits taken away")


@command(app)
def explain(
    session: Session,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Without a login it is ANONYMOUS.")] = "ANONYMOUS",
    client: Annotated[str, typer.Option("--client", metavar="ID", help="The client.id of a program.")] = "",
) -> None:
    """Say which limits hold for a client, and whose they are."""
    from penstock.operate import quotas

    session.output.rows(quotas.explained(session, user, client), ["quota", "limit", "unit", "by"], right=["limit"])
