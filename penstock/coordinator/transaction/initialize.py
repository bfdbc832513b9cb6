"""InitProducerId for a transactional id: give a producer its pair of id and epoch, and fence whoever held it before.

Pure: one transaction and one request in, one `Decision` out. Fresh producer ids come from `take_producer_id`.

Two-phase commit (KIP-939), both halves:
- `enable_two_phase`: the transactions of this producer never time out (time-out 2^31 - 1 in the log);
- `keep_prepared`: an open transaction is left open. Its records keep the pair that they were written with, which is
  what the answer names as ongoing; the newcomer gets a newer pair, the only one that may end the transaction. Each
  further call fences the call before it. Before the answer goes out the leaders of its partitions have been told to
  take nothing more under the old pair (`service`), so that it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.coordinator.transaction.decisions import Decision, refuse
from penstock.coordinator.transaction.state import (
    NEVER_TIMES_OUT_MS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Transaction,
    TransactionState,
    is_exhausted,
)
from penstock.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class InitializeRequest:
    transactional_id: str
    timeout_ms: int
    expected_producer_id: int = NO_PRODUCER_ID
    expected_epoch: int = NO_EPOCH
    enable_two_phase: bool = False
    keep_prepared: bool = False

    @property
    def has_expectation(self) -> bool:
        return self.expected_producer_id != NO_PRODUCER_ID

    @property
    def resolved_timeout_ms(self) -> int:
        return NEVER_TIMES_OUT_MS if self.enable_two_phase else self.timeout_ms


def check_request(request: InitializeRequest, max_timeout_ms: int, two_phase_enabled: bool) -> ErrorCode:
    """What can be refused before looking at any state."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (request.expected_producer_id == NO_PRODUCER_ID) != (request.expected_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.enable_two_phase and not two_phase_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared and not two_phase_enabled:
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.enable_two_phase and not 0 < request.timeout_ms <= max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialize(
    current: Transaction | None,
    request: InitializeRequest,
    now_ms: int,
    take_producer_id: Callable[[], int],
    last_epoch: int = NO_EPOCH,
) -> Decision:
    """`last_epoch` is the epoch that the client held before the current one, if its own request replaced it."""
    if current is None:
        producer_id = take_producer_id()
        newborn = Transaction(
            request.transactional_id,
            producer_id,
            0,
            request.resolved_timeout_ms,
            TransactionState.EMPTY,
            last_update_ms=now_ms,
            previous_producer_id=producer_id,  # as Kafka: only a rotation makes it another one
        )
        return _granted(newborn)
    if current.state.is_preparing:
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _producer_id_fits(current, request, last_epoch):
        return refuse(ErrorCode.PRODUCER_FENCED)
    if current.state is TransactionState.ONGOING:
        if request.keep_prepared:
            return _keep_open(current, request, now_ms, take_producer_id, last_epoch)
        return fence_and_abort(current, now_ms, take_producer_id)
    return _next_pair(current, request, now_ms, take_producer_id, last_epoch)


def _producer_id_fits(current: Transaction, request: InitializeRequest, last_epoch: int) -> bool:
    if not request.has_expectation or request.expected_producer_id == current.client_pair[0]:
        return True
    # The answer that rotated the producer id was lost: the client still holds the old id with its last epoch.
    rotated = request.expected_producer_id == current.previous_producer_id and is_exhausted(request.expected_epoch)
    return rotated and last_epoch == request.expected_epoch


def _next_pair(
    current: Transaction,
    request: InitializeRequest,
    now_ms: int,
    take_producer_id: Callable[[], int],
    last_epoch: int,
) -> Decision:
    idle = replace(
        current,
        state=TransactionState.EMPTY,
        timeout_ms=request.resolved_timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
    )
    replaced = current.producer_epoch if request.has_expectation else NO_EPOCH
    if request.has_expectation and request.expected_epoch != current.producer_epoch:
        if request.expected_epoch == last_epoch:  # a retry of the request that made the current pair
            return _granted(idle, last_epoch)
        return refuse(ErrorCode.PRODUCER_FENCED)
    if is_exhausted(current.producer_epoch):
        rotated = replace(
            idle,
            producer_id=take_producer_id(),
            producer_epoch=0,
            previous_producer_id=current.producer_id,
        )
        return _granted(rotated, replaced)
    return _granted(replace(idle, producer_epoch=current.producer_epoch + 1), replaced)


def _granted(update: Transaction, last_epoch: int = NO_EPOCH) -> Decision:
    producer_id, epoch = update.client_pair
    return Decision(ErrorCode.NONE, update, producer_id, epoch, last_epoch=last_epoch)


def _keep_open(
    current: Transaction,
    request: InitializeRequest,
    now_ms: int,
    take_producer_id: Callable[[], int],
    last_epoch: int,
) -> Decision:
    replaced = current.client_pair[1]
    if not request.has_expectation or request.expected_epoch == replaced:
        next_producer_id, next_epoch = bumped_client_pair(current, take_producer_id)
    elif current.is_kept_prepared and request.expected_epoch == last_epoch:
        (next_producer_id, next_epoch), replaced = current.client_pair, last_epoch  # its own request came again
    else:
        return refuse(ErrorCode.PRODUCER_FENCED)
    update = current.moved(
        TransactionState.ONGOING,
        timeout_ms=request.resolved_timeout_ms,
        last_update_ms=now_ms,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_epoch,
    )
    return Decision(
        ErrorCode.NONE,
        update,
        next_producer_id,
        next_epoch,
        ongoing_producer_id=current.producer_id,
        ongoing_producer_epoch=current.producer_epoch,
        last_epoch=replaced if request.has_expectation else NO_EPOCH,
    )


def bumped_client_pair(current: Transaction, take_producer_id: Callable[[], int]) -> tuple[int, int]:
    producer_id, epoch = current.client_pair
    return (take_producer_id(), 0) if is_exhausted(epoch) else (producer_id, epoch + 1)


def fence_and_abort(current: Transaction, now_ms: int, take_producer_id: Callable[[], int]) -> Decision:
    """Abort an open transaction under the next epoch, so that its producer can add nothing any more.

    The caller of InitProducerId is told CONCURRENT_TRANSACTIONS and comes again when the abort is complete.
    """
    changes: dict[str, int] = {}
    rotates = current.client_version >= 2 and is_exhausted(current.producer_epoch)
    if current.is_kept_prepared or rotates:
        # Whoever kept it prepared holds the client pair and must be fenced as well. And a client of version 2 may
        # take the outcome of this abort as its own, with the pair that comes after it.
        next_producer_id, next_epoch = bumped_client_pair(current, take_producer_id)
        changes = {"next_producer_id": next_producer_id, "next_producer_epoch": next_epoch}
        if next_producer_id != current.client_pair[0]:
            changes["previous_producer_id"] = current.client_pair[0]
    update = current.moved(
        TransactionState.PREPARE_ABORT,
        producer_epoch=current.producer_epoch + 1,
        last_update_ms=now_ms,
        **changes,
    )
    # A producer that asked for this under the pair which it replaces comes again with that pair: it is its own retry.
    return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, update, last_epoch=current.client_pair[1])
