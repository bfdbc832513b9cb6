"""Length-prefixed frames out of a byte stream: small ones from a shared buffer, large ones read in place, no copies."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

__all__ = ["FrameReader"]

SMALL_BUFFER_BYTES = 64 * 1024


class FrameReader(asyncio.BufferedProtocol):
    """Calls `on_frame(view)` for each frame (without its length); the view belongs to the receiver."""

    def __init__(
        self, on_frame: Callable[[memoryview], None], on_lost: Callable[[Exception | None], None], max_frame_bytes: int
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._max_frame_bytes = max_frame_bytes
        self._small = bytearray(SMALL_BUFFER_BYTES)
        self._small_length = 0
        self._large: bytearray | None = None
        self._large_length = 0
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    async def drained(self) -> None:
        """Wait while the peer reads slower than we write."""
        if not self._writable.is_set():
            await self._writable.wait()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._on_lost(exc)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_length :]
        return memoryview(self._small)[self._small_length :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._small_length += nbytes
            self._take_small_frames()
            return
        self._large_length += nbytes
        if self._large_length == len(self._large):
            frame, self._large = self._large, None
            self._on_frame(memoryview(frame))

    def _take_small_frames(self) -> None:
        buffer, position, end = self._small, 0, self._small_length
        while end - position >= 4:
            (size,) = struct.unpack_from(">i", buffer, position)
            if not 0 <= size <= self._max_frame_bytes:
                self._on_lost(ValueError(f"a frame that claims {size} bytes came in: this is not a Kafka listener"))
                if self._transport is not None:
                    self._transport.abort()
                self._small_length = 0
                return
            if end - position - 4 >= size:
                self._on_frame(memoryview(bytes(buffer[position + 4 : position + 4 + size])))
                position += 4 + size
            elif size + 4 > len(buffer):
                self._large = bytearray(size)
                self._large_length = end - position - 4
                self._large[: self._large_length] = buffer[position + 4 : end]
                position = end
            else:
                break
        remaining = end - position
        buffer[:remaining] = buffer[position:end]
        self._small_length = remaining
