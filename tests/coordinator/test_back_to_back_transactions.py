"""A transaction right behind another one: the markers of the first are on their way while the second begins."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.client.sync import SyncClient
from penstock.log.producer_state import ProducerState
from penstock.testing import peers
from penstock.testing.raw_transactions import create_topic, until, values

JAVA_LOOPS = Path(__file__).parent / "java" / "BusyTransactions.java"
LOOPS = 6
RECORDS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    settings = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    with penstock.Broker(settings=settings) as started:
        yield started


def state_with_open_transaction() -> ProducerState:
    state = ProducerState()
    state.put_batch(7, 4, 0, 0, 0, 0, True)
    return state


def test_the_marker_of_the_transaction_before_leaves_the_next_ones_guard_alone() -> None:
    """Version 2: the marker carries the epoch that the client was given for its next transaction."""
    state = state_with_open_transaction()
    guard = state.verifications.start(7, 5, 0, True, 0)
    assert state.end_transaction(7, 5, 0, aborted=False, offset=1, timestamp=0) is not None
    assert state.verifications.is_running(7, guard)


@pytest.mark.parametrize(
    ("guard_epoch", "bumps", "marker_epoch"), [(4, False, 4), (4, True, 5), (5, False, 5)], ids=["v1", "late", "old"]
)
def test_a_late_batch_finds_its_guard_ended(guard_epoch: int, bumps: bool, marker_epoch: int) -> None:
    """Else it would open a transaction that nobody ends."""
    state = state_with_open_transaction()
    guard = state.verifications.start(7, guard_epoch, 0, bumps, 0)
    state.end_transaction(7, marker_epoch, 0, aborted=True, offset=1, timestamp=0)
    assert not state.verifications.is_running(7, guard)


@pytest.mark.java
def test_fast_exactly_once_loops_of_the_java_client_meet_no_error(broker: Any) -> None:
    """Six loops at once without a pause; a producer that is told INVALID_TXN_STATE or PRODUCER_FENCED is dead."""
    with SyncClient(broker.bootstrap) as client:
        create_topic(client, "in", LOOPS)
        create_topic(client, "out", 2)
        feeder = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(LOOPS):
            for number in range(RECORDS):
                feeder.produce("in", f"{partition}/{number}", partition=partition)
        feeder.flush(120)
        arguments = (broker.bootstrap, "in", "out", str(LOOPS), str(RECORDS))
        command = peers.java_command(peers.kafka_jars(), str(JAVA_LOOPS), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

        expected = sorted(f"{partition}/{number}" for partition in range(LOOPS) for number in range(RECORDS))

        def copied() -> list[str]:
            return sorted(value for partition in (0, 1) for value in values(client, "out", partition))

        until(lambda: len(copied()) >= len(expected), "the last markers")
        assert copied() == expected
