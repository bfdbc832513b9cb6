"""The sparse offset index of a segment (`.index`): last offset of a batch → byte position where that batch begins."""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

from penstock.log.index_file import IndexFile

ENTRY: Final = Struct(">ii")  # offset relative to the segment's base, position


class OffsetIndex:
    """Entries strictly rise in offset and position."""

    __slots__ = ("base_offset", "file")

    def __init__(self, path: str | os.PathLike[str], base_offset: int) -> None:
        self.file = IndexFile(path, ENTRY)
        self.base_offset = base_offset

    def append(self, offset: int, position: int) -> None:
        self.file.append(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`; 0 when the index knows none."""
        found = self.file.search(0, offset - self.base_offset)
        return 0 if found is None else found[1]

    def count_below(self, offset: int) -> int:
        """How many entries point below `offset`."""
        relative = offset - self.base_offset
        low, high = 0, len(self.file)
        while low < high:
            middle = (low + high) // 2
            if self.file.get(middle)[0] < relative:
                low = middle + 1
            else:
                high = middle
        return low

    def is_full(self, max_bytes: int) -> bool:
        return len(self.file) >= max_bytes // ENTRY.size

    def is_sane(self) -> bool:
        """Whole entries, and the last one not before the base."""
        return self.file.is_sane() and (not len(self.file) or self.file.get(-1)[0] >= 0)
