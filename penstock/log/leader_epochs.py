"""Where each leader epoch begins in a log: the base of truncation after a leader change (KIP-101, KIP-279)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import Final

from penstock.log.checkpoints import InvalidCheckpoint, read_epochs, write_epochs
from penstock.log.files import LEADER_EPOCH_CHECKPOINT

UNDEFINED: Final = (-1, -1)


class LeaderEpochs:
    """Epochs and their start offsets, both rising. A flush makes the file durable; until then `dirty` is set."""

    __slots__ = ("_epochs", "_lock", "_path", "_starts", "_stored", "_stored_change", "change", "dirty", "latest")

    def __init__(self, directory: Path) -> None:
        self._path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._lock = threading.Lock()
        self._stored: list[tuple[int, int]] = []
        self._stored_change = 0
        self.change = 0
        """Counts changes, so that two flushes at once leave the newer state."""
        self.dirty = False
        self.latest = -1
        """Newest epoch, -1 if none: compared at every append."""

    def load(self) -> None:
        """From the checkpoint; a broken one counts as none (recovery rebuilds what it can)."""
        try:
            entries = read_epochs(self._path)
        except InvalidCheckpoint:
            entries = []
            self.dirty = True
        for epoch, start in entries:
            self._put(epoch, start)
        self._stored = entries

    def store(self, entries: list[tuple[int, int]], change: int) -> None:
        """Make the file say what `entries()` said at that `change`, durably. Blocking; in any thread."""
        with self._lock:
            if change < self._stored_change:
                return
            if entries != self._stored:
                write_epochs(Path(self._path), entries)
                self._stored = entries
            self._stored_change = change

    def store_now(self) -> None:
        self.store(self.entries(), self.change)
        self.dirty = False

    def _changed(self) -> None:
        self.dirty = True
        self.change += 1

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch (or a new leader) of `epoch` begins at `start_offset`. Known or negative epochs change nothing."""
        if epoch < 0 or epoch == self.latest:
            return
        self._put(epoch, start_offset)
        self._changed()

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Back to an earlier state: what was assigned since was never written."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.latest = self._epochs[-1] if self._epochs else -1
        self._changed()

    def _put(self, epoch: int, start_offset: int) -> None:
        # An entry that contradicts the new one can only come from a leader that lost: it goes.
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at or behind the new log end."""
        changed = False
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            changed = True
        if changed:
            self.latest = self._epochs[-1] if self._epochs else -1
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins later: the epoch that holds its start moves up to it."""
        keep = bisect_right(self._starts, start_offset) - 1
        if keep < 0 or (keep == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:keep]
        del self._starts[:keep]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.latest = -1
        self._changed()

    def epoch_at(self, offset: int) -> int | None:
        """Epoch under which `offset` was (or would be) written."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch defines it; UNDEFINED if nothing is known."""
        if epoch == -1 or not self._epochs:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        if epoch > self._epochs[-1]:
            return UNDEFINED
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return epoch, self._starts[0]
        return self._epochs[index - 1], self._starts[index]
