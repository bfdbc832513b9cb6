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


def test_one_is_not_several() -> None:
    assert [numbers.plural(value, "record") for value in (None, 0, 1, 2)] == ["–", "0 records", "1 record", "2 records"]
