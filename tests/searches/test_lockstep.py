"""A hundred random sequences of group and transaction requests, side by side with Apache Kafka: the same answers.

`make prove-lockstep` runs thousands. A difference names its seed and the steps that led there.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.embedded import EmbeddedBroker
from penstock.testing import peers
from penstock.testing.lockstep.run import run
from penstock.testing.lockstep.sides import SETTINGS

pytestmark = pytest.mark.java
SEQUENCES = 100


def test_penstock_and_kafka_say_the_same_step_by_step() -> None:
    with peers.apache_kafka(settings=SETTINGS) as kafka, EmbeddedBroker(settings=SETTINGS) as broker:
        found = asyncio.run(run(kafka.bootstrap, broker.bootstrap, seed=1, sequences=SEQUENCES))
    assert found == [], "\n".join(found)
