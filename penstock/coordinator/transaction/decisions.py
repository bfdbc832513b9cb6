"""What happens to one transaction: partitions are added, it is ended, completed, timed out, forgotten.

Pure: the transaction and a request in, one `Decision` out; nothing changes until the decision's record is replayed.
InitProducerId has a room of its own, initialize.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.coordinator.transaction.state import (
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    TransactionState,
    is_exhausted,
)
from penstock.protocol.errors import ErrorCode

_S = TransactionState


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request, and the transaction as it shall be written (None: nothing changes)."""

    error: ErrorCode
    update: Transaction | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH  # the epoch that this decision replaced at the client's own wish

    @property
    def keeps_open(self) -> bool:
        """Whether it leaves a transaction open that another producer wrote (KIP-939)."""
        return not self.error and self.ongoing_producer_id != NO_PRODUCER_ID


def refuse(error: ErrorCode) -> Decision:
    return Decision(error)


def _check_pair(current: Transaction | None, producer_id: int, epoch: int) -> ErrorCode:
    if current is None or producer_id not in (current.client_pair[0], current.producer_id):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if (producer_id, epoch) != current.client_pair:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add_partitions(
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    client_version: int,
) -> Decision:
    """Open the transaction if none is open, and let it span these partitions too."""
    if current is not None and current.state.is_preparing:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)  # whoever asks: who is right is known when it is complete
    error = _check_pair(current, producer_id, epoch)
    if error or current is None:
        return refuse(error)
    if current.is_kept_prepared:
        return refuse(ErrorCode.INVALID_TXN_STATE)  # KIP-939: who kept it prepared may only end it
    added = frozenset(partitions)
    if current.state is _S.ONGOING and added <= current.partitions:
        return Decision(ErrorCode.NONE)
    update = current.moved(
        _S.ONGOING,
        partitions=current.partitions | added,
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )
    return Decision(ErrorCode.NONE, update)


def verify_partitions(
    current: Transaction | None, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """KIP-890: are these partitions part of the open transaction? Nothing changes."""
    asked = list(partitions)
    error = _check_pair(current, producer_id, epoch)
    if not error and current is not None and current.state.is_preparing:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error or current is None:
        return dict.fromkeys(asked, error)
    spanned = current.partitions if current.state is _S.ONGOING else frozenset()
    return {tp: ErrorCode.NONE if tp in spanned else ErrorCode.TRANSACTION_ABORTABLE for tp in asked}


def end(
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    commit: bool,
    now_ms: int,
    client_version: int,
    take_producer_id: Callable[[], int],
) -> Decision:
    """Decide commit or abort. Transaction.version 2 gives the client a new epoch with every end."""
    if client_version >= 2:
        return _end_and_bump(current, producer_id, epoch, commit, now_ms, take_producer_id)
    error = _check_pair(current, producer_id, epoch)
    if error or current is None:
        return refuse(error)
    if current.state.is_preparing:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is _S.ONGOING:
        return _prepare(current, commit, now_ms, client_version, take_producer_id)
    if current.state is (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):
        return Decision(ErrorCode.NONE, None, *current.client_pair)
    return refuse(ErrorCode.INVALID_TXN_STATE)


# Transaction.version 2: state → (retry of an abort, abort, retry of a commit, commit). "retry" presents the epoch that
# the end before this one replaced. A cell is an error, "prepare", or "done": answered with the pair already given.
_PREPARE = "prepare"
_DONE = "done"
_END_V2: dict[TransactionState, tuple[ErrorCode | str, ErrorCode | str, ErrorCode | str, ErrorCode | str]] = {
    _S.EMPTY: (ErrorCode.PRODUCER_FENCED, _PREPARE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE),
    _S.ONGOING: (ErrorCode.PRODUCER_FENCED, _PREPARE, ErrorCode.PRODUCER_FENCED, _PREPARE),
    _S.COMPLETE_ABORT: (_DONE, _PREPARE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    _S.COMPLETE_COMMIT: (ErrorCode.INVALID_TXN_STATE, _PREPARE, _DONE, ErrorCode.INVALID_TXN_STATE),
}


def _end_and_bump(
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    commit: bool,
    now_ms: int,
    take_producer_id: Callable[[], int],
) -> Decision:
    if current is None:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.state.is_preparing:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)  # before pair and result are looked at, as Kafka
    is_retry = _presents_replaced_pair(current, producer_id, epoch)
    if not is_retry:
        error = _check_pair(current, producer_id, epoch)
        if error:
            return refuse(error)
    cell = _END_V2[current.state][(2 if commit else 0) + (0 if is_retry else 1)]
    if isinstance(cell, ErrorCode):
        return refuse(cell)
    if cell == _DONE:
        return Decision(ErrorCode.NONE, None, *current.client_pair)
    return _prepare(current, commit, now_ms, 2, take_producer_id)


def _presents_replaced_pair(current: Transaction, producer_id: int, epoch: int) -> bool:
    """Does the request carry the pair that the newest end of a transaction replaced?"""
    newest_id, newest_epoch = current.client_pair
    if producer_id == newest_id:
        return epoch == newest_epoch - 1
    if newest_epoch != 0 or epoch != LAST_USABLE_EPOCH:
        return False
    # The producer id was rotated; while preparing, the pair's old id may still be the marker's.
    return producer_id in (current.previous_producer_id, current.producer_id)


def _prepare(
    current: Transaction, commit: bool, now_ms: int, client_version: int, take_producer_id: Callable[[], int]
) -> Decision:
    """The record that decides. From here on the outcome never changes; markers carry `producer_id`/`producer_epoch`."""
    marker_epoch = current.producer_epoch
    next_producer_id, next_epoch = NO_PRODUCER_ID, NO_EPOCH
    previous_producer_id = current.previous_producer_id
    client_id, client_epoch = current.client_pair
    if client_version >= 2 or current.is_kept_prepared:
        # Also when a pair was handed out on keep-prepared: a delayed end with that pair must not hit a later one.
        marker_epoch = min(marker_epoch + 1, MAX_EPOCH)
        if is_exhausted(client_epoch):
            next_producer_id, next_epoch = take_producer_id(), 0
            previous_producer_id = client_id
        elif current.is_kept_prepared:
            next_producer_id, next_epoch = client_id, client_epoch + 1
    update = current.moved(
        _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
        producer_epoch=marker_epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_epoch,
        start_ms=current.start_ms if current.state is _S.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )
    if client_version < 2 and not current.is_kept_prepared:
        return Decision(ErrorCode.NONE, update)
    return Decision(ErrorCode.NONE, update, *update.client_pair)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """All markers are written: the id is free for the next transaction, under the pair that the client was given."""
    producer_id, epoch = current.client_pair
    rotated = producer_id != current.producer_id
    return current.moved(
        _S.COMPLETE_COMMIT if current.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=_previous_after(current, rotated),
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


def _previous_after(current: Transaction, rotated: bool) -> int:
    if rotated and current.previous_producer_id != NO_PRODUCER_ID:
        return current.previous_producer_id  # the id of the client that ended it, which a retry will present
    return current.producer_id


def has_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Two-phase transactions never do: somebody promised to end them (KIP-939)."""
    return (
        transaction.state is _S.ONGOING
        and not transaction.is_two_phase
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def has_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    return transaction.state.is_idle and transaction.last_update_ms + expiration_ms <= now_ms
