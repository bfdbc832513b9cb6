"""A file of fixed-size index entries that only grows at its end: what the offset and the time index share.

New entries wait in memory and go to the file in pages, after the log bytes that they point to. The file is always
exactly as long as its entries (Kafka preallocates, but its own tools cannot read an active index then). No descriptor
is kept: a lookup opens, reads a few bytes and closes.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

from penstock.log import cold, disk

_PAGE_ENTRIES: Final = 512
_FLUSH_BYTES: Final = 4096


class IndexFile:
    """Entries [0, count): the first `in_file` lie in the file, the rest in `pending`."""

    __slots__ = ("_in_file", "_seen", "entry", "path", "pending")

    def __init__(self, path: str | os.PathLike[str], entry: Struct) -> None:
        self.path = os.fspath(path)
        self.entry = entry
        self.pending = bytearray()
        self._in_file = -1  # not looked at yet
        self._seen: tuple[int, tuple[int, int]] = (-1, (0, 0))  # the entry read last: a start asks thrice for the end

    @property
    def in_file(self) -> int:
        if self._in_file < 0:
            try:
                self._in_file = os.stat(self.path).st_size // self.entry.size  # noqa: PTH116
            except FileNotFoundError:
                self._in_file = 0
        return self._in_file

    def __len__(self) -> int:
        return self.in_file + len(self.pending) // self.entry.size

    def is_sane(self) -> bool:
        """Whether the file holds whole entries only."""
        try:
            count, rest = divmod(os.stat(self.path).st_size, self.entry.size)  # noqa: PTH116
        except FileNotFoundError:
            return False
        self._in_file = count
        return rest == 0

    def get(self, index: int) -> tuple[int, int]:
        """Entry by number; negative counts from the end. IndexError if there is none."""
        count = len(self)
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(index)
        in_file = self.in_file
        if index >= in_file:
            first, second = self.entry.unpack_from(self.pending, (index - in_file) * self.entry.size)
        elif index == self._seen[0]:
            return self._seen[1]
        else:
            first, second = self.entry.unpack(self._read(index, 1))
            self._seen = (index, (first, second))
        return first, second

    def search(self, column: int, target: int) -> tuple[int, int] | None:
        """Last entry whose `column` is at most `target`; columns rise. None if all are larger."""
        entry = self.entry
        if self.pending and entry.unpack_from(self.pending)[column] <= target:
            return self._bisect(self.pending, column, target)
        low, high = 0, self.in_file
        if not high:
            return None
        must_not_wait = cold.must_not_wait()
        fd = disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while high - low > _PAGE_ENTRIES:
                middle = (low + high) // 2
                if must_not_wait:
                    cold.look(fd, entry.size, middle * entry.size)
                if entry.unpack(disk.pread(fd, entry.size, middle * entry.size))[column] <= target:
                    low = middle
                else:
                    high = middle
            if must_not_wait:
                cold.look(fd, (high - low) * entry.size, low * entry.size)
            page = disk.pread(fd, (high - low) * entry.size, low * entry.size)
        finally:
            os.close(fd)
        return self._bisect(page, column, target)

    def _bisect(self, page: bytes | bytearray, column: int, target: int) -> tuple[int, int] | None:
        entry = self.entry
        low, high = 0, len(page) // entry.size
        while low < high:
            middle = (low + high) // 2
            if entry.unpack_from(page, middle * entry.size)[column] <= target:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        first, second = entry.unpack_from(page, (low - 1) * entry.size)
        return first, second

    def all(self) -> list[tuple[int, int]]:
        """Every entry, in order."""
        content = self._read(0, self.in_file) + bytes(self.pending)
        return list(self.entry.iter_unpack(content))

    def _read(self, index: int, count: int) -> bytes:
        if not count:
            return b""
        fd = disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return disk.pread(fd, count * self.entry.size, index * self.entry.size)
        finally:
            os.close(fd)

    def append(self, first: int, second: int) -> None:
        self.pending += self.entry.pack(first, second)

    def drop_pending_from(self, pending_bytes: int) -> None:
        """Take back entries whose log bytes were never written."""
        del self.pending[pending_bytes:]

    def write_if_due(self) -> None:
        """Write when a page is full."""
        if len(self.pending) >= _FLUSH_BYTES:
            self.write()

    def write(self) -> None:
        """Bring the file up to date (not synced). Pending entries stay when the disk refuses them."""
        if not self.pending:
            return
        position = self.in_file * self.entry.size
        fd = disk.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            done = disk.pwrite(fd, self.pending, position)
            whole = done - done % self.entry.size
            if whole != len(self.pending):
                disk.ftruncate(fd, position + whole)
        finally:
            os.close(fd)
        del self.pending[:whole]
        self._in_file += whole // self.entry.size

    def create(self) -> None:
        """An empty file, whatever was there."""
        self.make_file()
        self.pending.clear()

    def make_file(self) -> None:
        """An empty file for the entries that wait."""
        os.close(disk.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        self.expect_nothing()

    def expect_nothing(self) -> None:
        """There is no file, or an empty one: no need to look."""
        self._in_file = 0
        self._seen = (-1, (0, 0))

    def keep(self, count: int) -> None:
        """Forget all entries behind the first `count`."""
        in_file = self.in_file
        if count >= in_file:
            del self.pending[(count - in_file) * self.entry.size :]
            return
        self.pending.clear()
        self._seen = (-1, (0, 0))
        disk.truncate(self.path, count * self.entry.size)
        self._in_file = count
