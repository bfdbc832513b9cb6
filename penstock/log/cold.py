"""Reads that would wait for the disk: whoever must not wait is told so, and has the pages read by a thread first.

cold.refuse_to_wait()
try:
    ...                     # reads of old segments raise ColdPages instead of waiting
finally:
    cold.wait_again()

Only the thread that said so is told. Filesystems that cannot tell whether pages are in memory are read as ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from typing import Any

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOBODY = 0

_unwilling = _NOBODY  # the thread that must not wait; another loop in this process may take its place, and it waits


class ColdPages(Exception):
    """What is read next lies on the disk only. `warm` reads it, in a thread."""

    def __init__(self) -> None:
        super().__init__("pages are not in memory")
        self.warm: Callable[[], Any] = lambda: None


def refuse_to_wait() -> None:
    global _unwilling
    _unwilling = get_ident()


def wait_again() -> None:
    global _unwilling
    _unwilling = _NOBODY


def must_not_wait() -> bool:
    return _unwilling != _NOBODY and _unwilling == get_ident()


def look(fd: int, size: int, position: int) -> None:
    """Raise ColdPages where this read would wait: a few pages, of which the first and the last are looked at."""
    if size <= 0:
        return
    byte = [bytearray(1)]
    try:
        os.preadv(fd, byte, position, _NOWAIT)
        os.preadv(fd, byte, position + size - 1, _NOWAIT)
    except BlockingIOError:
        raise ColdPages from None
    except OSError:
        return
