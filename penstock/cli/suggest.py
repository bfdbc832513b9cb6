"""Names that the Tab key may complete: topics, groups and profiles, as the cluster and this machine know them.

A shell waits for the answer, so a cluster that does not answer at once has no names; nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from penstock.operate import profiles as saved_profiles
from penstock.operate.errors import UserError

if TYPE_CHECKING:
    from penstock.cli.session import Session

PATIENCE_SECONDS = 2.0


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Internal ones only once their underscores are typed."""

    def known(session: Session) -> Iterable[str]:
        hidden = incomplete.startswith("__")
        return (t.name for t in session.client.metadata(None).topics.values() if hidden or not t.name.startswith("__"))

    return _beginning(incomplete, _ask(ctx, known))


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    def known(session: Session) -> Iterable[str]:
        from penstock.operate.groups import all_groups

        return all_groups(session)

    return _beginning(incomplete, _ask(ctx, known))


def profiles(incomplete: str) -> list[str]:
    try:
        return _beginning(incomplete, saved_profiles.all_profiles())
    except UserError:
        return []


def _ask(ctx: typer.Context, known: Callable[[Session], Iterable[str]]) -> list[str]:
    """What the cluster that the line names so far knows."""
    from penstock.cli.session import Session
    from penstock.client.errors import ClientError

    given: dict[str, Any] = ctx.params
    try:
        session = Session(
            given.get("bootstrap"),
            given.get("profile"),
            given.get("properties"),
            patience_seconds=PATIENCE_SECONDS,
        )
        try:
            return list(known(session))
        finally:
            session.close()
    except (UserError, ClientError, OSError):
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
