"""One transactional id and its decisions: who is let in, who is fenced, how a transaction ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from penstock.coordinator.transaction import decisions
from penstock.coordinator.transaction.decisions import Decision
from penstock.coordinator.transaction.initialize import InitializeRequest, check_request, fence_and_abort, initialize
from penstock.coordinator.transaction.state import (
    MAY_COME_FROM,
    NEVER_TIMES_OUT_MS,
    IllegalMove,
    Transaction,
    TransactionState,
)
from penstock.protocol.errors import ErrorCode

S = TransactionState
E = ErrorCode
NOW = 1_700_000_000_000
LAST = 32766


def in_state(state: TransactionState, epoch: int = 5, **changes: object) -> Transaction:
    partitions = frozenset({("orders", 0)}) if state in (S.ONGOING, S.PREPARE_ABORT, S.PREPARE_COMMIT) else frozenset()
    return replace(Transaction("t", 10, epoch, 60_000, state, partitions, NOW, NOW), **changes)  # type: ignore[arg-type]


def ids(start: int = 900) -> Callable[[], int]:
    numbers = count(start)
    return lambda: next(numbers)


def init(current: Transaction | None, last_epoch: int = -1, **request: object) -> Decision:
    return initialize(
        current,
        InitializeRequest("t", 60_000, **request),  # type: ignore[arg-type]
        NOW,
        ids(),
        last_epoch,
    )


def end(current: Transaction | None, epoch: int, commit: bool, version: int = 2, pid: int = 10) -> Decision:
    return decisions.end(current, pid, epoch, commit, NOW, version, ids())


# The table of states -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", list(S))
@pytest.mark.parametrize("source", list(S))
def test_only_the_moves_of_the_table_can_be_made(source: TransactionState, target: TransactionState) -> None:
    transaction = in_state(source)
    if source in MAY_COME_FROM[target]:
        assert transaction.moved(target).state is target
    else:
        with pytest.raises(IllegalMove):
            transaction.moved(target)


# InitProducerId ----------------------------------------------------------------------------------------------------


def test_a_new_id_gets_a_new_producer_id_and_epoch_zero() -> None:
    answer = init(None)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, 900, 0)
    assert answer.update is not None
    assert answer.update.state is S.EMPTY


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_restarted_producer_bumps_the_epoch_and_so_fences_the_one_before(state: TransactionState) -> None:
    answer = init(in_state(state, 5))
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, 10, 6)
    assert answer.update is not None
    assert answer.update.state is S.EMPTY
    assert answer.update.start_ms == -1


def test_a_producer_that_recovers_names_its_pair_and_a_retry_gets_the_same_answer() -> None:
    first = init(in_state(S.COMPLETE_ABORT, 5), expected_producer_id=10, expected_epoch=5)
    assert (first.producer_epoch, first.last_epoch) == (6, 5)
    retried = init(first.update, first.last_epoch, expected_producer_id=10, expected_epoch=5)
    assert (retried.error, retried.producer_id, retried.producer_epoch) == (E.NONE, 10, 6)


def test_a_zombie_that_names_an_old_pair_is_fenced() -> None:
    assert init(in_state(S.EMPTY, 5), expected_producer_id=10, expected_epoch=3).error is E.PRODUCER_FENCED
    assert init(in_state(S.EMPTY, 5), expected_producer_id=11, expected_epoch=5).error is E.PRODUCER_FENCED
    # A newcomer has bumped to 5 without naming a pair: the old holder of 4 is no retry of it.
    assert init(in_state(S.EMPTY, 5), -1, expected_producer_id=10, expected_epoch=4).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_while_markers_travel_the_newcomer_comes_again(state: TransactionState) -> None:
    assert init(in_state(state)) == Decision(E.CONCURRENT_TRANSACTIONS)


def test_an_open_transaction_of_a_dead_producer_is_aborted_under_the_next_epoch() -> None:
    answer = init(in_state(S.ONGOING, 5))
    assert answer.error is E.CONCURRENT_TRANSACTIONS
    assert answer.update is not None
    assert (answer.update.state, answer.update.producer_epoch) == (S.PREPARE_ABORT, 6)
    completed = decisions.complete(answer.update, NOW)
    assert init(completed).producer_epoch == 7


@pytest.mark.parametrize("expected", [{}, {"expected_producer_id": 10, "expected_epoch": LAST}])
def test_an_exhausted_epoch_brings_a_new_producer_id(expected: dict[str, int]) -> None:
    answer = init(in_state(S.COMPLETE_COMMIT, LAST), **expected)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, 900, 0)
    assert answer.update is not None
    assert answer.update.previous_producer_id == 10


def test_a_retry_of_the_rotation_is_recognised_by_the_old_producer_id() -> None:
    expected = {"expected_producer_id": 10, "expected_epoch": LAST}
    first = init(in_state(S.COMPLETE_COMMIT, LAST), **expected)
    retried = init(first.update, first.last_epoch, **expected)
    assert (retried.error, retried.producer_id, retried.producer_epoch) == (E.NONE, 900, 0)


@pytest.mark.parametrize(
    ("request_fields", "error"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, E.NONE),
        ({"expected_producer_id": 4}, E.INVALID_REQUEST),
        ({"expected_epoch": 4}, E.INVALID_REQUEST),
        ({"enable_two_phase": True}, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared": True}, E.UNSUPPORTED_VERSION),
    ],
)
def test_what_is_refused_before_any_state_is_looked_at(request_fields: dict[str, object], error: ErrorCode) -> None:
    request = replace(InitializeRequest("t", 1000), **request_fields)  # type: ignore[arg-type]
    assert check_request(request, 900_000, two_phase_enabled=False) is error


# AddPartitionsToTxn ------------------------------------------------------------------------------------------------


def add(current: Transaction | None, pid: int = 10, epoch: int = 5, *partitions: tuple[str, int]) -> Decision:
    return decisions.add_partitions(current, pid, epoch, partitions or [("orders", 1)], NOW + 7, 2)


def test_the_first_partition_opens_the_transaction_and_starts_its_clock() -> None:
    opened = add(in_state(S.COMPLETE_COMMIT)).update
    assert opened is not None
    assert (opened.state, opened.start_ms, opened.partitions) == (S.ONGOING, NOW + 7, {("orders", 1)})
    more = add(opened, 10, 5, ("orders", 2)).update
    assert more is not None
    assert (more.start_ms, more.partitions) == (NOW + 7, {("orders", 1), ("orders", 2)})


def test_adding_what_is_there_writes_nothing() -> None:
    assert add(in_state(S.ONGOING), 10, 5, ("orders", 0)) == Decision(E.NONE)


@pytest.mark.parametrize(
    ("current", "pid", "epoch", "error"),
    [
        (None, 10, 5, E.INVALID_PRODUCER_ID_MAPPING),
        (in_state(S.ONGOING), 11, 5, E.INVALID_PRODUCER_ID_MAPPING),
        (in_state(S.ONGOING), 10, 4, E.PRODUCER_FENCED),
        (in_state(S.ONGOING), 10, 6, E.PRODUCER_FENCED),
        (in_state(S.PREPARE_COMMIT), 10, 5, E.CONCURRENT_TRANSACTIONS),
        (in_state(S.PREPARE_ABORT), 10, 5, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_strangers_and_zombies_add_nothing(current: Transaction | None, pid: int, epoch: int, error: ErrorCode) -> None:
    assert add(current, pid, epoch) == Decision(error)
    assert set(decisions.verify_partitions(current, pid, epoch, [("orders", 0)]).values()) == {error}


def test_verification_tells_which_partitions_are_part_of_the_open_transaction() -> None:
    asked = [("orders", 0), ("orders", 1)]
    assert decisions.verify_partitions(in_state(S.ONGOING), 10, 5, asked) == {
        ("orders", 0): E.NONE,
        ("orders", 1): E.TRANSACTION_ABORTABLE,
    }
    assert set(decisions.verify_partitions(in_state(S.EMPTY), 10, 5, asked).values()) == {E.TRANSACTION_ABORTABLE}


# EndTxn ------------------------------------------------------------------------------------------------------------

PREPARE = "prepare"
V1_TABLE = [
    (S.EMPTY, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    (S.ONGOING, PREPARE, PREPARE),
    (S.PREPARE_COMMIT, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    (S.PREPARE_ABORT, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    (S.COMPLETE_COMMIT, E.NONE, E.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, E.INVALID_TXN_STATE, E.NONE),
]


@pytest.mark.parametrize(("state", "on_commit", "on_abort"), V1_TABLE)
def test_the_end_of_a_transaction_for_old_clients(state: TransactionState, on_commit: object, on_abort: object) -> None:
    for commit, expected in ((True, on_commit), (False, on_abort)):
        answer = end(in_state(state), 5, commit, version=0)
        if expected == PREPARE:
            assert answer.error is E.NONE
            assert answer.update is not None
            assert answer.update.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
            assert answer.update.producer_epoch == 5
        else:
            assert (answer.error, answer.update) == (expected, None)


def test_strangers_and_zombies_end_nothing() -> None:
    for version in (0, 2):
        assert end(None, 5, True, version).error is E.INVALID_PRODUCER_ID_MAPPING
        assert end(in_state(S.ONGOING), 5, True, version, pid=11).error is E.INVALID_PRODUCER_ID_MAPPING
        assert end(in_state(S.ONGOING), 3, True, version).error is E.PRODUCER_FENCED
        assert end(in_state(S.ONGOING), 6, True, version).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize(("pid", "epoch"), [(10, 5), (10, 4), (10, 3), (10, 6), (11, 5)])
def test_while_markers_are_on_their_way_nobody_is_fenced(state: TransactionState, pid: int, epoch: int) -> None:
    """A quick producer is told to come again, whatever it presents; only old ends look at the pair first."""
    current = in_state(state)
    for commit in (True, False):
        assert end(current, epoch, commit, pid=pid).error is E.CONCURRENT_TRANSACTIONS
        old = E.CONCURRENT_TRANSACTIONS if (pid, epoch) == (10, 5) else E.PRODUCER_FENCED
        old = E.INVALID_PRODUCER_ID_MAPPING if pid == 11 else old
        assert end(current, epoch, commit, version=0, pid=pid).error is old
    assert add(current, pid, epoch).error is E.CONCURRENT_TRANSACTIONS
    assert init(current, expected_producer_id=pid, expected_epoch=epoch).error is E.CONCURRENT_TRANSACTIONS


BUMP = "bump"
SAME = "same pair"
V2_TABLE = [  # state, retried abort, abort, retried commit, commit
    (S.EMPTY, E.PRODUCER_FENCED, BUMP, E.PRODUCER_FENCED, E.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, SAME, BUMP, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, E.INVALID_TXN_STATE, BUMP, SAME, E.INVALID_TXN_STATE),
    (S.ONGOING, E.PRODUCER_FENCED, BUMP, E.PRODUCER_FENCED, BUMP),
    (S.PREPARE_ABORT, *[E.CONCURRENT_TRANSACTIONS] * 4),
    (S.PREPARE_COMMIT, *[E.CONCURRENT_TRANSACTIONS] * 4),
]


@pytest.mark.parametrize("row", V2_TABLE, ids=lambda row: row[0].shown)
def test_the_end_of_a_transaction_under_version_2(row: tuple[TransactionState, *tuple[object, ...]]) -> None:
    state, *cells = row
    asked = [(False, 4), (False, 5), (True, 4), (True, 5)]
    for (commit, epoch), expected in zip(asked, cells, strict=True):
        answer = end(in_state(state), epoch, commit)
        if expected == BUMP:
            assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, 10, 6)
            assert answer.update is not None
            assert answer.update.producer_epoch == 6
        elif expected == SAME:
            assert answer == Decision(E.NONE, None, 10, 5)
        else:
            assert (answer.error, answer.update) == (expected, None), (commit, epoch)


def test_an_overflow_at_the_end_sends_the_marker_at_the_last_epoch_and_goes_on_under_a_new_producer_id() -> None:
    answer = end(in_state(S.ONGOING, LAST), LAST, True)
    assert (answer.producer_id, answer.producer_epoch) == (900, 0)
    prepared = answer.update
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (10, 32767)
    assert end(prepared, LAST, True).error is E.CONCURRENT_TRANSACTIONS
    completed = decisions.complete(prepared, NOW)
    assert (completed.producer_id, completed.producer_epoch, completed.previous_producer_id) == (900, 0, 10)
    assert end(completed, LAST, True) == Decision(E.NONE, None, 900, 0)  # the retry of the lost answer
    assert end(completed, LAST, False).error is E.INVALID_TXN_STATE


# Two-phase commit (KIP-939) ----------------------------------------------------------------------------------------


def test_a_two_phase_transaction_never_times_out() -> None:
    born = init(None, enable_two_phase=True).update
    assert born is not None
    assert born.timeout_ms == NEVER_TIMES_OUT_MS
    opened = decisions.add_partitions(born, 900, 0, [("orders", 0)], NOW, 2).update
    assert opened is not None
    assert not decisions.has_timed_out(opened, NOW + 10 * 365 * 86_400_000)
    assert decisions.has_timed_out(replace(opened, timeout_ms=1000), NOW + 1001)


def test_keeping_a_prepared_transaction_names_it_and_hands_out_the_pair_that_may_end_it() -> None:
    taken_over = init(in_state(S.ONGOING, 5), keep_prepared=True, enable_two_phase=True)
    assert (taken_over.error, taken_over.producer_id, taken_over.producer_epoch) == (E.NONE, 10, 6)
    assert (taken_over.ongoing_producer_id, taken_over.ongoing_producer_epoch) == (10, 5)
    kept = taken_over.update
    assert kept is not None
    assert (kept.state, kept.producer_epoch) == (S.ONGOING, 5)

    assert end(kept, 5, True).error is E.PRODUCER_FENCED  # the incarnation that crashed
    assert add(kept, 10, 6).error is E.INVALID_TXN_STATE  # the newcomer may only end it
    assert add(kept, 10, 5).error is E.PRODUCER_FENCED
    ended = end(kept, 6, True)
    assert (ended.error, ended.producer_id, ended.producer_epoch) == (E.NONE, 10, 7)
    prepared = ended.update
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (10, 6)  # markers: one above what the records carry
    completed = decisions.complete(prepared, NOW)
    assert (completed.state, completed.producer_id, completed.producer_epoch) == (S.COMPLETE_COMMIT, 10, 7)
    assert end(completed, 6, True) == Decision(E.NONE, None, 10, 7)


def test_each_take_over_fences_the_one_before_and_overflows_into_a_new_producer_id() -> None:
    current = in_state(S.ONGOING, LAST - 1)
    first = init(current, keep_prepared=True)
    assert (first.producer_id, first.producer_epoch) == (10, LAST)
    second = init(first.update, keep_prepared=True)
    assert (second.producer_id, second.producer_epoch) == (900, 0)
    assert (second.ongoing_producer_id, second.ongoing_producer_epoch) == (10, LAST - 1)
    assert end(second.update, LAST, False).error is E.PRODUCER_FENCED
    ended = end(second.update, 0, False, pid=900)
    assert (ended.error, ended.producer_id, ended.producer_epoch) == (E.NONE, 900, 1)
    assert ended.update is not None
    assert (ended.update.producer_id, ended.update.producer_epoch) == (10, LAST)
    completed = decisions.complete(ended.update, NOW)
    assert end(completed, 0, False, pid=900) == Decision(E.NONE, None, 900, 1)


def test_a_take_over_with_nothing_open_is_an_ordinary_start() -> None:
    answer = init(in_state(S.COMPLETE_COMMIT, 5), keep_prepared=True)
    assert (answer.producer_epoch, answer.ongoing_producer_id, answer.ongoing_producer_epoch) == (6, -1, -1)


def test_starting_without_keep_prepared_aborts_and_fences_every_holder_of_a_pair() -> None:
    kept = init(in_state(S.ONGOING, 5), keep_prepared=True).update
    aborted = init(kept)
    assert aborted.error is E.CONCURRENT_TRANSACTIONS
    assert aborted.update is not None
    completed = decisions.complete(aborted.update, NOW)
    assert completed.state is S.COMPLETE_ABORT
    for epoch in (5, 6):
        assert end(completed, epoch, True).error in (E.PRODUCER_FENCED, E.INVALID_TXN_STATE)
    assert init(completed).producer_epoch == completed.producer_epoch + 1


def test_old_clients_may_end_a_kept_transaction_too() -> None:
    kept = init(in_state(S.ONGOING, 5), keep_prepared=True).update
    ended = end(kept, 6, True, version=0)
    assert ended.update is not None
    assert (ended.error, ended.update.producer_epoch) == (E.NONE, 6)


# Time --------------------------------------------------------------------------------------------------------------


def test_a_timed_out_transaction_is_aborted_and_its_producer_learns_of_it() -> None:
    aborted = fence_and_abort(in_state(S.ONGOING, 5, client_version=2), NOW, ids()).update
    assert aborted is not None
    completed = decisions.complete(aborted, NOW)
    assert end(completed, 5, True).error is E.INVALID_TXN_STATE
    assert end(completed, 5, False) == Decision(E.NONE, None, 10, 6)


def test_a_time_out_at_the_last_epoch_leaves_a_usable_pair_behind() -> None:
    aborted = fence_and_abort(in_state(S.ONGOING, LAST, client_version=2), NOW, ids()).update
    assert aborted is not None
    assert aborted.producer_epoch == 32767
    completed = decisions.complete(aborted, NOW)
    assert end(completed, LAST, False) == Decision(E.NONE, None, 900, 0)


def test_ids_expire_only_while_nothing_is_open() -> None:
    week_ms = 7 * 86_400_000
    for state in S:
        transaction = in_state(state)
        assert not decisions.has_expired(transaction, NOW + week_ms - 1, week_ms)
        assert decisions.has_expired(transaction, NOW + week_ms, week_ms) is state.is_idle
