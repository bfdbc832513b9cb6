"""The same requests to Apache Kafka and to Penstock bring the same answers, but for the differences that we list."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock.testing import mutilated, peers, probes
from penstock.testing.probes.differences import PROBES


@pytest.mark.java
def test_penstock_answers_as_apache_kafka_does(apache_kafka: peers.KafkaPeer) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "broker.id": "1"}
    with penstock.Broker(settings=settings) as broker:
        ours = probes.run(int(broker.bootstrap.rpartition(":")[2]))
    theirs = probes.run(apache_kafka.ports[0])

    differing = {name for name in theirs if _comparable(ours[name]) != _comparable(theirs[name])}
    unexpected = {name: (ours[name], theirs[name]) for name in sorted(differing - set(PROBES))}
    assert not unexpected, (
        f"{len(unexpected)} of {len(theirs)} probes differ: {json.dumps(unexpected, default=str, indent=1)}"
    )
    assert differing >= set(PROBES), f"no longer different, take it off the list: {set(PROBES) - differing}"
    assert len(theirs) > 200


def _comparable(answer: Any) -> Any:
    return json.loads(json.dumps(answer, default=str))


@pytest.mark.java
def test_what_is_no_request_is_refused_as_apache_kafka_refuses_it(apache_kafka: peers.KafkaPeer) -> None:
    """Every API and version, cut short and with bytes behind its end."""
    theirs = mutilated.outcomes(apache_kafka.ports[0])
    with penstock.Broker(settings={"group.initial.rebalance.delay.ms": "0", "broker.id": "1"}) as broker:
        ours = mutilated.outcomes(broker.port)
        counted = {
            sample.name: sample.value
            for family in broker._broker.metrics.collect()
            for sample in family.samples
            if sample.name in ("penstock_requests_malformed_total", "penstock_request_exceptions_total")
        }
    differing = {what: (ours[what], theirs[what]) for what in ours if what in theirs and ours[what] != theirs[what]}
    assert differing == {}
    assert len(ours.keys() & theirs.keys()) > 1500
    assert set(ours.values()) == {mutilated.ANSWERED, mutilated.CLOSED}
    refused = sum(outcome == mutilated.CLOSED for outcome in ours.values())
    assert counted == {"penstock_requests_malformed_total": refused}
