"""Client quotas of a cluster: entities and limits as people write them, listing, changing, and which one holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import not_found, usage_error
from penstock.protocol import messages
from penstock.security.quota_limits import IP, USER_CLIENT, Entity, QuotaLimits

if TYPE_CHECKING:
    from penstock.operate.session import Session

SHORT_KEYS = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "request": "request_percentage",
    "topics": "controller_mutation_rate",
    "connections": "connection_creation_rate",
}
UNITS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of one processor",
    "controller_mutation_rate": "partitions per second",
    "connection_creation_rate": "connections per second",
}
_PARTS = {"user": "user", "client": "client-id", "ip": "ip"}
_SHORT_PARTS = {kind: short for short, kind in _PARTS.items()}
ENTITY_HINT = "write user:anna, client:app, user:anna,client:app or ip:10.0.0.1; * for the default"


def parse_entity(text: str) -> Entity:
    entity: Entity = {}
    for part in text.split(","):
        short, _, name = part.partition(":")
        if short not in _PARTS or not name or _PARTS[short] in entity:
            raise usage_error(f"{text!r} is nobody who has quotas", ENTITY_HINT)
        entity[_PARTS[short]] = None if name == "*" else name
    if "ip" in entity and len(entity) > 1:
        raise usage_error("an ip stands alone", ENTITY_HINT)
    return entity


def parse_key(text: str, entity: Entity) -> str:
    key = SHORT_KEYS.get(text, text)
    known = IP if "ip" in entity else USER_CLIENT
    if key not in known:
        raise not_found("quota", text, [short for short, full in SHORT_KEYS.items() if full in known])
    return key


def shown(entity: Entity) -> str:
    return ",".join(f"{_SHORT_PARTS[kind]}:{'*' if name is None else name}" for kind, name in entity.items())


def listed(session: Session) -> list[tuple[Entity, dict[str, float]]]:
    api = messages.api("describe_client_quotas")
    answer = session.client.call_any("describe_client_quotas", api.Request(components=[], strict=False))
    if answer.error_code:
        raise admin.refuse(answer.error_code, "the quotas cannot be read", answer.error_message)
    found = [
        (
            {part.entity_type: part.entity_name for part in sorted(entry.entity, key=lambda p: -len(p.entity_type))},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return sorted(((_ordered(entity), values) for entity, values in found), key=lambda pair: shown(pair[0]))


def _ordered(entity: Entity) -> Entity:
    return {kind: entity[kind] for kind in ("user", "client-id", "ip") if kind in entity}


def alter(session: Session, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """None takes a limit away."""
    api = messages.api("alter_client_quotas")
    part, operation = api.request_struct("EntityData"), api.request_struct("OpData")
    entry = api.request_struct("EntryData")(
        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[operation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    answer = session.client.call_controller("alter_client_quotas", api.Request(entries=[entry], validate_only=False))
    result = answer.entries[0]
    if result.error_code:
        raise admin.refuse(result.error_code, shown(entity), result.error_message)


def explained(session: Session, user: str, client_id: str) -> list[dict[str, Any]]:
    """Each kind of quota: the limit that holds for this client, and whose it is."""
    limits = QuotaLimits(listed(session))
    rows = []
    for key in USER_CLIENT:
        limit = limits.of_client(key, user, client_id)
        rows.append(
            {
                "quota": key,
                "limit": None if limit is None else limit.bound,
                "unit": UNITS[key],
                "by": None if limit is None else shown(limit.by),
            }
        )
    return rows
