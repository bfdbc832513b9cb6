"""A hundred random sequences of group and transaction requests, side by side with Apache Kafka: the same answers.

`make prove-lockstep` runs thousands. A difference names its seed and the steps that led there.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.embedded import EmbeddedBroker
from penstock.testing import lockstep, peers

pytestmark = pytest.mark.java
SEQUENCES = 100


def test_penstock_and_kafka_say_the_same_step_by_step() -> None:
    with peers.apache_kafka(settings=lockstep.SETTINGS) as kafka, EmbeddedBroker(settings=lockstep.SETTINGS) as broker:
        found = asyncio.run(lockstep.run(kafka.bootstrap, broker.bootstrap, seed=1, sequences=SEQUENCES))
    assert found == [], "\n".join(found)
