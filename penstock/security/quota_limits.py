"""Which limit holds for whom: quotas of users, client ids, both, addresses and their defaults.

Pure. A limit of a user is shared by all his clients; one that names a client id, or the default for client ids, counts
for each (user, client id) by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["IP", "USER_CLIENT", "Entity", "QuotaLimits", "quota_problem"]

PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTION_RATE = "connection_creation_rate"
USER_CLIENT = (PRODUCE, FETCH, REQUEST, MUTATION)
IP = (CONNECTION_RATE,)
_WHOLE = {PRODUCE: "Long", FETCH: "Long", CONNECTION_RATE: "Integer"}
_HIGHEST = {"Long": 2**63 - 1, "Integer": 2**31 - 1}

Entity = dict[str, str | None]
"""Part of an entity (`user`, `client-id`, `ip`) → its name, None for the default."""


def quota_problem(entity: Entity, key: str, value: float) -> str | None:
    """What is wrong with a new value, in Kafka's words."""
    known = IP if "ip" in entity else USER_CLIENT
    if key not in known:
        return f"Invalid configuration key {key}"
    if not math.isfinite(value) or value <= 0:
        return f"Quota {key} must be greater than 0"
    whole = _WHOLE.get(key)
    if whole is not None and (value != int(value) or value > _HIGHEST[whole]):
        return f"{key} must be a {whole}"
    return None


def rendered(key: str, value: float) -> str:
    """As Kafka stores it."""
    return str(int(value)) if key in _WHOLE else str(value)


@dataclass(frozen=True, slots=True)
class Limit:
    bound: float
    user: str  # "" where the limit is shared by all users
    client_id: str
    by: Entity
    """Whose limit it is."""


class QuotaLimits:
    """All quotas of the cluster."""

    def __init__(self, quotas: Iterable[tuple[Entity, Mapping[str, float]]] = ()) -> None:
        # (user, client id) → key → bound; None is the default, "" stands for "not part of the entity"
        self._clients: dict[tuple[str | None, str | None], Mapping[str, float]] = {}
        self._ips: dict[str | None, float] = {}
        for entity, bounds in quotas:
            if "ip" not in entity:
                self._clients[(entity.get("user", ""), entity.get("client-id", ""))] = bounds
            elif CONNECTION_RATE in bounds:
                self._ips[entity["ip"]] = bounds[CONNECTION_RATE]
        self.kinds = frozenset(kind for bounds in self._clients.values() for kind in bounds)

    @property
    def for_clients(self) -> bool:
        return bool(self._clients)

    @property
    def for_addresses(self) -> bool:
        return bool(self._ips)

    def of_client(self, kind: str, user: str, client_id: str) -> Limit | None:
        """The first that speaks about this kind, from the most to the least particular."""
        if kind not in self.kinds:
            return None
        for entity_user, entity_client, by_user, by_client in (
            (user, client_id, user, client_id),
            (user, None, user, client_id),
            (user, "", user, ""),
            (None, client_id, user, client_id),
            (None, None, user, client_id),
            (None, "", user, ""),
            ("", client_id, "", client_id),
            ("", None, "", client_id),
        ):
            bounds = self._clients.get((entity_user, entity_client))
            if bounds is not None and kind in bounds:
                named = {"user": entity_user, "client-id": entity_client}
                return Limit(bounds[kind], by_user, by_client, {k: v for k, v in named.items() if v != ""})
        return None

    def of_address(self, host: str) -> float | None:
        return self._ips.get(host, self._ips.get(None))
