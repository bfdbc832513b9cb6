"""One transactional id as the coordinator knows it, and the table of the moves that it may make.

A `Transaction` never changes; a decision makes a new one, which becomes true when its record is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 32767
LAST_USABLE_EPOCH = MAX_EPOCH - 1  # the last one a client is given; MAX_EPOCH is kept for the marker that fences it
NEVER_TIMES_OUT_MS = 2**31 - 1  # KIP-939: the time-out of a two-phase transaction

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """The ids are those of the log; `shown` is the name that tools print and filter by."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7  # never written by us: fencing and the abort that it starts are one record

    @property
    def shown(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_preparing(self) -> bool:
        """Decided, and its markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """No transaction is open: a new one may begin, and the id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_S = TransactionState
STATES_BY_SHOWN_NAME = {state.shown: state for state in TransactionState}

# state → the states that it may come from. Preparing to abort from an idle state is transaction.version 2's way to bump
# the epoch of a producer that is not sure what it wrote (KIP-890).
MAY_COME_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}


class IllegalMove(Exception):
    """A decision asked for a move that the table does not have: a bug of ours, never a client's fault."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known about one transactional id. `producer_id`/`producer_epoch` are those that markers carry.

    While a transaction is open or being ended, the client may hold a newer pair than the one its records carry:
    `next_producer_id`/`next_producer_epoch` (epoch overflow of KIP-890, keep-prepared of KIP-939). `client_pair` is
    the pair that requests must present.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0  # the transaction.version that the client speaks

    @property
    def client_pair(self) -> tuple[int, int]:
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        # Kafka 4.3 leaves the next epoch out when it is 0, as it always is after an overflow.
        return self.next_producer_id, max(self.next_producer_epoch, 0)

    @property
    def is_kept_prepared(self) -> bool:
        """Open, and taken over by a newer incarnation that may only end it (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NEVER_TIMES_OUT_MS

    def moved(self, state: TransactionState, **changes: Any) -> Transaction:
        """The same id in another state; a move that the table does not have fails loudly."""
        if self.state not in MAY_COME_FROM[state]:
            raise IllegalMove(f"{self.transactional_id}: {self.state.shown} → {state.shown}")
        return replace(self, state=state, **changes)


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_USABLE_EPOCH
