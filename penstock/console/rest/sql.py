"""REST of SQL: ask, cancel, and the saved queries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from penstock.console.data import sql
from penstock.console.rest import models
from penstock.console.rest.app import Asker, new_router

router = new_router("sql")


@router.post("/sql")
def ask(viewer: Asker, body: models.Question) -> dict[str, Any]:
    """One SELECT over topic('name'); the first one waits until Spark has started."""
    return sql.query(viewer, body.text, limit=body.limit, since=body.since, seconds=body.seconds, name=body.name)


@router.post("/sql/cancel", status_code=204)
def cancel(viewer: Asker, body: models.QueryName) -> None:
    """End a query of one's own."""
    sql.cancel(viewer, body.name)


@router.get("/sql/saved")
def saved(viewer: Asker) -> list[dict[str, str]]:
    return sql.saved(viewer)


@router.put("/sql/saved", status_code=204)
def save(viewer: Asker, body: models.SavedQuery) -> None:
    sql.save(viewer, body.name, body.text)


@router.delete("/sql/saved", status_code=204)
def delete(viewer: Asker, name: Annotated[str, Query(min_length=1, max_length=80)]) -> None:
    sql.delete(viewer, name)
