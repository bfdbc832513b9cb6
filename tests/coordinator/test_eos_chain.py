"""The chain of three groups under random kills, in short; a million records are `make prove-eos`."""

from __future__ import annotations

import pytest

from penstock.testing.eos_chain import run

pytestmark = pytest.mark.slow

QUICK = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


def test_with_transactions_each_record_arrives_exactly_once() -> None:
    outcome = run(10_000, seed=7, batch=100, strikes=8, deadline_seconds=900, broker_settings=QUICK)
    assert outcome.worker_kills + outcome.broker_kills >= 7
    assert (outcome.lost, outcome.repeated, outcome.damaged) == (0, 0, 0), outcome


def test_without_transactions_each_record_arrives_at_least_once() -> None:
    outcome = run(10_000, plain=True, seed=8, batch=100, strikes=8, deadline_seconds=900, broker_settings=QUICK)
    assert outcome.worker_kills + outcome.broker_kills >= 7
    assert (outcome.lost, outcome.damaged) == (0, 0), outcome
