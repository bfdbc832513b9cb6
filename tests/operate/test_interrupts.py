"""Ctrl-C around calls of a C library: noted during the call, raised after it, not lost in a callback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from penstock.operate.interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    taken = Interrupts()
    taken.take_over()
    yield taken
    taken.give_back()


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_call_that_is_held_ends_before_the_interrupt(interrupts: Interrupts) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        press_ctrl_c()
        done.append("the call")
    assert done == ["the call"]


def test_an_interrupt_that_a_callback_swallowed_comes_at_the_next_call(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallowed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: swallowed.append(ignored.exc_type))

    class Careless:
        def __del__(self) -> None:
            press_ctrl_c()

    Careless()  # Python goes on after what is raised in there
    assert swallowed == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        pass


def test_between_calls_it_comes_at_once_and_at_the_end_not_at_all(interrupts: Interrupts) -> None:
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
    with interrupts.held(ending=True):
        press_ctrl_c()


def test_the_handler_of_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    taken = Interrupts()
    taken.take_over()
    assert signal.getsignal(signal.SIGINT) is not before
    taken.give_back()
    assert signal.getsignal(signal.SIGINT) is before
