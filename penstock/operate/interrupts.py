"""Ctrl-C while a C library works: it waits until the call is over, and it is never lost.

Python raises KeyboardInterrupt wherever it happens to be: in the middle of a call that holds messages, or in a callback
whose exceptions nobody sees. Here the signal is noted, and the reading loop ends at a place of its own choice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """SIGINT is its own between `take_over` and `give_back`. Idle outside the main thread, which alone gets signals."""

    def __init__(self) -> None:
        self._asked = False
        self._held = False
        self._before: Any = None

    def take_over(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)

    def give_back(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    @contextmanager
    def held(self, *, ending: bool = False) -> Iterator[None]:
        """A call that must not be torn apart; a Ctrl-C that came before or meanwhile ends the block.

        `ending`: the end is under way already, there is nothing more to ask for.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked and not ending:
            raise KeyboardInterrupt

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self._asked = True
        if not self._held:
            raise KeyboardInterrupt
