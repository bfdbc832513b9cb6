"""What transactions promise, judged by what they wrote: all of it or nothing, each once, hidden until it is committed,
and in peace none stays open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.batch import CONTROL_COMMIT, iterate_batches, read_marker, read_records
from penstock.testing.simulation.disk import TopicPartition
from penstock.testing.simulation.invariants import Checker


@dataclass
class SimTransaction:
    """What one transaction wrote, and what its client knows."""

    number: int
    client: str
    written: dict[TopicPartition, list[int]] = field(default_factory=dict)  # acknowledged
    offset: int | None = None  # acknowledged
    asked: bool | None = None  # to commit?
    ended: bool | None = None  # committed?
    is_taken_over: bool = False  # its former writer may add nothing any more


@dataclass(frozen=True)
class Ended:
    """A value in a log, and the marker that ended it; None: it is still open."""

    value: int
    producer_id: int
    committed: bool | None


class TransactionRules:
    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.transactions: dict[int, SimTransaction] = {}
        self.of_value: dict[int, SimTransaction] = {}
        self.of_producer: dict[int, str] = {}  # whose producer id it is
        self.excused_clients: set[str] = set()  # the state of their transactions was lost with an excuse
        self.too_late: set[int] = set()  # values sent after their transaction was taken over
        self.seen = 0

    def begin(self, number: int, client: str) -> SimTransaction:
        transaction = self.transactions[number] = SimTransaction(number, client)
        return transaction

    def new_value(self, value: int, transaction: SimTransaction) -> int:
        self.of_value[value] = transaction
        if transaction.is_taken_over:
            self.too_late.add(value)
        return value

    def written(self, transaction: SimTransaction, where: TopicPartition, value: int) -> None:
        self._checker.demand(
            value not in self.too_late, f"{where}: {value} is written to {transaction} after it was taken over"
        )
        transaction.written.setdefault(where, []).append(value)

    def taken_over(self, transaction: SimTransaction, ongoing_producer_id: int) -> None:
        self._checker.demand(
            ongoing_producer_id >= 0 or transaction.client in self.excused_clients,
            f"{transaction} was open, and is not there to be taken over",
        )
        transaction.is_taken_over = True

    @property
    def ended(self) -> int:
        return sum(transaction.ended is not None for transaction in self.transactions.values())

    def visible(self, where: TopicPartition, values: Iterable[int], node_id: int) -> None:
        """What read_committed shows at this moment: only what somebody asked to commit."""
        for value in values:
            self.seen += 1
            transaction = self.of_value[value]
            self._checker.demand(
                transaction.asked is True and transaction.ended is not False,
                f"{where}: read_committed at {node_id} shows {value} of {transaction}",
            )

    def judge(self, logs: dict[TopicPartition, bytes], offsets: dict[str, int | None]) -> None:
        """In the end. `logs`: the partitions that lost nothing; `offsets`: by client, where they lost nothing."""
        outcomes: dict[int, dict[TopicPartition, bool]] = {}
        found: dict[TopicPartition, list[int]] = {}
        for where, data in logs.items():
            for end in endings(data):
                transaction = self.of_value[end.value]
                self._checker.demand(
                    end.value not in self.too_late, f"{where}: {end} came into {transaction} after it was taken over"
                )
                found.setdefault(where, []).append(end.value)
                if transaction.client in self.excused_clients:
                    continue
                self._checker.demand(
                    end.committed is not None, f"{where}: {end} of {transaction} has no marker after a long peace"
                )
                told = outcomes.setdefault(transaction.number, {}).setdefault(where, bool(end.committed))
                self._checker.demand(told == end.committed, f"{where}: {transaction} is half committed")
        for transaction in self.transactions.values():
            if transaction.client not in self.excused_clients:
                self._judge_one(transaction, outcomes.get(transaction.number, {}), logs, found)
        for client, offset in offsets.items():
            if client not in self.excused_clients:
                self._judge_offset(client, offset, outcomes)

    def _judge_one(
        self,
        transaction: SimTransaction,
        outcome: dict[TopicPartition, bool],
        logs: dict[TopicPartition, bytes],
        found: dict[TopicPartition, list[int]],
    ) -> None:
        demand = self._checker.demand
        demand(len(set(outcome.values())) <= 1, f"{transaction} is committed in part: {outcome}")
        committed = next(iter(outcome.values()), None)
        if transaction.asked is not True:
            demand(committed is not True, f"{transaction} is committed, nobody asked for it")
        if transaction.ended is not None:
            demand(committed in (None, transaction.ended), f"{transaction} ended otherwise: {outcome}")
        for where, values in transaction.written.items():
            if where in logs:
                for value in values:
                    times = found.get(where, []).count(value)
                    demand(times == 1, f"{where}: {value} of {transaction} is there {times} times")

    def _judge_offset(self, client: str, offset: int | None, outcomes: dict[int, dict[TopicPartition, bool]]) -> None:
        expected: set[int | None] = {None}
        for number, transaction in sorted(self.transactions.items()):
            if transaction.client != client or transaction.offset is None:
                continue
            committed = next(iter(outcomes.get(number, {}).values()), transaction.ended)
            if committed is None:
                expected.add(transaction.offset)  # its records are in logs that are excused
            elif committed:
                expected = {transaction.offset}
        self._checker.demand(offset in expected, f"the offset of {client} is {offset}, should be one of {expected}")


def endings(data: bytes) -> Iterable[Ended]:
    """The values of a log in their order, with how each was ended."""
    open_values: dict[int, list[int]] = {}
    for header in iterate_batches(data):
        if header.is_control:
            marker = read_marker(data, header)
            assert marker is not None
            for value in open_values.pop(header.producer_id, []):
                yield Ended(value, header.producer_id, marker.control_type == CONTROL_COMMIT)
        else:
            open_values.setdefault(header.producer_id, []).extend(values_in(data, header))
    for producer_id, values in open_values.items():
        for value in values:
            yield Ended(value, producer_id, None)


def values_in(data: bytes, header: Any) -> list[int]:
    return [int(record.value or b"") for record in read_records(data, header)]
