"""The transaction index of a segment (`.txnindex`): which transactions ended there with an abort. Made on first use."""

from __future__ import annotations

import os
from bisect import bisect_left
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from penstock.log import cold, disk
from penstock.log.files import write_all

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0
_last_offset = attrgetter("last_offset")


class InvalidTxnIndex(Exception):
    """The file holds cut, unknown or disordered entries: the segment needs recovery."""


class AbortedEntry(NamedTuple):
    """`last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Entries rise in `last_offset`. They are few, so they are kept in memory once read."""

    __slots__ = ("_entries", "exists", "path")

    def __init__(self, path: str | Path, exists: bool | None = None) -> None:
        self.path = path
        self.exists = Path(path).exists() if exists is None else exists
        self._entries: list[AbortedEntry] | None = None if self.exists else []

    def entries(self) -> list[AbortedEntry]:
        """All entries; InvalidTxnIndex when the file is broken."""
        if self._entries is None:
            if cold.must_not_wait():
                self._look()
            self._entries = read_txn_index(Path(self.path))
        return self._entries

    def _look(self) -> None:
        try:
            fd = disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            cold.look(fd, os.fstat(fd).st_size, 0)
        except cold.ColdPages as pages:
            pages.warm = Path(self.path).read_bytes
            raise
        finally:
            os.close(fd)

    def ending_from(self, offset: int) -> list[AbortedEntry]:
        """Those that ended at `offset` or behind it."""
        entries = self.entries()
        return entries[bisect_left(entries, offset, key=_last_offset) :]

    def append(self, entry: AbortedEntry) -> None:
        """Written at once (not synced): aborts are rare. OSError leaves the index as it was, in memory and, if the disk
        lets us, in the file (what is too much there the next entry overwrites, and a start after a crash rebuilds)."""
        entries = self.entries()
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise ValueError(f"aborted transactions out of order: {entry} behind {entries[-1]}")
        position = len(entries) * ENTRY.size
        fd = disk.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.exists = True
        try:
            write_all(fd, [ENTRY.pack(VERSION, *entry)], position)
        except OSError:
            disk.ftruncate(fd, position)
            raise
        finally:
            os.close(fd)
        entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        """Drop transactions that ended at or behind `offset`."""
        if not self.exists:
            return
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            disk.truncate(self.path, len(kept) * ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Forget everything and the file."""
        disk.discard(Path(self.path))
        self.exists = False
        self._entries = []


def read_txn_index(path: Path) -> list[AbortedEntry]:
    """The entries of a file; none if it is missing."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    if len(content) % ENTRY.size:
        raise InvalidTxnIndex(f"{path.name}: {len(content)} bytes are no whole entries")
    entries: list[AbortedEntry] = []
    for version, *fields in ENTRY.iter_unpack(content):
        if version != VERSION:
            raise InvalidTxnIndex(f"{path.name}: version {version}")
        entry = AbortedEntry(*fields)
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise InvalidTxnIndex(f"{path.name}: entries out of order")
        entries.append(entry)
    return entries
