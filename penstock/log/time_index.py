"""The time index of a segment (`.timeindex`): highest timestamp so far → last offset of the batch that reached it."""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

from penstock.log.index_file import IndexFile

ENTRY: Final = Struct(">qi")  # timestamp, offset relative to the segment's base


class TimeIndex:
    """Timestamps strictly rise."""

    __slots__ = ("_last_timestamp", "base_offset", "file")

    def __init__(self, path: str | os.PathLike[str], base_offset: int) -> None:
        self.file = IndexFile(path, ENTRY)
        self.base_offset = base_offset
        self._last_timestamp: int | None = None

    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the newest entry; (-1, base offset) when there is none."""
        return self.entry_at(len(self.file) - 1)

    def entry_at(self, index: int) -> tuple[int, int]:
        """(timestamp, offset) of an entry; (-1, base offset) before the first one."""
        if index < 0:
            return -1, self.base_offset
        timestamp, relative = self.file.get(index)
        return timestamp, self.base_offset + relative

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Times that do not rise are no news."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last_entry()[0]
        if timestamp > self._last_timestamp:
            self.file.append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def drop_pending_from(self, pending_bytes: int) -> None:
        """Take back entries whose log bytes were never written."""
        self.file.drop_pending_from(pending_bytes)
        self._last_timestamp = None

    def lookup(self, timestamp: int) -> int:
        """An offset at or before the first batch that reaches `timestamp`."""
        found = self.file.search(0, timestamp)
        return self.base_offset if found is None else self.base_offset + found[1]

    def count_below(self, offset: int) -> int:
        """How many entries point below `offset`."""
        relative = offset - self.base_offset
        low, high = 0, len(self.file)
        while low < high:
            middle = (low + high) // 2
            if self.file.get(middle)[1] < relative:
                low = middle + 1
            else:
                high = middle
        return low

    def keep(self, count: int) -> None:
        """Forget all entries behind the first `count`."""
        self.file.keep(count)
        self._last_timestamp = None

    def is_full(self, max_bytes: int) -> bool:
        """One slot stays free for the entry that is forced at the roll."""
        return len(self.file) >= max_bytes // ENTRY.size - 1

    def is_sane(self) -> bool:
        """Whole entries, rising in time, the last one not before the base."""
        if not self.file.is_sane():
            return False
        if not len(self.file):
            return True
        first, last = self.file.get(0), self.file.get(-1)
        return last[0] >= first[0] and last[1] >= 0
