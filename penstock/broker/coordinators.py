"""Brings the coordinators of groups and transactions up and down with their broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def start(broker: Broker) -> None:
    """Before the first image: whoever leads a partition of an internal topic is told by it."""
    from penstock.broker.group_links import start_groups
    from penstock.broker.transaction_links import start_transactions

    start_groups(broker)
    start_transactions(broker)


async def stop(broker: Broker) -> None:
    for coordinator in (broker.groups, broker.transactions):
        if coordinator is not None:
            await coordinator.stop()
