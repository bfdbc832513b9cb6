"""A manual clock moves only when told; the wall clock may jump, the monotonic one never does."""

from __future__ import annotations

import pytest

from penstock.base.clock import Clock, ManualClock, SystemClock


def test_the_manual_clock_moves_both_times_together() -> None:
    clock = ManualClock(now_ms=1_000)
    clock.advance(250)
    assert clock.now_ms() == 1_250
    assert clock.monotonic() == 0.25


def test_the_wall_may_jump_back_but_durations_do_not() -> None:
    clock = ManualClock(now_ms=5_000)
    clock.advance(100)
    clock.set_wall(1_000)
    assert clock.now_ms() == 1_000
    assert clock.monotonic() == 0.1
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_the_system_clock_is_a_clock() -> None:
    clock: Clock = SystemClock()
    assert clock.now_ms() > 1_600_000_000_000
    assert clock.monotonic() <= clock.monotonic()
