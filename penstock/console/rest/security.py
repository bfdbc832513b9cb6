"""REST of security: users, ACLs and quotas as one picture, and changing each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from penstock.console.data import security
from penstock.console.rest import models
from penstock.console.rest.app import Asker, new_router

router = new_router("security")


@router.get("/security")
def get_security(viewer: Asker) -> dict[str, Any]:
    """Users, ACLs and quotas; `missing` says what this cluster does not have, and why."""
    return security.security(viewer)


@router.post("/users", status_code=204)
def set_password(viewer: Asker, body: models.Password) -> None:
    """Make a user, or give one a new password."""
    security.set_password(viewer, body.name, body.password, body.mechanism)


@router.delete("/users", status_code=204)
def delete_user(viewer: Asker, name: Annotated[str, Query(min_length=1, max_length=1000)]) -> None:
    security.delete_user(viewer, name)


@router.post("/acls", status_code=201)
def create_acl(viewer: Asker, body: models.Acl) -> dict[str, Any]:
    return security.create_acl(viewer, body.model_dump())


@router.post("/acls/delete")
def delete_acl(viewer: Asker, body: models.Acl) -> dict[str, int]:
    """Exactly this one."""
    return {"deleted": security.delete_acl(viewer, body.model_dump())}


@router.post("/quotas", status_code=204)
def set_quota(viewer: Asker, body: models.Quota) -> None:
    security.set_quota(viewer, body.whose, body.quota, body.limit)
