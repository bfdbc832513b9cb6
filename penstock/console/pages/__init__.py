"""The pages, one module each; this list is what the frame shows, in the order of the navigation."""

from __future__ import annotations

from penstock.console.page import Page
from penstock.console.pages import (
    broker,
    brokers,
    doctor,
    group,
    groups,
    overview,
    pipeline,
    pipelines,
    security,
    sql,
    topic,
    topics,
    transaction,
    transactions,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    groups.PAGE,
    group.PAGE,
    pipelines.PAGE,
    pipeline.PAGE,
    sql.PAGE,
    transactions.PAGE,
    transaction.PAGE,
    brokers.PAGE,
    broker.PAGE,
    security.PAGE,
    doctor.PAGE,
)
