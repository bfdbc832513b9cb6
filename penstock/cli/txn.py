"""`penstock txn`: transactions that are open, what they hold back, and ending those that nobody ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import suggest
from penstock.cli.options import Yes, confirm
from penstock.cli.typed import command, new_app
from penstock.operate.errors import not_among, usage_error
from penstock.operate.positions import parse_duration
from penstock.operate.transactions import (
    abort_by_id,
    abort_on_partition,
    described,
    hanging,
    held_back,
    listed,
    transaction_row,
)

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Transactions: list, describe, abort, find hanging ones.")

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
Id = Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", show_default=False)]


@command(app, "list")
def list_transactions(
    session: Session,
    state: Annotated[str | None, typer.Option("--state", help="Ongoing, Empty, CompleteCommit, …")] = None,
) -> None:
    """List transactional ids with their state and, of open ones, their age."""
    if state is not None and state.lower() not in map(str.lower, STATES):
        raise not_among("--state", state, STATES)
    rows = [
        transaction_row(described(session, t.transactional_id))
        for t in listed(session)
        if state is None or t.transaction_state.lower() == state.lower()
    ]
    columns = ["id", "state", "producer_id", "epoch", "age_seconds", "two_phase", "partitions"]
    session.output.rows(rows, columns, right=["producer_id", "epoch", "age_seconds"], empty="no transactions")


@command(app)
def describe(session: Session, transactional_id: Id) -> None:
    """Show one transaction and where it holds back read-committed consumers."""
    row = transaction_row(described(session, transactional_id))
    held = held_back(session, row)
    if session.output.as_json:
        session.output.record({**row, "held_back": held})
        return
    session.output.rows([row], ["id", "state", "producer_id", "epoch", "age_seconds", "timeout_ms", "two_phase"])
    if row["state"] == "Ongoing":
        session.output.rows(
            held,
            ["partition", "last_stable_offset", "end", "held_back"],
            right=["last_stable_offset", "end", "held_back"],
        )


@command(app)
def abort(
    session: Session,
    transactional_id: Annotated[str | None, typer.Argument(metavar="[TRANSACTIONAL-ID]", show_default=False)] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="With --partition and --producer-id: one without coordinator.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition")] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id")] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if a pipeline has decided that its rows count.")] = False,
    yes: Yes = False,
) -> None:
    """Abort an open transaction: by its id, or (hanging, unknown to any coordinator) on one partition.

    One that a pipeline has decided on is committed instead: aborted, its rows would be lost.
    """
    if transactional_id is not None:
        is_aborted = abort_by_id(session, transactional_id, lambda question: confirm(question, yes), force=force)
        session.output.result(
            {"id": transactional_id, "aborted": is_aborted, "committed": not is_aborted},
            f"the transaction of {transactional_id} is aborted"
            if is_aborted
            else f"the transaction of {transactional_id} was decided by its pipeline, so it is committed",
        )
    elif topic is not None and partition is not None and producer_id is not None:
        abort_on_partition(session, topic, partition, producer_id, lambda question: confirm(question, yes))
        session.output.result(
            {"topic": topic, "partition": partition, "producer_id": producer_id, "aborted": True}, "aborted"
        )
    else:
        raise usage_error("say which", "a transactional id, or --topic T --partition N --producer-id P")


@command(app, "find-hanging")
def find_hanging(
    session: Session,
    older_than: Annotated[str, typer.Option("--older-than", help="Only those open for so long.")] = "15m",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these; all if none.", autocompletion=suggest.topics)
    ] = None,
) -> None:
    """Find transactions that are open on a partition and that no coordinator will end."""
    seconds = parse_duration(older_than)
    rows = hanging(session, seconds, topic)
    columns = ["topic", "partition", "producer_id", "epoch", "start_offset", "age_seconds"]
    session.output.rows(rows, columns, right=columns[1:], empty="no hanging transactions")
