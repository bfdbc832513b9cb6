"""Looking at transactions without touching them: ListTransactions (66) and DescribeTransactions (65)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.coordinator.transaction.state import (
    NO_TIMESTAMP,
    STATES_BY_SHOWN_NAME,
    Transaction,
    TransactionState,
)


class InvalidPattern(Exception):
    """The transactional-id pattern is no RE2 expression."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Empty sets and None let everything pass; `longer_than_ms` < 0 too."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    pattern: str | None = None

    def matcher(self, now_ms: int) -> Callable[[Transaction], bool]:
        matches_id = _compile(self.pattern)

        def matches(transaction: Transaction) -> bool:
            if transaction.state is TransactionState.DEAD:
                return False
            if self.states and transaction.state not in self.states:
                return False
            if self.producer_ids and transaction.producer_id not in self.producer_ids:
                return False
            if self.longer_than_ms >= 0 and now_ms - transaction.start_ms <= self.longer_than_ms:
                return False
            return matches_id is None or matches_id(transaction.transactional_id)

        return matches


def _compile(pattern: str | None) -> Callable[[str], bool] | None:
    """RE2 as in Kafka: a pattern from outside can never take more than linear time; the whole id must match."""
    if not pattern:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from error
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def known_states(names: Iterable[str]) -> tuple[frozenset[TransactionState], list[str]]:
    """(the states of these names, the names that are none)."""
    asked = list(names)
    states = frozenset(STATES_BY_SHOWN_NAME[name] for name in asked if name in STATES_BY_SHOWN_NAME)
    return states, [name for name in asked if name not in STATES_BY_SHOWN_NAME]


def age_ms(transaction: Transaction, now_ms: int) -> int:
    """How long the transaction has been open; -1 if none is."""
    is_open = transaction.state is TransactionState.ONGOING or transaction.state.is_preparing
    return now_ms - transaction.start_ms if is_open and transaction.start_ms != NO_TIMESTAMP else -1
