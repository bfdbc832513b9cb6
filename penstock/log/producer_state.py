"""Producer state of one log: idempotence (the last five batches), epochs, open transactions.

The rules are Kafka's ProducerAppendInfo and ProducerStateManager. Checks change nothing; `put_batch` and
`end_transaction` are the only ways in, for appends and for replay alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.log.txn_index import AbortedEntry
from penstock.log.verifications import Verifications
from penstock.protocol.errors import ErrorCode

NO_OFFSET: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
KEPT_BATCHES: Final = 5

KeptBatch = tuple[int, int, int, int, int]
"""(first sequence, last sequence, last offset, offset delta, timestamp)"""

Undo = tuple[int, "ProducerEntry | None", int, int, int, int, tuple[KeptBatch, ...]]


class ProducerEntry:
    """What a log knows of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        txn_first_offset: int = NO_OFFSET,
        batches: tuple[KeptBatch, ...] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        """-1 when no transaction is open."""
        self.batches = batches
        """The last five, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1][2] if self.batches else NO_OFFSET


class EndedTransaction(NamedTuple):
    """A transaction that a marker closed; `first_offset` is where its data began."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """All producers of one log."""

    __slots__ = ("_refused", "_unreplicated", "entries", "frozen", "ongoing", "recalled", "verifications")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.frozen: dict[int, ProducerEntry] | None = None
        """The entries as they were when a snapshot began that is being written: nobody may change those (`own`)."""
        # First offset → producer id. Transactions begin in offset order, so insertion order is offset order.
        self.ongoing: dict[int, int] = {}
        # First offset → marker offset of ended transactions whose marker the high watermark has not passed.
        self._unreplicated: dict[int, int] = {}
        self.verifications = Verifications()
        self.recalled: set[int] = set()  # producers whose older batches were read back from the log
        # Producer id → epoch, sequence and error of its first batch that we refused although it was next in line.
        self._refused: dict[int, tuple[int, int, ErrorCode]] = {}

    # -- checks

    def find_duplicate(self, entry: ProducerEntry, epoch: int, first: int, last: int) -> KeptBatch | None:
        """The kept batch that was sent with exactly these sequences at this epoch."""
        if entry.epoch == epoch:
            for kept in entry.batches:
                if kept[0] == first and kept[1] == last:
                    return kept
        return None

    def check_sequence(
        self, entry: ProducerEntry | None, producer_id: int, epoch: int, sequence: int
    ) -> tuple[ErrorCode, str] | None:
        """Why a client's batch is not the next one of its producer; None if it is."""
        verification = self.verifications.earliest(producer_id)
        if verification is not None and sequence > verification[0] >= 0:
            return (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {sequence} (incoming seq. number), "
                f"{verification[0]} (earliest seen sequence)",
            )
        if entry is None or entry.epoch == -1:
            if verification is not None and verification[1] and sequence != 0:
                return (
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for producer {producer_id} without state: {sequence}",
                )
            return None
        if epoch != entry.epoch:
            if sequence != 0:
                return (
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {producer_id}: {epoch} (request epoch), "
                    f"{sequence} (seq. number), {entry.epoch} (current producer epoch)",
                )
            return None
        last = entry.last_sequence
        if sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE):
            return None
        return (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {producer_id}: {sequence} (incoming seq. number), "
            f"{last} (current end sequence number)",
        )

    def note_refused(self, producer_id: int, epoch: int, sequence: int, error: ErrorCode) -> None:
        """A batch could not be taken in for a reason of our own (disk, replicas); its producer will send it again."""
        entry = self.entries.get(producer_id)
        if self._refusal(entry, producer_id, epoch) is None:
            self._refused[producer_id] = (epoch, sequence, error)

    def refused_before(
        self, entry: ProducerEntry | None, producer_id: int, epoch: int, sequence: int
    ) -> tuple[ErrorCode, str] | None:
        """Whether a batch comes too early only because we refused one before it: it gets the same answer.

        Pipelined batches arrive behind a refused one. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka begin a new
        epoch, in which batches of other partitions that are stored, but not acknowledged yet, are sent again.
        """
        refusal = self._refusal(entry, producer_id, epoch) if self._refused else None
        if refusal is None or sequence <= refusal[1]:
            return None
        return refusal[2], f"batch {refusal[1]} of producer {producer_id} was refused and has to come first"

    def _refusal(self, entry: ProducerEntry | None, producer_id: int, epoch: int) -> tuple[int, int, ErrorCode] | None:
        """The refusal that still keeps this producer waiting; one that was made good is forgotten."""
        refusal = self._refused.get(producer_id)
        if refusal is None:
            return None
        stands = refusal[0] == epoch
        if stands and entry is not None and entry.epoch == epoch:
            expected = 0 if entry.last_sequence == MAX_SEQUENCE else entry.last_sequence + 1
            stands = refusal[1] == expected
        if not stands:
            del self._refused[producer_id]
            return None
        return refusal

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> ErrorCode | None:
        """Why a coordinator's marker is refused; None if it is welcome."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        if transaction_version >= 2:
            retry = epoch == entry.epoch and entry.txn_first_offset == NO_OFFSET
            if epoch <= entry.epoch and not retry:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        elif epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    # -- changes

    def put_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> Undo:
        """A data batch of a producer is in the log. The result takes it back with `undo`."""
        entry = self.entries.get(producer_id)
        if entry is not None and self.frozen is not None:
            entry = self.own(entry)
        if entry is None:
            undo: Undo = (producer_id, None, 0, 0, 0, 0, ())
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        else:
            undo = (
                producer_id,
                entry,
                entry.epoch,
                entry.coordinator_epoch,
                entry.last_timestamp,
                entry.txn_first_offset,
                entry.batches,
            )
            if epoch != entry.epoch:
                entry.epoch = epoch
                entry.batches = ()
        if base_sequence == NO_SEQUENCE:
            last_sequence = NO_SEQUENCE
        else:
            last_sequence = base_sequence + last_offset_delta
            if last_sequence > MAX_SEQUENCE:
                last_sequence -= MAX_SEQUENCE + 1
        kept = (base_sequence, last_sequence, last_offset, last_offset_delta, timestamp)
        batches = entry.batches
        entry.batches = (*batches[1:], kept) if len(batches) >= KEPT_BATCHES else (*batches, kept)
        entry.last_timestamp = timestamp
        if transactional and entry.txn_first_offset == NO_OFFSET:
            first_offset = last_offset - last_offset_delta
            entry.txn_first_offset = first_offset
            self.ongoing[first_offset] = producer_id
        return undo

    def own(self, entry: ProducerEntry) -> ProducerEntry:
        """An entry that may be changed: itself, or its successor if a snapshot still needs it as it is."""
        frozen = self.frozen
        if frozen is None or frozen.get(entry.producer_id) is not entry:
            return entry
        copy = self.entries[entry.producer_id] = ProducerEntry(
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.txn_first_offset,
            entry.batches,
        )
        return copy

    def undo(self, undo: Undo) -> tuple[int, int]:
        """Take back one `put_batch`; the newest first. Returns epoch and first sequence of the batch."""
        producer_id, entry, epoch, coordinator_epoch, timestamp, txn_first_offset, batches = undo
        current = self.entries[producer_id]
        taken_back = current.epoch, current.batches[-1][0]
        if current.txn_first_offset != NO_OFFSET and (entry is None or txn_first_offset == NO_OFFSET):
            self.ongoing.pop(current.txn_first_offset, None)
        if entry is None:
            del self.entries[producer_id]
            return taken_back
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = txn_first_offset
        entry.batches = batches
        return taken_back

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, aborted: bool, offset: int, timestamp: int
    ) -> EndedTransaction | None:
        """A marker is in the log; the transaction it ended, if that had data here."""
        self.verifications.ended(producer_id, epoch)
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif self.frozen is not None:
            entry = self.own(entry)
        first_offset = entry.txn_first_offset
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches = ()
        entry.txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        if first_offset == NO_OFFSET:
            return None
        self.ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        return EndedTransaction(producer_id, first_offset, offset, aborted)

    def entry_if_aborted(self, producer_id: int, marker_offset: int) -> AbortedEntry | None:
        """What the transaction index keeps when a marker at this offset aborts the open transaction; None without one.
        To be asked, and written, before `end_transaction`: afterwards nobody knows any more what was aborted."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.txn_first_offset == NO_OFFSET:
            return None
        first_offset = entry.txn_first_offset
        stable = next((offset for offset in self.ongoing if offset != first_offset), marker_offset + 1)
        return AbortedEntry(producer_id, first_offset, marker_offset, stable)

    # -- transactions

    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or ended but not yet below the high watermark."""
        ongoing = next(iter(self.ongoing), None)
        if not self._unreplicated:
            return ongoing
        oldest = min(self._unreplicated)
        return oldest if ongoing is None else min(oldest, ongoing)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer, at this epoch, has an open transaction here."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def has_transactions(self) -> bool:
        return bool(self.ongoing or self._unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below it are replicated."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers (and verifications) not heard of for that long, except with an open transaction."""
        old = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self.entries[producer_id]
            self._refused.pop(producer_id, None)
        self.verifications.expire(now_ms - expiration_ms)
        return len(old)

    def clear(self) -> None:
        self.entries.clear()
        self.ongoing.clear()
        self._unreplicated.clear()
        self.verifications.clear()
        self._refused.clear()
        self.recalled.clear()

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Begin with the entries of a snapshot."""
        self.clear()
        loaded = {entry.producer_id: entry for entry in entries}
        self.entries.update(loaded)
        first_offsets = (
            (entry.txn_first_offset, entry.producer_id)
            for entry in loaded.values()
            if entry.txn_first_offset != NO_OFFSET
        )
        self.ongoing.update(sorted(first_offsets))
