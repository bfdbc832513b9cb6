"""Where the store keeps quotas: an entity as the key of a config, and the quotas among an image's configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.cluster.image import ConfigKey
from penstock.cluster.znodes import DEFAULT_ENTITY, desanitize, sanitize
from penstock.security.quota_limits import IP, USER_CLIENT, Entity

__all__ = ["config_key_of", "entity_of", "quotas_in"]


def config_key_of(entity: Entity) -> ConfigKey:
    """Where the store keeps an entity's quotas."""

    def part(kind: str) -> str:
        name = entity[kind]
        return DEFAULT_ENTITY if name is None else sanitize(name)

    if "ip" in entity:
        return "ip", DEFAULT_ENTITY if entity["ip"] is None else entity["ip"]
    if "user" not in entity:
        return "client", part("client-id")
    if "client-id" not in entity:
        return "user", part("user")
    return "user", f"{part('user')}/clients/{part('client-id')}"


def entity_of(key: ConfigKey) -> Entity | None:
    """The other way; None for what has no quotas."""
    kind, name = key

    def shown(part: str) -> str | None:
        return None if part == DEFAULT_ENTITY else desanitize(part)

    if kind == "ip":
        return {"ip": None if name == DEFAULT_ENTITY else name}
    if kind == "client":
        return {"client-id": shown(name)}
    if kind != "user":
        return None
    user, separator, client = name.partition("/clients/")
    return {"user": shown(user), "client-id": shown(client)} if separator else {"user": shown(user)}


def quotas_in(configs: Mapping[ConfigKey, Mapping[str, str]]) -> Iterator[tuple[Entity, dict[str, float]]]:
    """The quotas among them; users also have passwords there."""
    for key, overrides in configs.items():
        if key[0] in ("user", "client", "ip"):
            entity = entity_of(key)
            bounds = _bounds(overrides)
            if entity is not None and bounds:
                yield entity, bounds


def _bounds(overrides: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for key in (*USER_CLIENT, *IP):
        if key in overrides:
            try:
                bound = float(overrides[key])
            except ValueError:
                continue
            if bound > 0:
                found[key] = bound
    return found
