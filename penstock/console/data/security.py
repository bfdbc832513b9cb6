"""Who may what: SCRAM users, ACLs and quotas of a cluster, or why it has none. An admin's to see and to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.client.errors import KafkaError
from penstock.console.data.viewer import Viewer
from penstock.operate import acls, quotas, users
from penstock.operate.errors import UserError, usage_error
from penstock.security.acl_model import AclBinding, AclFilter, Permission


def security(viewer: Viewer) -> dict[str, Any]:
    """Each part as rows, and for a part that this cluster does not have, the reason."""
    viewer.require("admin")
    missing: dict[str, str] = {}

    def part(name: str, ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        try:
            return ask()
        except (UserError, KafkaError) as error:
            missing[name] = _reason(name, error)
            return []

    session = viewer.session
    return {
        "users": part("users", lambda: users.user_rows(session)),
        "acls": part("acls", lambda: [acls.row(binding) for binding in acls.listed(session)]),
        "quotas": part("quotas", lambda: _quota_rows(viewer)),
        "missing": missing,
    }


def _reason(part: str, error: Exception) -> str:
    words = str(error)
    if part == "acls" and ("authorizer" in words.lower() or "SECURITY_DISABLED" in words):
        return "no authorizer: everybody may do everything (set authorizer.class.name on the brokers)"
    return words


def _quota_rows(viewer: Viewer) -> list[dict[str, Any]]:
    return [
        {"whose": quotas.shown(entity), "quota": key, "limit": value, "unit": quotas.UNITS.get(key, "")}
        for entity, values in quotas.listed(viewer.session)
        for key, value in sorted(values.items())
    ]


def set_password(viewer: Viewer, name: str, password: str, mechanism: str = users.DEFAULT_MECHANISM) -> None:
    if not name or not password:
        raise usage_error("a user has a name and a password")
    if mechanism not in users.MECHANISMS:
        raise usage_error(f"{mechanism!r} is unknown", f"there is {' and '.join(users.MECHANISMS)}")
    with viewer.change("admin", "user.set", name, mechanism=mechanism) as session:
        users.set_password(session, name, password, mechanism, users.DEFAULT_ITERATIONS)


def delete_user(viewer: Viewer, name: str) -> None:
    with viewer.change("admin", "user.delete", name) as session:
        known = next((row for row in users.user_rows(session) if row["name"] == name), None)
        if known is None:
            raise usage_error(f"there is no user {name!r}")
        users.delete_user(session, name, [word for word in known["mechanisms"].split(", ") if word])


def _binding(row: dict[str, Any]) -> AclBinding:
    named = acls.parse_resource(row["resource"])
    if row["permission"] not in ("allow", "deny"):
        raise usage_error(f"{row['permission']!r} is neither allow nor deny")
    return AclBinding(
        named.kind,
        named.name,
        named.pattern,
        acls.parse_principal(row["principal"]),
        row.get("host") or "*",
        acls.parse_operation(row["operation"], named.kind),
        Permission.DENY if row["permission"] == "deny" else Permission.ALLOW,
    )


def create_acl(viewer: Viewer, row: dict[str, Any]) -> dict[str, Any]:
    """As the command line writes them: principal, permission, operation, resource (`topic:orders`), host."""
    binding = _binding(row)
    with viewer.change("admin", "acl.create", str(binding)) as session:
        acls.create(session, [binding])
    return acls.row(binding)


def delete_acl(viewer: Viewer, row: dict[str, Any]) -> int:
    """Exactly this one; how many there were."""
    b = _binding(row)
    exactly = AclFilter(b.resource_type, b.name, b.pattern_type, b.principal, b.host, b.operation, b.permission)
    with viewer.change("admin", "acl.delete", str(b)) as session:
        return acls.delete(session, [exactly])


def set_quota(viewer: Viewer, whose: str, quota: str, limit: float | None) -> None:
    """None takes the limit away."""
    entity = quotas.parse_entity(whose)
    key = quotas.parse_key(quota, entity)
    with viewer.change("admin", "quota.set", whose, quota=key, limit=limit) as session:
        quotas.alter(session, entity, {key: limit})
