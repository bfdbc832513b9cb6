"""What security costs: TLS beside Kafka's, and ACLs and quotas beside the same broker without them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench import load, targets
from bench.broker_scenarios import measured
from bench.large_fetches import Served, both_with_tls, trusting
from bench.load import create_topic
from bench.report import Row, alternate, at_least, at_most, warm
from bench.stage import Stage
from penstock.protocol import messages

SECTION = "Security"
FETCH_BYTES = 1 << 20
OTHER_ACLS = 200

Sides = dict[str, Served]
Seen = dict[str, dict[str, float]]


def _produce_over_tls(sides: Sides, topic: str, batch: bytes, in_flight: int, rounds: int, seconds: float) -> Seen:
    measures = {}
    for name, side in sides.items():
        create_topic(side.target.port, topic)
        request = load.produce_frame(topic, 0, batch)
        size = load.check_produce(side.target.port, request)
        work = partial(load.pipelined, side.tls_port, request, size, in_flight, seconds, trusting())
        measures[name] = partial(measured, side.target, work)
    warm(measures)
    return alternate(rounds, measures)


def small_rows(sides: Sides, rounds: int, seconds: float) -> list[Row]:
    seen = _produce_over_tls(sides, "small", load.one_batch(1, 100), 100, rounds, seconds)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "one-record produce, 100 in flight, over TLS"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 1),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["cpu"], theirs["cpu"], 1),
    ]


def batches_rows(sides: Sides, rounds: int, seconds: float) -> list[Row]:
    batch = load.one_batch(1000, 100)
    seen = _produce_over_tls(sides, "batches", batch, 10, rounds, seconds)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "100 KB batches, 10 in flight, over TLS"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 1),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["cpu"], theirs["cpu"], 1),
    ]


def fetch_rows(sides: Sides, rounds: int, seconds: float) -> list[Row]:
    measures = {}
    megabyte = load.produce_frame("read", 0, load.one_batch(1000, 1000))
    request = load.fetch_frame("read", 0, 0, FETCH_BYTES)
    for name, side in sides.items():
        create_topic(side.target.port, "read")
        for _ in range(2):
            load.check_produce(side.target.port, megabyte)
        with load.connect(side.target.port) as connection:
            connection.sendall(request)
            size = len(load.read_frame(connection)) + 4
        work = partial(load.drain_fetches, side.tls_port, request, size, 2, seconds, trusting())
        measures[name] = partial(measured, side.target, work)
    warm(measures)
    seen = alternate(rounds, measures, fresh_memory=False)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "fetching 1 MB, two in flight, over TLS"
    return [
        at_least(SECTION, name, "requests/s", ours["rate"], theirs["rate"], 1),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["cpu"], theirs["cpu"], 1),
    ]


# ACLs and quotas -----------------------------------------------------------------------------------------------------


def checks_rows(brokers: dict[str, targets.Target], rounds: int, seconds: float) -> list[Row]:
    """One-record produces, the case in which checks weigh most."""
    measures = {}
    for name, target in brokers.items():
        create_topic(target.port, "checked")
        request = load.produce_frame("checked", 0, load.one_batch(1, 100))
        size = load.check_produce(target.port, request)
        work = partial(load.pipelined, target.port, request, size, 100, seconds)
        measures[name] = partial(measured, target, work)
    warm(measures)
    seen = alternate(max(rounds, 7), measures, fresh_memory=False)
    name = "one-record produce, 100 in flight, with ACLs and a quota: broker CPU"
    row = at_most(SECTION, name, "µs/request", seen["guarded"]["cpu"], seen["open"]["cpu"], 1.05)
    return [replace(row, peer="Penstock without them")]


@contextlib.contextmanager
def open_and_guarded() -> Iterator[dict[str, targets.Target]]:
    """The same broker twice, once with rules to look at: the sender's own among those of many others."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",  # who else would set the first rule here
    }
    with (
        targets.penstock_broker() as plain,
        targets.penstock_broker(rules | {"allow.everyone.if.no.acl.found": "true"}) as guarded,
    ):
        _set_rules(guarded.port)
        yield {"open": plain, "guarded": guarded}


def _set_rules(port: int) -> None:
    quotas = messages.api("alter_client_quotas").load_all_versions()
    entry = quotas.request_struct("EntryData")(
        entity=[quotas.request_struct("EntityData")(entity_type="client-id", entity_name=None)],
        ops=[quotas.request_struct("OpData")(key="producer_byte_rate", value=1e12, remove=False)],
    )
    load.call(port, "alter_client_quotas", 1, quotas.Request(entries=[entry], validate_only=False))
    acls = messages.api("create_acls").load_all_versions()

    def allow(kind: int, name: str, pattern: int, principal: str) -> object:
        return acls.request_struct("AclCreation")(
            resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal, host="*",
            operation=2, permission_type=3,
        )  # fmt: skip

    literal, prefixed, topic, cluster = 3, 4, 2, 4
    creations = [allow(topic, f"other-{index}", literal, f"User:u{index}") for index in range(OTHER_ACLS)]
    creations += [
        allow(topic, "check", prefixed, "User:ANONYMOUS"),
        allow(cluster, "kafka-cluster", literal, "User:ANONYMOUS"),
    ]
    answer = load.call(port, "create_acls", 3, acls.Request(creations=creations))
    refused = [result.error_message for result in answer.results if result.error_code]  # type: ignore[attr-defined]
    if refused:
        raise RuntimeError(f"ACLs were refused: {refused[0]}")


STAGES = [
    Stage({"tls-small": small_rows, "tls-batches": batches_rows, "tls-fetch": fetch_rows}, both_with_tls),
    Stage({"checks": checks_rows}, open_and_guarded),
]
