"""The same script against Apache Kafka and Penstock: the same answers, and the same bytes in the internal topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.client.sync import SyncClient
from penstock.coordinator.transaction import records as formats
from penstock.coordinator.transaction.state import Transaction
from penstock.protocol import messages
from penstock.testing.raw_transactions import (
    RawProducer,
    create_topic,
    described,
    end,
    initialize,
    records,
    until,
)

pytestmark = pytest.mark.java

TRANSACTION_TOPIC = "__transaction_state"


def settled(client: SyncClient, transactional_id: str) -> str:
    """The state once no markers are on their way."""
    return str(
        until(
            lambda: state if not (state := shown(client, transactional_id)).startswith("Prepare") else None, "markers"
        )
    )


def shown(client: SyncClient, transactional_id: str) -> str:
    return str(described(client, transactional_id).transaction_state)


def script(client: SyncClient) -> list[Any]:
    """What a client can observe, without producer ids and times."""
    seen: list[Any] = []
    create_topic(client, "orders", 2)

    # Version 2: commit, abort, an abort with nothing in it, retries of lost answers, ends in the wrong state.
    producer = RawProducer(client, "v2")
    seen += [producer.epoch, producer.send("orders", 0, "a"), producer.send("orders", 1, "b")]
    held = producer.pair
    seen += [producer.end(True), settled(client, "v2"), producer.epoch]
    seen += [end(client, "v2", held, True).error_code, end(client, "v2", held, False).error_code]
    seen += [end(client, "v2", producer.pair, True).error_code]
    held = producer.pair
    seen += [producer.end(False), settled(client, "v2"), producer.epoch]
    seen += [end(client, "v2", held, False).error_code, end(client, "v2", held, True).error_code]
    seen += [end(client, "v2", (held[0] + 77, held[1]), True).error_code]
    seen += [producer.send("orders", 0, "c"), producer.end(False), settled(client, "v2")]
    # A newcomer aborts what is open and fences; the zombie learns it in every way there is.
    seen += [producer.send("orders", 0, "d")]
    newcomer = RawProducer(client, "v2")
    seen += [newcomer.epoch - producer.epoch, producer.send("orders", 0, "e"), producer.end(True)]
    seen += [end(client, "v2", producer.pair, True, version=1).error_code]

    # Version 1: explicit partitions, ends that do not bump.
    old = RawProducer(client, "v1", implicit=False)
    seen += [old.end(True), old.end(False)]
    seen += [sorted(old.add(("orders", 0), ("orders", 9)).values()), sorted(old.add(("orders", 0)).values())]
    seen += [old.send("orders", 0, "f"), old.send("orders", 1, "not added")]
    seen += [old.end(True), settled(client, "v1"), old.end(True), old.end(False), old.epoch]

    # InitProducerId with and without the pair that the client holds.
    pair = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
    first, again = (initialize(client, "v1", **pair) for _ in range(2))
    seen += [first.error_code, first.producer_epoch, again.error_code, again.producer_epoch]
    wrong = {"producer_id": old.producer_id, "producer_epoch": old.epoch + 9}
    seen += [initialize(client, "v1", version=version, **wrong).error_code for version in (3, 4)]
    seen += [initialize(client, "", 1000).error_code, initialize(client, "t", 0).error_code]
    seen += [initialize(client, "t", 900_001).error_code, initialize(client, "t", producer_id=4).error_code]

    request = messages.api("list_transactions").Request(state_filters=["Empty", "Nonsense"])
    listed = client.call_any("list_transactions", request, version=1)
    seen += [listed.unknown_state_filters, sorted(t.transactional_id for t in listed.transaction_states)]
    state = described(client, "v1")
    seen += [state.error_code, state.transaction_state, state.transaction_timeout_ms, described(client, "x").error_code]
    seen += [[(r.value or b"").decode() for r in records(client, "orders", p)] for p in (0, 1)]
    return seen


def transaction_log(client: SyncClient) -> list[tuple[str, bytes]]:
    partitions = client.metadata([TRANSACTION_TOPIC]).topics[TRANSACTION_TOPIC].partitions
    found = [record for index in sorted(partitions) for record in records(client, TRANSACTION_TOPIC, index)]
    return [(formats.decode_key(r.key or b"") or "", r.value or b"") for r in found]


def comparable(entries: list[tuple[str, bytes]]) -> dict[str, list[Transaction]]:
    """By id, in order; times and producer ids reduced to what they mean."""
    by_id: dict[str, list[Transaction]] = {}
    for transactional_id, value in entries:
        transaction = formats.decode_value(transactional_id, value)
        by_id.setdefault(transactional_id, []).append(
            replace(
                transaction,
                producer_id=0,
                previous_producer_id=min(transaction.previous_producer_id, 0),
                last_update_ms=0,
                start_ms=min(transaction.start_ms, 0),
            )
        )
    return by_id


def test_penstock_answers_and_writes_as_kafka_does(own_apache_kafka: Any, penstock_broker_factory: Any) -> None:
    with SyncClient(own_apache_kafka.bootstrap) as kafka:
        expected = script(kafka)
        theirs = transaction_log(kafka)
    broker = penstock_broker_factory(settings={"transaction.two.phase.commit.enable": "false"})
    with SyncClient(broker.bootstrap) as penstock:
        assert script(penstock) == expected
        ours = transaction_log(penstock)
    for transactional_id, value in theirs:
        assert formats.encode_value(formats.decode_value(transactional_id, value)) == value
    assert comparable(ours) == comparable(theirs)
