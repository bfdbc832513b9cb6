"""The offset checkpoints of a log directory: four files, kept in step with the logs that lie there now.

A file outlives the logs it speaks of, and is written in threads. So that no log inherits what was said of another one
of its name, or of records that were cut off since: a new log is begun only after `forget`, records are cut off only
after `lower`, and what was gathered before either of them can no longer be written behind it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    InvalidCheckpoint,
    PartitionOffsets,
    read_offsets,
    write_offsets,
)

_NAMES: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)

Key = tuple[str, int]


class OffsetCheckpoints:
    """Any thread may write; each write is durable. OSError as the disk gives it: then the file may say the old or the
    new, and is written again with the next change, whatever that is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._stored: dict[str, PartitionOffsets] = {}
        self._written: dict[str, int] = {}  # which turn each file shows
        self._turns = itertools.count(1)
        self._since: dict[Key, int] = {}  # what was gathered before this turn does not count for this partition
        self._retired: set[Key] = set()
        self._doubtful: set[str] = set()  # files of which the last write failed

    def read(self, name: str) -> Mapping[Key, int]:
        """A broken checkpoint counts as empty: recovery then reads more than it must, and nothing is lost."""
        with self._lock:
            if name not in self._stored:
                try:
                    self._stored[name] = read_offsets(self._path / name)
                except InvalidCheckpoint:
                    self._stored[name] = {}
            return self._stored[name]

    def prepare(self, name: str, offsets: PartitionOffsets) -> Callable[[], None]:
        """The write of what was gathered just now, to be run in a thread; nothing is written if nothing has changed."""
        turn = next(self._turns)
        return lambda: self._write(name, offsets, turn)

    def write(self, name: str, offsets: PartitionOffsets) -> None:
        self.prepare(name, offsets)()

    def put(self, name: str, key: Key, offset: int) -> None:
        """One entry."""
        with self._lock:
            kept = {one: known for one, known in self.read(name).items() if one not in self._retired}
            self.write(name, {**kept, key: offset})

    def _write(self, name: str, offsets: PartitionOffsets, turn: int) -> None:
        with self._lock:
            if turn < self._written.get(name, 0):
                return
            stored = self.read(name)
            late = [key for key in offsets if turn < self._since.get(key, 0)]
            if late:
                offsets = {key: offset for key, offset in offsets.items() if key not in late}
                offsets.update((key, stored[key]) for key in late if key in stored)
            self._replace(name, offsets, turn)

    def _replace(self, name: str, offsets: PartitionOffsets, turn: int) -> None:
        if name in self._doubtful or self.read(name) != offsets:
            try:
                write_offsets(self._path / name, offsets)
            except OSError:
                # Its name may have changed hands before the sync of the folder failed: only the disk knows now.
                self._stored.pop(name, None)
                self._doubtful.add(name)
                raise
            self._stored[name] = dict(offsets)
            self._doubtful.discard(name)
        self._written[name] = turn

    def retire(self, keys: Iterable[Key]) -> None:
        """These logs are gone. Their entries leave with the next write; `forget` sees to that if it has to be now."""
        with self._lock:
            turn = next(self._turns)
            for key in keys:
                self._retired.add(key)
                self._since[key] = turn

    def retire_all_but(self, living: Iterable[Key]) -> None:
        """After a start: what a deletion could not clear away any more before the stop."""
        known = {key for name in _NAMES for key in self.read(name)}
        self.retire(known.difference(living))

    def forget(self, key: Key) -> None:
        """A log of this name is about to begin: no file speaks of an older one any more, on the disk, too."""
        with self._lock:
            if not self._doubtful and not any(key in self.read(name) for name in _NAMES):
                self._retired.discard(key)
                return
            self.retire([key])
            for name in _NAMES:
                stored = self.read(name)
                kept = {one: offset for one, offset in stored.items() if one not in self._retired}
                if len(kept) != len(stored) or name in self._doubtful:
                    self._replace(name, kept, next(self._turns))
            self._retired.clear()

    def lower(self, key: Key, offset: int) -> None:
        """The log is about to be cut there: no file promises more of it than what will be left, on the disk, too."""
        with self._lock:
            self._since[key] = next(self._turns)
            for name in _NAMES:
                stored = self.read(name)
                if stored.get(key, -1) > offset:
                    self._replace(name, {**stored, key: offset}, next(self._turns))
                elif name in self._doubtful:
                    self._replace(name, dict(stored), next(self._turns))
