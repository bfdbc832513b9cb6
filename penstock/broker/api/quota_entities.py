"""Quota entities as the quota APIs carry them, and what is wrong with some of them."""

from __future__ import annotations

import ipaddress
from typing import Any

from penstock.security.quota_limits import Entity

KNOWN = ("user", "client-id", "ip")


class BadEntity(Exception):
    """The message says what is wrong."""


def entity_of_request(parts: Any) -> Entity:
    """Raises BadEntity."""
    if not parts:
        raise BadEntity("Invalid empty client quota entity")
    entity: Entity = {}
    for part in parts:
        if part.entity_type in entity:
            raise BadEntity(f"Duplicate {part.entity_type} entity")
        if part.entity_type not in KNOWN:
            raise BadEntity(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise BadEntity(f"Empty {part.entity_type} not supported")
        entity[part.entity_type] = part.entity_name
    if "ip" in entity and len(entity) > 1:
        raise BadEntity("Invalid client quota entity: an ip stands alone")
    if entity.get("ip") is not None:
        try:
            ipaddress.ip_address(str(entity["ip"]))
        except ValueError:
            raise BadEntity(f"{entity['ip']} is not a valid IP or resolvable host.") from None
    return entity
