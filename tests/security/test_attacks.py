"""The short form of `make prove-attacks`: memory stays bounded, and a client beside the attacker is served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.attacks import make_topics, penstock_broker, suffer

PEAK_BYTES = 500 * 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[int, int]]:
    with penstock_broker() as (port, pid):
        make_topics(port)
        yield port, pid


@pytest.mark.parametrize(
    "name",
    [
        "300,000 records without keys, compacted topic",
        "bombs of 64 MB in every codec",
        "30 readers that stall",
        "200 half-sent frames of 4 MB",
    ],
)
def test_an_attack_stays_within_its_memory_and_others_are_served(broker: tuple[int, int], name: str) -> None:
    outcome = suffer(name, *broker, seconds=1.0)
    assert outcome.peak_bytes < PEAK_BYTES
