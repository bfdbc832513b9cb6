"""The same requests to Apache Kafka and to Penstock bring the same answers, but for the differences that we list."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock.testing import peers, probes
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
