"""What a connection still has to send: buffers and file regions, in order, never more system calls than needed.

Small regions are read and joined with the bytes around them; large ones go by sendfile. Neither may block the loop:
a region whose pages are not in memory makes `flush` return COLD, and the caller warms it in a thread first.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any

DRAINED = 0  # everything is with the kernel
BLOCKED = 1  # the client does not read: wait until the socket is writable
COLD = 2  # the next region must be read from disk first: warm `cold_region`, then flush again

SMALL_REGION_BYTES = 32 * 1024  # below this one pread and a shared send beat a send and a sendfile
PROBE_WINDOW_BYTES = 1024 * 1024
PROBE_STEP_BYTES = 256 * 1024  # twice the kernel's read-ahead: what hides between two probes is read in a moment
BYTES_PER_WAKEUP = 8 * 1024 * 1024  # then other connections get their turn

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class FileGone(Exception):
    """A region promised more bytes than its file still has: the answer cannot be completed."""


class FileRegion:
    """Bytes of an open file that wait to be sent. `owner` keeps the file open though its segment may be deleted."""

    __slots__ = ("fd", "length", "owner", "position", "warm_until")

    def __init__(self, fd: int, position: int, length: int, owner: Any = None) -> None:
        self.fd = fd
        self.position = position
        self.length = length
        self.owner = owner
        self.warm_until = position  # pages up to here were seen in memory

    def __len__(self) -> int:
        return self.length

    def gone(self) -> FileGone:
        """The file is shorter than it was said to be; whoever reads it next looks first."""
        if self.owner is not None:
            self.owner.suspect = True
        return FileGone(f"{self.length} bytes missing at {self.position} of {getattr(self.owner, 'path', 'a file')}")

    def probe(self) -> bool:
        """Whether the next window is in memory. Filesystems that cannot tell count as warm."""
        window_end = min(self.position + self.length, self.position + PROBE_WINDOW_BYTES)
        probe_byte = [bytearray(1)]
        try:
            for position in (*range(self.position, window_end, PROBE_STEP_BYTES), window_end - 1):
                os.preadv(self.fd, probe_byte, position, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass
        self.warm_until = window_end
        return True

    def warm(self) -> None:
        """Read the next window from disk (in a thread)."""
        position = self.position
        window_end = min(position + self.length, position + PROBE_WINDOW_BYTES)
        scratch = bytearray(256 * 1024)
        while position < window_end:
            count = os.preadv(self.fd, [scratch], position)
            if count <= 0:
                break
            position += count
        self.warm_until = window_end


def read_if_warm(fd: int, position: int, length: int) -> bytearray | None:
    """These bytes of a file, if all of them are there and in memory. Filesystems that cannot tell count as warm."""
    data = bytearray(length)
    try:
        count = os.preadv(fd, [data], position, _NOWAIT)
    except BlockingIOError:
        return None
    except OSError:
        count = os.preadv(fd, [data], position)
    return data if count == length else None


class Outbox:
    """The queue of one connection. `pending_bytes` is what its client has not taken yet."""

    __slots__ = ("cold_region", "parts", "sendfile_bytes", "sendfile_calls", "sent_bytes", "sock", "sock_fd")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock_fd = sock.fileno()
        self.parts: deque[Any] = deque()
        self.cold_region: FileRegion | None = None
        self.sent_bytes = 0
        self.sendfile_bytes = 0
        self.sendfile_calls = 0

    @property
    def pending_bytes(self) -> int:
        return sum(part.length if type(part) is FileRegion else len(part) for part in self.parts)

    @property
    def memory_bytes(self) -> int:
        """The same without what is still in files."""
        return sum(len(part) for part in self.parts if type(part) is not FileRegion)

    def send_now(self, data: bytes | bytearray) -> bool:
        """Send what comes alone, past the empty queue. False: the rest is queued, and `flush` will tell why."""
        try:
            sent = self.sock.send(data)
        except OSError:
            sent = 0
        if sent == len(data):
            return True
        self.parts.append(memoryview(data)[sent:])
        return False

    def flush(self) -> int:
        parts = self.parts
        budget = BYTES_PER_WAKEUP
        while parts:
            if budget <= 0:
                return BLOCKED
            if type(parts[0]) is FileRegion and parts[0].length > SMALL_REGION_BYTES:
                status, count = self._send_file(parts[0], budget)
            else:
                status, count = self._send_buffers()
            if status != DRAINED:
                return status
            budget -= count
        return DRAINED

    def _send_buffers(self) -> tuple[int, int]:
        parts = self.parts
        run: list[Any] = []
        flags = 0
        size = 0
        for part in parts:
            if type(part) is FileRegion:
                if part.length > SMALL_REGION_BYTES:
                    flags = socket.MSG_MORE
                    break
                small = self._read_small(part)
                if small is None:
                    if not run:
                        return COLD, 0
                    break
                run.append(small)
                size += len(small)
            else:
                run.append(part)
                size += len(part)
            if size > BYTES_PER_WAKEUP:
                break
        data = run[0] if len(run) == 1 else b"".join(run)
        try:
            sent = self.sock.send(data, flags)
        except BlockingIOError:
            sent = 0
        self.sent_bytes += sent
        if len(run) == len(parts):
            parts.clear()
        else:
            for _ in run:
                parts.popleft()
        if sent < size:
            parts.appendleft(memoryview(data)[sent:])
            return BLOCKED, sent
        return DRAINED, sent

    def _read_small(self, region: FileRegion) -> bytearray | None:
        if region.warm_until < region.position + region.length:
            data = read_if_warm(region.fd, region.position, region.length)
            if data is None:
                self.cold_region = region  # the rest may be cold, or gone: the blocking read will tell
            return data
        data = bytearray(region.length)
        if os.preadv(region.fd, [data], region.position) < region.length:
            raise region.gone()
        return data

    def _send_file(self, region: FileRegion, budget: int) -> tuple[int, int]:
        if region.warm_until <= region.position and not region.probe():
            self.cold_region = region
            return COLD, 0
        count = min(region.warm_until - region.position, region.length, budget)
        try:
            sent = os.sendfile(self.sock_fd, region.fd, region.position, count)
        except BlockingIOError:
            return BLOCKED, 0
        if sent == 0:
            raise region.gone()
        self.sent_bytes += sent
        self.sendfile_bytes += sent
        self.sendfile_calls += 1
        region.position += sent
        region.length -= sent
        if region.length == 0:
            self.parts.popleft()
        # Less than asked: the socket is full, another call would only say so.
        return (DRAINED if sent == count else BLOCKED), sent
