"""Every disk call fails once, the power goes at every call: a part of what `make prove-disk` and `prove-power` try."""

from __future__ import annotations

import time

import pytest

from penstock.testing.disk import crashes, faults

BUDGET_SECONDS = 35.0


def test_a_fault_at_every_place_breaks_no_promise() -> None:
    """Each place × each error at its first call; then, as long as there is time, lasting ones and later calls."""
    plans = sorted(faults.plans(every_call=False), key=lambda plan: (plan.number > 1, plan.lasts, str(plan)[::-1]))
    deadline = time.monotonic() + BUDGET_SECONDS
    for plan in plans:
        try:
            faults.try_plan(plan)
        except Exception as error:
            pytest.fail(f"python -m penstock.testing.disk '{plan}' reproduces: {type(error).__name__}: {error}")
        if time.monotonic() > deadline:
            break


def test_a_power_loss_at_any_call_leaves_a_prefix_with_all_that_was_synced() -> None:
    changes = crashes.count_changes()
    step = 617 if changes % 617 else 619  # a prime: neighbours in time are far apart in the life of the logs
    deadline = time.monotonic() + BUDGET_SECONDS
    for turn in range(changes):
        crash = crashes.Crash(turn * step % changes, seed=turn % 7)
        try:
            crashes.try_crash(crash)
        except Exception as error:
            pytest.fail(f"python -m penstock.testing.disk '{crash}' reproduces: {type(error).__name__}: {error}")
        if time.monotonic() > deadline:
            break
