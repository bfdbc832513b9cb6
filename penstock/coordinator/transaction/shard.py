"""The transactional ids of one partition of `__transaction_state`: commands make records, replay makes state.

A command answers with a `Decision`; the runtime parks it until the records behind it are committed. When the record
that decides a transaction is committed, `decided` is called, and the markers may go out: never before, because a
failover could take the decision back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from penstock.coordinator.loader import Row
from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import Producer, Record
from penstock.coordinator.timers import Timers
from penstock.coordinator.transaction import decisions, records
from penstock.coordinator.transaction.decisions import Decision
from penstock.coordinator.transaction.initialize import InitializeRequest, fence_and_abort, initialize
from penstock.coordinator.transaction.state import (
    NO_EPOCH,
    TopicPartition,
    Transaction,
    TransactionState,
)
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Decided = Callable[[int, Transaction], None]


class TransactionShard:
    """Satisfies the runtime's `StateMachine`."""

    def __init__(
        self,
        partition: int,
        timers: Timers | None,
        take_producer_id: Callable[[], int],
        decided: Decided,
        loaded: Callable[[int], None],
        unloaded: Callable[[int], None],
    ) -> None:
        self.partition = partition
        self.transactions: dict[str, Transaction] = {}
        self._take_producer_id = take_producer_id
        self._decided = decided
        self._loaded = loaded
        self._unloaded = unloaded
        # Which epoch an id's newest pair replaced at the client's own wish: id → (producer id, epoch, replaced epoch).
        # It is no state: Kafka's log does not carry it, and an entry counts only while the pair is the current one.
        self._replaced_epochs: dict[str, tuple[int, int, int]] = {}

    # Replay ----------------------------------------------------------------------------------------------------

    def replay(self, record: Record, offset: int, producer: Producer) -> None:
        transactional_id = records.decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self._replaced_epochs.pop(transactional_id, None)
            return
        transaction = records.decode_value(transactional_id, record.value)
        if transaction.state is TransactionState.DEAD:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction

    def replay_rows(self, rows: list[Row], base_offset: int, producer: Producer) -> None:
        for delta, key, value in rows:
            self.replay(Record(key, value), base_offset + delta, producer)

    def replay_marker(self, producer: Producer, commit: bool, offset: int) -> None:
        """The transaction log itself is never part of a transaction."""

    def on_loaded(self, now_ms: int) -> None:
        self._loaded(self.partition)

    def on_unloaded(self) -> None:
        self._unloaded(self.partition)

    # Commands --------------------------------------------------------------------------------------------------

    def initialize(self, request: InitializeRequest, now_ms: int) -> Write:
        current = self.transactions.get(request.transactional_id)
        return self._write(initialize(current, request, now_ms, self._take_producer_id, self._replaced_epoch(current)))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Write:
        current = self.transactions.get(transactional_id)
        return self._write(decisions.add_partitions(current, producer_id, epoch, partitions, now_ms, client_version))

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, client_version: int, now_ms: int
    ) -> Write:
        current = self.transactions.get(transactional_id)
        return self._write(
            decisions.end(current, producer_id, epoch, commit, now_ms, client_version, self._take_producer_id)
        )

    def complete(self, decided: Transaction, now_ms: int) -> Write:
        """The markers of this decision are written everywhere."""
        current = self.transactions.get(decided.transactional_id)
        if current is None or current != decided:
            return self._write(decisions.refuse(ErrorCode.INVALID_TXN_STATE))  # completed already, by a sender before
        return self._write(Decision(ErrorCode.NONE, decisions.complete(current, now_ms)))

    def abort_timed_out(self, transactional_id: str, now_ms: int) -> Write:
        current = self.transactions.get(transactional_id)
        if current is None or not decisions.has_timed_out(current, now_ms):
            return Write(response=decisions.refuse(ErrorCode.INVALID_TXN_STATE))
        logger.info("transaction %s timed out after %d ms: aborting it", transactional_id, current.timeout_ms)
        return self._write(fence_and_abort(current, now_ms, self._take_producer_id))

    def forget_expired(self, transactional_id: str, now_ms: int, expiration_ms: int) -> Write:
        current = self.transactions.get(transactional_id)
        if current is None or not decisions.has_expired(current, now_ms, expiration_ms):
            return Write(response=decisions.refuse(ErrorCode.INVALID_TXN_STATE))
        return Write([Record(records.encode_key(transactional_id), None)], Decision(ErrorCode.NONE))

    def _replaced_epoch(self, current: Transaction | None) -> int:
        if current is None:
            return NO_EPOCH
        producer_id, epoch, replaced = self._replaced_epochs.get(current.transactional_id, (-1, -1, NO_EPOCH))
        return replaced if (producer_id, epoch) == current.client_pair else NO_EPOCH

    def _write(self, decision: Decision) -> Write:
        update = decision.update
        if update is None:
            return Write(response=decision, after_commit=True)
        if decision.last_epoch != NO_EPOCH:
            self._replaced_epochs[update.transactional_id] = (*update.client_pair, decision.last_epoch)
        record = Record(records.encode_key(update.transactional_id), records.encode_value(update))
        if not update.state.is_preparing:
            return Write([record], decision)
        return Write([record], decision, on_committed=lambda: self._decided(self.partition, update))

    # What is due -----------------------------------------------------------------------------------------------

    def timed_out(self, now_ms: int) -> list[str]:
        return [t.transactional_id for t in self.transactions.values() if decisions.has_timed_out(t, now_ms)]

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        return [
            t.transactional_id for t in self.transactions.values() if decisions.has_expired(t, now_ms, expiration_ms)
        ]

    def preparing(self) -> list[Transaction]:
        """Decided, not complete: what a new coordinator has to bring to its end."""
        return [t for t in self.transactions.values() if t.state.is_preparing]
