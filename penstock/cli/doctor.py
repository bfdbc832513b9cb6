"""`penstock doctor`: looks at a cluster as an experienced operator would, and says what to do about what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.printable import printable_cell
from penstock.cli.typed import command, new_app
from penstock.operate.errors import ExitCode

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Check a cluster and say what to do about what is wrong.", no_args_is_help=False)


@command(app)
def doctor(
    session: Session,
    security: Annotated[bool, typer.Option("--security", help="Look for weak spots instead.")] = False,
) -> None:
    """Check addresses, replicas, skew, lag, disk, transactions and risky settings. Exit code 7: problems."""
    from penstock.operate.doctor import examine
    from penstock.operate.doctor_security import examine_security

    rows = list(examine_security(session) if security else examine(session))
    if session.output.as_json:
        session.output.rows(rows, [])
    else:
        for row in rows:
            mark = {"ok": "ok     ", "note": "note   ", "warning": "WARNING", "problem": "PROBLEM"}[row["severity"]]
            session.output.text(f"{mark}  {row['check']}: {printable_cell(row['finding'])}")
            if row["hint"]:
                session.output.text(f"           → {printable_cell(row['hint'])}")
    if any(row["severity"] == "problem" for row in rows):
        raise typer.Exit(ExitCode.UNHEALTHY)
