"""Logs of a simulated broker, in memory, and what a crash leaves of them.

An entry stands for a batch and has a fixed size, so that a position is an index and a region can be read late, as
sendfile does: a file that was truncated and written again meanwhile gives other bytes than were promised.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.log.damage import Damage
from penstock.log.results import (
    AbortedTransaction,
    AppendResult,
    FollowerAppend,
    LogWriteError,
    OffsetOutOfRange,
    Region,
)
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.testing.simulation.invariants import Checker

TopicPartition = tuple[str, int]
_ENTRY = struct.Struct(">qiiiiiq")  # base offset, length behind it, leader epoch, producer, sequence, count, value
ENTRY_BYTES = _ENTRY.size


class Entry(NamedTuple):
    base_offset: int
    leader_epoch: int
    producer: int
    sequence: int
    records: int
    value: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    def encode(self) -> bytes:
        return _ENTRY.pack(
            self.base_offset,
            ENTRY_BYTES - 12,
            self.leader_epoch,
            self.producer,
            self.sequence,
            self.records,
            self.value,
        )


def decode_entries(data: bytes | memoryview) -> Iterator[Entry]:
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        base_offset, _, leader_epoch, producer, sequence, records, value = _ENTRY.unpack_from(data, at)
        yield Entry(base_offset, leader_epoch, producer, sequence, records, value)


@dataclass
class SimLogConfig:
    min_insync_replicas: int
    cleanup_compact: bool = False
    cleanup_delete: bool = True


class Disk(Protocol):
    """What survives a crash of one broker, by partition."""

    logs: dict[TopicPartition, StoredLog]
    full: bool


class StoredLog:
    """The files of one replica. `synced` entries survive a power loss; a killed process loses nothing written."""

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.entries: list[Entry] = []
        self.synced = 0
        self.base_offset = 0  # where the log began after it was dropped and begun anew
        self.log_start_offset = 0
        self.epochs: list[tuple[int, int]] = []
        self.high_watermark_checkpoint = 0

    @property
    def end_offset(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.base_offset

    def lose_tail(self, keep: int) -> None:
        """A power loss: only `keep` entries are readable afterwards (a torn one is cut by recovery)."""
        del self.entries[max(keep, self.synced) :]


class SimLog:
    """A `ReplicaLog` over a StoredLog, with the memory that a crash takes away."""

    def __init__(self, where: TopicPartition, node_id: int, disk: Disk, config: SimLogConfig, checker: Checker) -> None:
        self.topic, self.partition = where
        self.where = where
        self.node_id = node_id
        self.config = config
        self.stored = disk.logs[where]
        self._disk = disk
        self._checker = checker
        self._staged: list[Entry] = []
        self.voided: LogWriteError | None = None
        self.on_history_changed: Callable[[], None] | None = None
        self.damage = Damage(f"{where[0]}-{where[1]}")
        stored = self.stored
        stored.epochs = [(epoch, start) for epoch, start in stored.epochs if start < stored.end_offset]
        self.log_start_offset = min(stored.log_start_offset, stored.end_offset)
        self.log_end_offset = stored.end_offset
        self.high_watermark = max(min(stored.high_watermark_checkpoint, stored.end_offset), self.log_start_offset)
        self._sequences: dict[int, tuple[int, dict[int, Entry]]] = {}
        self._rebuild_sequences()

    @property
    def topic_id(self) -> uuid.UUID:
        return self.stored.topic_id

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    # -- appends -------------------------------------------------------------------------------------------------

    def append_as_leader(self, batch: Any, leader_epoch: int, now_ms: int, *args: Any, **kw: Any) -> AppendResult:
        (asked,) = decode_entries(batch)
        known = self._sequences.get(asked.producer)
        if known is not None:
            last, recent = known
            duplicate = recent.get(asked.sequence)
            if duplicate is not None:
                return AppendResult(ErrorCode.NONE, duplicate.base_offset, duplicate.next_offset - 1, duplicate=True)
            if asked.sequence != last + 1:
                return AppendResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        entry = asked._replace(base_offset=self.log_end_offset, leader_epoch=leader_epoch)
        self._stage(entry)
        return AppendResult(ErrorCode.NONE, entry.base_offset, entry.next_offset - 1)

    def note_refused(self, batch: Any, error: ErrorCode) -> None:
        """The simulated producers have one batch in flight: nothing stands behind a refused one."""

    def append_as_follower(self, batches: Any) -> FollowerAppend:
        taken = list(decode_entries(batches))
        for entry in taken:
            self._checker.demand(
                entry.base_offset == self.log_end_offset,
                f"{self.where} on {self.node_id}: offset {entry.base_offset} follows {self.log_end_offset}",
            )
            self._stage(entry)
        if not taken:
            return FollowerAppend(-1, -1, 0)
        return FollowerAppend(taken[0].base_offset, taken[-1].next_offset - 1, len(taken))

    def _stage(self, entry: Entry) -> None:
        epochs = self.stored.epochs
        if not epochs or entry.leader_epoch > epochs[-1][0]:
            epochs.append((entry.leader_epoch, entry.base_offset))
        self._staged.append(entry)
        self.log_end_offset = entry.next_offset
        self._remember_sequence(entry)

    def write_staged(self) -> None:
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        if self._disk.full:
            self.log_end_offset = self.stored.end_offset
            self._cut_epochs(self.log_end_offset)
            self._rebuild_sequences()
            raise LogWriteError("no space left on device", directory_failed=False)
        self.stored.entries += staged

    def _remember_sequence(self, entry: Entry) -> None:
        _, recent = self._sequences.get(entry.producer, (-1, {}))
        recent = {**recent, entry.sequence: entry}
        while len(recent) > 5:
            del recent[min(recent)]
        self._sequences[entry.producer] = (entry.sequence, recent)

    def _rebuild_sequences(self) -> None:
        self._sequences = {}
        for entry in self.stored.entries:
            self._remember_sequence(entry)

    # -- reads ---------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> Region | OffsetOutOfRange:
        upper = self.log_end_offset if upper_bound_offset is None else upper_bound_offset
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        entries = self.stored.entries
        first = next((i for i, entry in enumerate(entries) if entry.next_offset > offset), len(entries))
        last = first
        budget = max(max_bytes // ENTRY_BYTES, 1 if at_least_one else 0)
        while last < len(entries) and entries[last].next_offset <= upper and last - first < budget:
            last += 1
        if last == first:
            return Region(None, 0, 0, offset, offset)
        file: Any = entries  # where the real log has an open file
        size = (last - first) * ENTRY_BYTES
        return Region(file, first, size, entries[first].base_offset, entries[last - 1].next_offset)

    def aborted_transactions(self, start_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        return []

    # -- offsets -------------------------------------------------------------------------------------------------

    def set_high_watermark(self, offset: int) -> None:
        clamped = max(min(offset, self.stored.end_offset), self.log_start_offset)
        old, self.high_watermark = self.high_watermark, clamped
        self._checker.high_watermark_set(self, old, clamped)

    def raise_log_start_offset(self, offset: int) -> bool:
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = self.stored.log_start_offset = min(offset, self.high_watermark)
        if self.on_history_changed is not None:
            self.on_history_changed()
        return True

    def truncate_to(self, offset: int) -> bool:
        self.write_staged()
        kept = next((i for i, e in enumerate(self.stored.entries) if e.next_offset > offset), len(self.stored.entries))
        removed = self.stored.entries[kept:]
        self._checker.truncated(self, removed)
        # The file is cut in place: a region that somebody still sends sees what is written there next.
        del self.stored.entries[kept:]
        self.stored.synced = min(self.stored.synced, kept)
        self.log_end_offset = self.stored.end_offset
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self._cut_epochs(offset)
        self._rebuild_sequences()
        return bool(removed)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._staged = []
        self._checker.truncated(self, self.stored.entries)
        self.stored.entries = []
        self.stored.synced = 0
        self.stored.base_offset = self.stored.log_start_offset = offset
        self.stored.epochs = []
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._sequences = {}

    # -- epochs --------------------------------------------------------------------------------------------------

    def assign_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        epochs = self.stored.epochs
        if epochs and epochs[-1][0] >= leader_epoch:
            return
        self._cut_epochs(start_offset)
        self.stored.epochs.append((leader_epoch, start_offset))

    def latest_epoch(self) -> int | None:
        return self.stored.epochs[-1][0] if self.stored.epochs else None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        epochs = self.stored.epochs
        if not epochs or leader_epoch < 0 or leader_epoch > epochs[-1][0]:
            return -1, -1
        if leader_epoch == epochs[-1][0]:
            return leader_epoch, self.log_end_offset
        if leader_epoch < epochs[0][0]:
            return leader_epoch, epochs[0][1]
        found = max(epoch for epoch, _ in epochs if epoch <= leader_epoch)
        return found, next(start for epoch, start in epochs if epoch > leader_epoch)

    def _cut_epochs(self, end_offset: int) -> None:
        self.stored.epochs = [(epoch, start) for epoch, start in self.stored.epochs if start < end_offset]

    # -- life ----------------------------------------------------------------------------------------------------

    def update_config(self, config: SimLogConfig) -> None:
        self.config = config

    def sync(self) -> None:
        self.stored.synced = len(self.stored.entries)

    def checkpoint(self) -> None:
        self.stored.high_watermark_checkpoint = self.high_watermark


class SimLogManager:
    """The `LogManager` of one life of a broker."""

    def __init__(self, node_id: int, disk: Disk, checker: Checker) -> None:
        self._node_id = node_id
        self._disk = disk
        self._checker = checker
        self._open: dict[TopicPartition, SimLog] = {}
        for where in disk.logs:
            self._open[where] = SimLog(where, node_id, disk, SimLogConfig(1), checker)

    def get(self, topic: str, partition: int) -> SimLog | None:
        return self._open.get((topic, partition))

    def get_or_create(self, topic: str, partition: int, topic_id: uuid.UUID, config: SimLogConfig) -> SimLog:
        where = (topic, partition)
        log = self._open.get(where)
        if log is None:
            self._disk.logs[where] = StoredLog(topic_id)
            log = self._open[where] = SimLog(where, self._node_id, self._disk, config, self._checker)
        log.update_config(config)
        return log

    def delete(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)
        self._disk.logs.pop((topic, partition), None)

    def set_aside(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)  # nobody hosts it any more, and nothing is lost

    @property
    def loss_is_accepted(self) -> bool:
        return False  # simulated disks lose tails, never themselves

    def logs(self) -> list[SimLog]:
        return list(self._open.values())
