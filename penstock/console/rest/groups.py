"""REST of groups: list, look, journal, plan and do a reset, delete. Names go as parameters: they may hold anything."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from penstock.console.data import groups
from penstock.console.rest import models
from penstock.console.rest.app import Asker, PageQuery, new_router

router = new_router("groups")

Name = Annotated[str, Query(min_length=1, max_length=1000)]


@router.get("/groups")
def list_groups(viewer: Asker, query: PageQuery, internal: bool = False) -> dict[str, Any]:
    return groups.group_page(viewer, query, internal=internal).as_json()


@router.get("/group")
def get_group(viewer: Asker, name: Name) -> dict[str, Any]:
    return groups.group(viewer, name)


@router.get("/group/rebalances")
def group_rebalances(viewer: Asker, name: Name, count: Annotated[int, Query(ge=1, le=1000)] = 50) -> dict[str, Any]:
    return groups.rebalances(viewer, name, count)


@router.post("/group/plan")
def plan_reset(viewer: Asker, body: models.Reset) -> list[dict[str, Any]]:
    """Where a reset would take the group; nothing is moved."""
    return groups.plan(viewer, body.name, body.to, body.shift, body.topics)


@router.post("/group/reset")
def reset(viewer: Asker, body: models.Reset) -> list[dict[str, Any]]:
    """Move the group's offsets; it must have no members."""
    return groups.reset(viewer, body.name, body.to, body.shift, body.topics)


@router.delete("/group", status_code=204)
def delete_group(viewer: Asker, name: Name) -> None:
    groups.delete(viewer, name)
