"""Transactions: which there are, what they hold back, and ending them as the command line does."""

from __future__ import annotations

from typing import Any

from penstock.console.data.paging import Page, Query, page_of
from penstock.console.data.viewer import Viewer
from penstock.operate import transactions as operate


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
        if not only_open or t.transaction_state == "Ongoing"
    ]
    return page_of(rows, query or Query(), name="id")


def transaction(viewer: Viewer, transactional_id: str) -> dict[str, Any]:
    """One transaction; of an open one, how many records it holds back where."""
    row = operate.transaction_row(operate.described(viewer.session, transactional_id))
    row["partitions"] = [name for name in row["partitions"] if viewer.sees(name.rpartition("-")[0])]
    row["held_back"] = operate.held_back(viewer.session, row) if row["state"] == "Ongoing" else []
    return row


def hanging(viewer: Viewer, seconds: float = 900.0) -> list[dict[str, Any]]:
    """Open on a partition for so long, and no coordinator will end them."""
    topics = [t.name for t in viewer.snapshot.topics.values() if viewer.sees(t.name)]
    return operate.hanging(viewer.session, seconds, topics)


def abort(viewer: Viewer, transactional_id: str) -> None:
    with viewer.change("admin", "transaction.abort", transactional_id) as session:
        operate.abort_by_id(session, transactional_id, _agreed)


def abort_hanging(viewer: Viewer, topic: str, partition: int, producer_id: int) -> None:
    viewer.topic(topic)
    target = f"{topic}-{partition} producer {producer_id}"
    with viewer.change("admin", "transaction.abort", target) as session:
        operate.abort_on_partition(session, topic, partition, producer_id, _agreed)
