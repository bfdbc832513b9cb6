"""Probes of client quotas and ACLs on a broker without an authorizer: what is taken, what is refused, what is found."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from penstock.testing.probes.access import build
from penstock.testing.probes.access_requests import ANY_ACL
from penstock.testing.probes.harness import Session, probe

Entity = dict[str, str | None]
Values = Mapping[str, float | None]
LIMITS = {"producer_byte_rate": 1e9, "consumer_byte_rate": 2e9, "request_percentage": 900.5}


def alter(
    session: Session, entity: Entity, values: Mapping[str, float | None], validate_only: bool = False
) -> list[int]:
    ops = [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in values.items()]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    request = build(
        "alter_client_quotas", 1, {"entries": [{"entity": parts, "ops": ops}], "validate_only": validate_only}
    )
    return [entry.error_code for entry in session.call("alter_client_quotas", 1, request).entries]


def describe(session: Session, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = session.call(
        "describe_client_quotas", 1, build("describe_client_quotas", 1, {"components": wanted, "strict": strict})
    )
    entries = [
        (
            sorted((part.entity_type, part.entity_name or "") for part in entry.entity),
            sorted((value.key, value.value) for value in entry.values),
        )
        for entry in answer.entries or []
    ]
    return answer.error_code, answer.entries is None, sorted(entries)


def shown(session: Session, count: int, *components: tuple[str, int, str | None]) -> Any:
    """What is described once so many values are: Kafka's brokers learn of a change a little later."""
    deadline = time.monotonic() + 10
    while True:
        found = describe(session, *components, strict=True)
        if sum(len(values) for _, values in found[2]) == count or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def name() -> str:
    return f"u{uuid.uuid4().hex[:8]}"


@probe("quotas: set, described, changed and removed, for each kind of entity")
def _kinds(session: Session) -> Any:
    told: list[Any] = []
    for index, kind in enumerate((("user",), ("client-id",), ("user", "client-id"))):
        entity: Entity = dict.fromkeys(kind, f"probe-{index}")
        exact = [(part, 0, entity[part]) for part in kind]
        told += [alter(session, entity, LIMITS), shown(session, 3, *exact)]
        told += [alter(session, entity, {"producer_byte_rate": 5e8, "consumer_byte_rate": None})]
        told += [shown(session, 2, *exact), describe(session, *exact[:1])]
        told += [alter(session, entity, dict.fromkeys(LIMITS)), shown(session, 0, *exact)]
    return told


@probe("quotas: defaults")
def _defaults(session: Session) -> Any:
    user = name()
    told: list[Any] = [alter(session, {"user": user, "client-id": None}, {"controller_mutation_rate": 1000.0})]
    told += [shown(session, 1, ("user", 0, user), ("client-id", 1, None))[2][0][1]]
    told += [len(describe(session, ("user", 0, user), ("client-id", 0, "x"))[2])]
    told += [len(describe(session, ("user", 0, user), ("client-id", 2, None))[2])]
    told += [len(describe(session, ("user", 0, user), strict=True)[2]), len(describe(session, ("user", 0, user))[2])]
    return [*told, alter(session, {"user": user, "client-id": None}, {"controller_mutation_rate": None})]


@probe("quotas: of addresses")
def _addresses(session: Session) -> Any:
    told: list[Any] = [alter(session, {"ip": "10.9.8.7"}, {"connection_creation_rate": 1000.0})]
    told += [
        shown(session, 1, ("ip", 0, "10.9.8.7")),
        alter(session, {"ip": "10.9.8.7"}, {"connection_creation_rate": None}),
    ]
    return told


@probe("quotas: only tried")
def _tried(session: Session) -> Any:
    user = name()
    return alter(session, {"user": user}, {"producer_byte_rate": 1.0}, validate_only=True), describe(
        session, ("user", 0, user)
    )


BAD: dict[str, tuple[Entity, dict[str, float | None]]] = {
    "no entity": ({}, {"producer_byte_rate": 1.0}),
    "an unknown entity": ({"planet": "mars"}, {"producer_byte_rate": 1.0}),
    "an empty name": ({"user": ""}, {"producer_byte_rate": 1.0}),
    "an unknown key": ({"user": "a"}, {"nonsense": 1.0}),
    "an unknown key to remove": ({"user": "a"}, {"nonsense": None}),
    "zero": ({"user": "a"}, {"producer_byte_rate": 0.0}),
    "below zero": ({"user": "a"}, {"producer_byte_rate": -1.0}),
    "a fraction of a byte": ({"user": "a"}, {"producer_byte_rate": 1.5}),
    "a key of addresses": ({"user": "a"}, {"connection_creation_rate": 1.0}),
    "a key of users": ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    "an address and a user": ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1.0}),
    "no address": ({"ip": "not an address"}, {"connection_creation_rate": 1.0}),
    "a fraction of a connection": ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.5}),
}

for _case, (_entity, _values) in BAD.items():

    @probe(f"quotas: {_case}")
    def _bad(session: Session, entity: Entity = _entity, values: dict[str, float | None] = _values) -> Any:
        return alter(session, entity, values)


BAD_FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "an unknown entity": [("planet", 0, "mars")],
    "twice the same": [("user", 0, "a"), ("user", 0, "b")],
    "an address and a user": [("ip", 0, "10.0.0.1"), ("user", 0, "b")],
    "exactly nothing": [("user", 0, None)],
    "a name with the default": [("user", 1, "a")],
    "an unknown match": [("user", 7, None)],
}

for _case, _components in BAD_FILTERS.items():

    @probe(f"quotas: described by {_case}")
    def _bad_filter(session: Session, components: list[tuple[str, int, str | None]] = _components) -> Any:
        return describe(session, *components)


ONE_ACL = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip


@probe("acls without an authorizer")
def _disabled(session: Session) -> Any:
    told = [session.ask("describe_acls", version, build("describe_acls", version, ANY_ACL)) for version in (1, 2, 3)]
    told += [session.ask("create_acls", v, build("create_acls", v, {"creations": [ONE_ACL]})) for v in (1, 2, 3)]
    return [*told, *(session.ask("delete_acls", v, build("delete_acls", v, {"filters": [ANY_ACL]})) for v in (1, 2, 3))]


for _field, _number in (("resource_type_filter", 99), ("operation", 0), ("permission_type", 77), ("operation", -1)):

    @probe(f"acls: a filter whose {_field} is {_number}")
    def _unknown(session: Session, field: str = _field, number: int = _number) -> Any:
        return session.ask("describe_acls", 3, build("describe_acls", 3, ANY_ACL | {field: number}))
