"""The power goes at any disk call: a part of what `make prove-power` tries."""

from __future__ import annotations

import pytest

from penstock.testing.disk import crashes


def test_a_power_loss_at_any_call_leaves_a_prefix_with_all_that_was_synced(on_a_quick_disk: None) -> None:
    """Every call that changes something, and a second loss during the load of what the first one left."""
    for number in range(crashes.count_changes()):
        crash = crashes.Crash(number, seed=number % 7)
        try:
            crashes.try_crash(crash)
        except Exception as error:
            pytest.fail(f"python -m penstock.testing.disk '{crash}' reproduces: {type(error).__name__}: {error}")
