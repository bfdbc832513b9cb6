"""Transactions: which there are, what they hold back, and ending them as the command line does."""

from __future__ import annotations

import contextlib
from typing import Any

from penstock.console.data.paging import Page, Query, page_of
from penstock.console.data.viewer import Viewer
from penstock.operate import transactions as operate
from penstock.operate.errors import ExitCode, UserError


def _agreed(_question: str) -> None:
    """Whoever asks the data service has confirmed already."""


def transaction_page(viewer: Viewer, query: Query | None = None, *, only_open: bool = False) -> Page:
    rows = [
        {
            "id": t.transactional_id,
            "state": t.transaction_state,
            "producer_id": t.producer_id,
        }
        for t in operate.listed(viewer.session)
        if (not only_open or t.transaction_state == "Ongoing") and _is_seen(viewer, t.transactional_id)
    ]
    page = page_of(rows, query or Query(), name="id")
    return Page([_with_age(viewer, dict(row)) for row in page.rows], page.total)


def _is_seen(viewer: Viewer, transactional_id: str) -> bool:
    """By who sees every topic; else with one of its partitions, which only an open one has."""
    if viewer.policy.sees_everything(viewer.user.role):
        return True  # what ACLs hide, the brokers have left out
    try:
        found = operate.transaction_row(operate.described(viewer.session, transactional_id))
    except UserError:
        return False
    return any(viewer.sees(name.rpartition("-")[0]) for name in found["partitions"])


def _insist_on_seeing(viewer: Viewer, transactional_id: str) -> None:
    if not _is_seen(viewer, transactional_id):
        raise UserError(f"there is no transaction {transactional_id!r}", code=ExitCode.NOT_FOUND)


def _with_age(viewer: Viewer, row: dict[str, Any]) -> dict[str, Any]:
    """Coordinators list names and states; of open ones on the page we ask for more."""
    row |= {"age_seconds": None, "partitions": []}
    if row["state"] == "Ongoing":
        with contextlib.suppress(UserError):  # it has ended and is forgotten meanwhile
            found = operate.transaction_row(operate.described(viewer.session, row["id"]))
            seen = [name for name in found["partitions"] if viewer.sees(name.rpartition("-")[0])]
            row |= {"age_seconds": found["age_seconds"], "partitions": seen}
    return row


def transaction(viewer: Viewer, transactional_id: str) -> dict[str, Any]:
    """One transaction; of an open one, how many records it holds back where."""
    _insist_on_seeing(viewer, transactional_id)
    row = operate.transaction_row(operate.described(viewer.session, transactional_id))
    row["partitions"] = [name for name in row["partitions"] if viewer.sees(name.rpartition("-")[0])]
    row["held_back"] = operate.held_back(viewer.session, row) if row["state"] == "Ongoing" else []
    return row


def hanging(viewer: Viewer, seconds: float = 900.0) -> list[dict[str, Any]]:
    """Open on a partition for so long, and no coordinator will end them."""
    topics = [t.name for t in viewer.snapshot.topics.values() if viewer.sees(t.name)]
    return operate.hanging(viewer.session, seconds, topics)


def abort(viewer: Viewer, transactional_id: str) -> bool:
    """True: it is aborted. False: a pipeline had decided on it, so it is committed."""
    with viewer.change("admin", "transaction.end", transactional_id) as session:
        _insist_on_seeing(viewer, transactional_id)
        return operate.abort_by_id(session, transactional_id, _agreed)


def abort_hanging(viewer: Viewer, topic: str, partition: int, producer_id: int) -> None:
    viewer.topic(topic)
    target = f"{topic}-{partition} producer {producer_id}"
    with viewer.change("admin", "transaction.abort", target) as session:
        operate.abort_on_partition(session, topic, partition, producer_id, _agreed)
