"""What must hold at every moment, whatever breaks. Each check has a name; the first violation ends the run.

The excuse: a disk may lose what was never synced, but only in a power loss. A committed record may be gone only if at
some moment after such a loss nobody in the recorded ISR or ELR had it who can prove to have lost nothing since the
registration that is recorded with it: because its process lives on, or because it stopped in peace. (Who was killed
may have lost what it had; nobody can tell.) Killed processes alone excuse nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.testing.simulation.disk import Entry, TopicPartition

if TYPE_CHECKING:
    from penstock.replication.partition import Partition
    from penstock.testing.simulation.storage import Stored

Holders = Callable[[TopicPartition], "list[Stored]"]


class JudgedLog(Protocol):
    """A log that tells the checker what it does."""

    node_id: int

    @property
    def where(self) -> TopicPartition: ...

    @property
    def stored(self) -> Stored: ...

    def latest_epoch(self) -> int | None: ...


class Violation(AssertionError):
    """An invariant is broken; the message says which and where."""


@dataclass(frozen=True)
class Acknowledged:
    producer: int
    sequence: int
    base_offset: int
    value: int


class Checker:
    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self.committed: dict[TopicPartition, dict[int, Entry]] = {}  # by base offset: below some leader's HW
        self.committed_in: dict[TopicPartition, dict[int, int]] = {}  # the leader epoch that committed it
        self.acknowledged: dict[TopicPartition, dict[tuple[int, int], Acknowledged]] = {}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}  # (partition, leader epoch) → node
        self.start_offsets: dict[TopicPartition, int] = {}
        self.excused_from: dict[TopicPartition, int] = {}
        self._weakened_from: dict[TopicPartition, int] = {}
        self.trusted_logs: Holders = lambda where: []
        self.on_excused: Callable[[TopicPartition], None] = lambda where: None
        self.violation: Violation | None = None  # the first: whoever runs the code that broke it may swallow it
        self.acknowledged_count = 0
        self.visible_count = 0

    def demand(self, condition: bool, what: str) -> None:
        if not condition:
            violation = Violation(what)
            self.violation = self.violation or violation
            self._log(f"VIOLATION: {what}")
            raise violation

    # -- leaders -------------------------------------------------------------------------------------------------

    def leads(self, partition: Partition) -> None:
        """One leader per epoch, and it has everything that was acknowledged."""
        where = (partition.topic, partition.index)
        key = (where, partition.leader_epoch)
        known = self.leaders.setdefault(key, partition.node_id)
        self.demand(known == partition.node_id, f"{where}: {known} and {partition.node_id} both lead epoch {key[1]}")
        log: JudgedLog = partition.log  # type: ignore[assignment]
        who = f"new leader {partition.node_id}, epoch {partition.leader_epoch}"
        self.has_acknowledged(where, log.stored, who, before_epoch=partition.leader_epoch)

    def has_acknowledged(self, where: TopicPartition, stored: Stored, who: str, before_epoch: int = 2**31) -> None:
        """Everything acknowledged that was committed before this epoch (a zombie knows nothing of its successors)."""
        held = {entry.base_offset: entry for entry in stored.entries}
        committed_in = self.committed_in.get(where, {})
        for record in self.acknowledged.get(where, {}).values():
            if record.base_offset < self.start_offsets.get(where, 0):
                continue
            if committed_in[record.base_offset] >= before_epoch:
                continue
            entry = held.get(record.base_offset)
            self.demand(
                entry is not None and entry.value == record.value,
                f"{where}: {who} lacks the acknowledged record {record} (has {entry})",
            )

    # -- logs ----------------------------------------------------------------------------------------------------

    def high_watermark_set(self, log: JudgedLog, old: int, new: int) -> None:
        """Logs agree below the high watermark, and it does not go back."""
        self.demand(new >= old, f"{log.where} on {log.node_id}: high watermark went back from {old} to {new}")
        committed = self.committed.setdefault(log.where, {})
        for entry in reversed(log.stored.entries):
            if entry.next_offset <= old:
                break
            if entry.next_offset > new or entry.base_offset < self.start_offsets.get(log.where, 0):
                continue
            if entry.base_offset not in committed:
                self.committed_in.setdefault(log.where, {})[entry.base_offset] = log.latest_epoch() or 0
            known = committed.setdefault(entry.base_offset, entry)
            self.demand(
                known == entry,
                f"{log.where}: below the high watermark {new} of {log.node_id} stands {entry}, committed was {known}",
            )

    def truncated(self, log: JudgedLog, removed: Iterable[Entry]) -> None:
        """Nothing committed is cut off."""
        committed = self.committed.get(log.where, {})
        for entry in removed:
            if entry.base_offset < self.start_offsets.get(log.where, 0):
                continue
            self.demand(
                committed.get(entry.base_offset) != entry,
                f"{log.where}: {log.node_id} truncated the committed {entry}",
            )

    def dense(self, where: TopicPartition, node_id: int, stored: Stored) -> None:
        expected = stored.base_offset
        for entry in stored.entries:
            self.demand(
                entry.base_offset == expected,
                f"{where} on {node_id}: offset {entry.base_offset} where {expected} should be",
            )
            expected = entry.next_offset

    # -- clients -------------------------------------------------------------------------------------------------

    def acknowledge(self, where: TopicPartition, entry: Entry, base_offset: int) -> None:
        self.acknowledged_count += 1
        record = Acknowledged(entry.producer, entry.sequence, base_offset, entry.value)
        committed = self.committed.get(where, {}).get(base_offset)
        if base_offset >= self.start_offsets.get(where, 0) and base_offset < self.excused_from.get(where, 2**62):
            self.demand(
                committed is not None and committed.value == entry.value,
                f"{where}: {record} was acknowledged, but committed there is {committed}",
            )
        if committed is not None and committed.value == entry.value:
            self.acknowledged.setdefault(where, {})[(entry.producer, entry.sequence)] = record

    def visible(self, where: TopicPartition, entries: Iterable[Entry], node_id: int) -> None:
        """What a consumer reads is committed, and stays what it was."""
        for entry in entries:
            self.visible_count += 1
            if entry.base_offset >= self.excused_from.get(where, 2**62):
                continue  # a leader of before the loss may still be read from
            known = self.committed.get(where, {}).get(entry.base_offset)
            self.demand(known == entry, f"{where}: a consumer of {node_id} reads {entry}, committed is {known}")

    def isr_within_assignment(self, where: TopicPartition, isr: Iterable[int], replicas: Iterable[int]) -> None:
        self.demand(set(isr) <= set(replicas), f"{where}: ISR {isr} is not within {replicas}")

    def exactly_once(self, where: TopicPartition, stored: Stored) -> None:
        """No record stands twice in the log."""
        seen: set[tuple[int, int]] = set()
        for entry in stored.entries:
            key = (entry.producer, entry.sequence)
            self.demand(key not in seen, f"{where}: {entry} stands twice in the log")
            seen.add(key)

    # -- the excuse ----------------------------------------------------------------------------------------------

    def lost_unsynced(self, where: TopicPartition, from_offset: int) -> None:
        """A power loss took unsynced records of one replica."""
        self._weakened_from[where] = min(self._weakened_from.get(where, 2**62), from_offset)
        self.look_for_excuses()

    def look_for_excuses(self) -> None:
        """Called whenever a node died or an ISR changed."""
        for where, weak_from in self._weakened_from.items():
            held: set[Entry] = set()
            for stored in self.trusted_logs(where):
                held.update(stored.entries)
            committed = self.committed.get(where, {})
            gone = [offset for offset, entry in committed.items() if offset >= weak_from and entry not in held]
            if gone:
                self._excuse(where, min(gone))

    def _excuse(self, where: TopicPartition, from_offset: int) -> None:
        self._log(f"{where}: records from offset {from_offset} may be lost: nobody trusted has them")
        self.excused_from[where] = min(self.excused_from.get(where, 2**62), from_offset)
        self.on_excused(where)
        committed = self.committed[where]
        for offset in [offset for offset in committed if offset >= from_offset]:
            del committed[offset]
        acknowledged = self.acknowledged.get(where, {})
        for key in [key for key, record in acknowledged.items() if record.base_offset >= from_offset]:
            del acknowledged[key]
