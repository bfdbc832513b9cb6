"""Memory for one frame that is larger than the usual buffer: all of it reserved at once, and none of it touched yet.

The kernel gives a page when a byte gets there, so nothing is cleared or moved while the frame grows, and a frame that
never comes to its end costs what has come of it. It is filled, and given back, in pieces: a hundred megabytes in one go
would make everybody else wait.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

PIECE_BYTES = 256 * 1024
_FREED_AT_ONCE_BYTES = 4 * 1024 * 1024


class FrameMemory(mmap.mmap):
    """As much of a bytearray as those who read frames need."""

    def __new__(cls, size: int) -> FrameMemory:
        return super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def startswith(self, prefix: bytes, start: int = 0) -> bool:
        return self[start : start + len(prefix)] == prefix

    def give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """To the system, in pieces. Where somebody still holds a view (a log that has to write from it), the memory
        goes with the last one."""
        rest = len(self) - _FREED_AT_ONCE_BYTES
        with contextlib.suppress(BufferError):
            if rest <= 0:
                self.close()
                return
            self.resize(rest)
            loop.call_soon(self.give_back, loop)


ReceiveBuffer = bytearray | FrameMemory
