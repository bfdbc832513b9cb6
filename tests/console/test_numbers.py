"""Figures as people read them."""

from __future__ import annotations

import pytest

from penstock.console.widgets import numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.4, "0 s"), (119, "119 s"), (160.8, "2 min 41 s"), (179.7, "3 min 0 s"), (9000, "2.5 h")],
)
def test_lengths_of_time_have_whole_units(value: float | None, shown: str) -> None:
    assert numbers.seconds(value) == shown


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("retention.ms", "86400000", "86400000 (1 d)"),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("flush.messages", str(2**63 - 1), "no limit"),
        ("retention.bytes", "-1", "-1"),
        ("min.insync.replicas", "2000", "2000"),
        ("cleanup.policy", "compact", "compact"),
    ],
)
def test_settings_say_what_they_amount_to(key: str, value: str, shown: str) -> None:
    assert numbers.setting(key, value) == shown


def test_one_is_not_several() -> None:
    assert [numbers.plural(value, "record") for value in (None, 0, 1, 2)] == ["–", "0 records", "1 record", "2 records"]
