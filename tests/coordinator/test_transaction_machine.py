"""Random transactions against an independent model: 10,000 steps a run, and what must never happen is looked for after
each of them.

The real shard and the real producer state of partitions; the network may delay and repeat everything, coordinators
crash and lose what was not committed. The model knows only what clients asked and what they were told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.coordinator.runtime import Write
from penstock.coordinator.shard_log import NO_PRODUCER, Record
from penstock.coordinator.transaction import decisions
from penstock.coordinator.transaction.decisions import Decision
from penstock.coordinator.transaction.initialize import InitializeRequest
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.coordinator.transaction.state import Transaction, TransactionState
from penstock.log.producer_state import ProducerState
from penstock.log.verifications import VerificationGuard
from penstock.protocol.errors import ErrorCode

IDS = ["a", "b"]
PARTITIONS = [("orders", 0), ("orders", 1), ("bills", 0)]
TIMEOUT_MS = 60_000
Pair = tuple[int, int]


class DataPartition:
    """A partition with one replica: what is appended is committed at once."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.entries: list[tuple[int, str | None]] = []  # (producer id, value); a marker has no value
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first and last offset

    def guard(self, pair: Pair, client_version: int, now_ms: int) -> VerificationGuard | None:
        entry = self.state.entries.get(pair[0])
        if entry is not None and entry.epoch == pair[1] and entry.txn_first_offset >= 0:
            return None
        return self.state.verifications.start(*pair, -1, client_version >= 2, now_ms)

    def append(self, pair: Pair, value: str, guard: VerificationGuard | None) -> ErrorCode:
        producer_id, epoch = pair
        entry = self.state.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_open = entry is not None and entry.epoch == epoch and entry.txn_first_offset >= 0
        if not is_open and not self.state.verifications.is_running(producer_id, guard):
            return ErrorCode.INVALID_TXN_STATE
        offset = len(self.entries)
        self.state.put_batch(producer_id, epoch, -1, 0, offset, 0, True)
        self.state.verifications.forget(producer_id)
        self.entries.append((producer_id, value))
        return ErrorCode.NONE

    def mark(self, transaction: Transaction, coordinator_epoch: int) -> ErrorCode:
        pair = (transaction.producer_id, transaction.producer_epoch)
        refused = self.state.check_marker(*pair, coordinator_epoch, transaction.client_version)
        if refused is not None:
            return refused
        offset = len(self.entries)
        aborted = transaction.state is TransactionState.PREPARE_ABORT
        ended = self.state.end_transaction(*pair, coordinator_epoch, aborted, offset, 0)
        if transaction.client_version < 2:
            self.state.verifications.forget(pair[0])
        self.entries.append((pair[0], None))
        self.state.on_high_watermark(len(self.entries))
        if ended is not None and aborted:
            self.aborted.append((ended.producer_id, ended.first_offset, ended.last_offset))
        return ErrorCode.NONE

    def read_committed(self) -> list[str]:
        unstable = self.state.first_unstable_offset()
        stable = len(self.entries) if unstable is None else unstable
        return [
            value
            for offset, (producer_id, value) in enumerate(self.entries[:stable])
            if value is not None
            and not any(pid == producer_id and first <= offset <= last for pid, first, last in self.aborted)
        ]


@dataclass
class Client:
    """One incarnation of a producer. `pair` is what it holds; `fenced` is what the model knows and it does not."""

    transactional_id: str
    pair: Pair
    client_version: int
    may_only_end: bool = False
    written: list[str] = field(default_factory=list)
    fenced: bool = False
    prepared: bool = False  # another one holds its transaction, to end it: it promised to write no more (KIP-939)
    ending: bool = False  # has asked for the end and waits for the answer: it writes nothing meanwhile
    transactions: int = 0
    added: set[tuple[str, int]] = field(default_factory=set)  # partitions of the transaction in work, before version 2

    def must_add(self, partition: tuple[str, int]) -> bool:
        """Before version 2 the epoch does not tell transactions apart, so the client itself adds partitions to each."""
        return self.client_version < 2 and partition not in self.added


@dataclass
class Decided:
    transaction: Transaction
    missing: set[tuple[str, int]]


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000
        self.next_producer_id = 100
        self.coordinator_epoch = 0
        self.committed: list[Record] = []
        self.tail: list[tuple[Write, Any]] = []
        self.decided: list[Decided] = []
        self.old_markers: list[tuple[Transaction, tuple[str, int], int]] = []
        self.clients: list[Client] = []
        self.partitions = {tp: DataPartition() for tp in PARTITIONS}
        self.pending_writes: list[tuple[Client, Pair, tuple[str, int], VerificationGuard | None]] = []
        self.values = 0
        # The model: what was promised.
        self.promised_commit: set[str] = set()
        self.promised_abort: set[str] = set()
        self.commit_asked: set[str] = set()
        self.batches_of_values: list[list[str]] = []  # values that must share one fate
        self.shard = self.new_shard()

    # The coordinator and its log ------------------------------------------------------------------------------

    def new_shard(self) -> TransactionShard:
        shard = TransactionShard(
            0, None, self.take_producer_id, self.on_decided, lambda _partition: None, lambda _partition: None
        )
        for record in self.committed:
            shard.replay(record, 0, NO_PRODUCER)
        return shard

    def take_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def on_decided(self, _partition: int, transaction: Transaction) -> None:
        self.decided.append(Decided(transaction, set(transaction.partitions)))

    def run(self, write: Write, told: Any) -> Decision:
        """The runtime's rules: replay after the append, the answer after the commit."""
        for record in write.records:
            self.shard.replay(record, 0, NO_PRODUCER)
        if write.records or self.tail:
            self.tail.append((write, told))
        else:
            told(write.response)
        decision: Decision = write.response
        return decision

    @rule()
    def commit_everything(self) -> None:
        while self.tail:
            write, told = self.tail.pop(0)
            self.committed += write.records
            if write.on_committed is not None:
                write.on_committed()
            told(write.response)

    @precondition(lambda self: self.committed)
    @rule()
    def coordinator_crashes(self) -> None:
        """What was not committed is gone, and so are the answers; the new one sends markers of what was decided."""
        self.check_that_state_is_what_the_log_says()
        self.tail.clear()
        for client in self.clients:
            client.ending = False
        self.decided.clear()
        self.coordinator_epoch += 1
        self.shard = self.new_shard()
        for transaction in self.shard.preparing():
            self.on_decided(0, transaction)

    # Clients --------------------------------------------------------------------------------------------------

    @rule(
        transactional_id=st.sampled_from(IDS),
        version=st.sampled_from([0, 2]),
        keep_prepared=st.booleans(),
        two_phase=st.booleans(),
        at_once=st.booleans(),
    )
    def start(self, transactional_id: str, version: int, keep_prepared: bool, two_phase: bool, at_once: bool) -> None:
        request = InitializeRequest(
            transactional_id, TIMEOUT_MS, enable_two_phase=two_phase, keep_prepared=keep_prepared
        )
        before = [c for c in self.clients if c.transactional_id == transactional_id]

        def told(decision: Decision) -> None:
            if decision.error:
                return
            newcomer = Client(transactional_id, (decision.producer_id, decision.producer_epoch), version)
            if decision.ongoing_producer_id >= 0:
                newcomer.may_only_end = True
                ongoing = (decision.ongoing_producer_id, decision.ongoing_producer_epoch)
                for client in before:
                    if client.pair == ongoing:
                        client.prepared = True
                        newcomer.written = newcomer.written + client.written
                self.pending_writes = [write for write in self.pending_writes if not write[0].prepared]
            else:
                for client in before:
                    client.fenced = True
            self.clients.append(newcomer)

        self.run(self.shard.initialize(request, self.now_ms), told)
        if at_once:
            self.commit_everything()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), at_once=st.booleans())
    def begin_write(self, data: st.DataObject, partition: tuple[str, int], at_once: bool) -> None:
        """The broker asks the coordinator, the answer takes its time."""
        client = data.draw(st.sampled_from(self.clients))
        pair, transactions = client.pair, client.transactions
        if client.ending or client.prepared:
            return
        guard = self.partitions[partition].guard(pair, client.client_version, self.now_ms)

        def told(decision: Decision) -> None:
            writes_on = not client.ending and not client.prepared and client.transactions == transactions
            if not decision.error and writes_on:
                client.added.add(partition)
                self.pending_writes.append((client, pair, partition, guard))

        if guard is None and not client.must_add(partition):
            self.pending_writes.append((client, pair, partition, guard))
            return
        self.run(
            self.shard.add_partitions(client.transactional_id, *pair, [partition], client.client_version, self.now_ms),
            told,
        )
        if at_once:
            self.commit_everything()

    @precondition(lambda self: self.pending_writes)
    @rule(data=st.data())
    def finish_write(self, data: st.DataObject) -> None:
        write = data.draw(st.sampled_from(self.pending_writes))
        self.pending_writes.remove(write)
        client, pair, partition, guard = write
        self.values += 1
        value = f"v{self.values}"
        error = self.partitions[partition].append(pair, value, guard)
        if error:
            return
        assert not client.fenced, f"{client} was fenced and has appended {value}"
        assert client.pair == pair, f"{client} has ended the transaction of {pair}, and a late batch joined the next"
        client.written.append(value)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), at_once=st.booleans())
    def end(self, data: st.DataObject, commit: bool, at_once: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        written, pair, transactions = client.written, client.pair, client.transactions
        if commit:
            self.commit_asked.update(written)

        def told(decision: Decision) -> None:
            if client.transactions != transactions:
                return  # the answer to a repeated request
            client.ending = False
            if decision.error:
                return
            (self.promised_commit if commit else self.promised_abort).update(written)
            self.batches_of_values.append(written)
            client.written, client.may_only_end, client.added = [], False, set()
            client.transactions += 1
            if decision.producer_id >= 0:
                client.pair = (decision.producer_id, decision.producer_epoch)

        self.pending_writes = [w for w in self.pending_writes if w[0] is not client]
        client.ending = True
        self.run(self.shard.end(client.transactional_id, *pair, commit, client.client_version, self.now_ms), told)
        if at_once:
            self.commit_everything()

    # Markers --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.decided)
    @rule(data=st.data())
    def marker_arrives(self, data: st.DataObject) -> None:
        decided = data.draw(st.sampled_from(self.decided))
        if decided.missing:
            partition = data.draw(st.sampled_from(sorted(decided.missing)))
            error = self.partitions[partition].mark(decided.transaction, self.coordinator_epoch)
            assert error is ErrorCode.NONE, f"{partition} refuses {decided.transaction}: {error.name}"
            decided.missing.discard(partition)
            self.old_markers.append((decided.transaction, partition, self.coordinator_epoch))
        if not decided.missing:
            self.decided.remove(decided)
            self.run(self.shard.complete(decided.transaction, self.now_ms), lambda _decision: None)

    @precondition(lambda self: self.old_markers)
    @rule(data=st.data())
    def old_marker_arrives_again(self, data: st.DataObject) -> None:
        """A marker that the network had kept back: it must not end a transaction that came later."""
        transaction, partition, coordinator_epoch = data.draw(st.sampled_from(self.old_markers))
        if transaction.client_version >= 2:  # older coordinators cannot tell; KIP-890 is about this
            self.partitions[partition].mark(transaction, coordinator_epoch)

    @rule(minutes=st.integers(1, 30))
    def time_passes(self, minutes: int) -> None:
        self.now_ms += minutes * 60_000
        for transactional_id in self.shard.timed_out(self.now_ms):
            self.run(self.shard.abort_timed_out(transactional_id, self.now_ms), lambda _decision: None)

    # What must always be true ---------------------------------------------------------------------------------

    def visible(self) -> set[str]:
        return {value for partition in self.partitions.values() for value in partition.read_committed()}

    @invariant()
    def nothing_is_visible_that_nobody_committed(self) -> None:
        visible = self.visible()
        assert visible <= self.commit_asked, f"visible without a commit: {visible - self.commit_asked}"
        assert not visible & self.promised_abort, f"visible although aborted: {visible & self.promised_abort}"

    @invariant()
    def two_phase_transactions_stay(self) -> None:
        for transaction in self.shard.transactions.values():
            if transaction.is_two_phase:
                assert not decisions.has_timed_out(transaction, self.now_ms + 10**12)

    def check_that_state_is_what_the_log_says(self) -> None:
        replayed = TransactionShard(0, None, self.take_producer_id, self.on_decided, print, print)
        for record in [*self.committed, *(r for write, _ in self.tail for r in write.records)]:
            replayed.replay(record, 0, NO_PRODUCER)
        assert replayed.transactions == self.shard.transactions

    def teardown(self) -> None:
        """Let everything come to its end: promises are kept, and a transaction is visible as a whole or not at all."""
        self.check_that_state_is_what_the_log_says()
        self.commit_everything()
        for _ in range(100):
            if not self.decided:
                break
            decided = self.decided[0]
            for partition in sorted(decided.missing):
                assert not self.partitions[partition].mark(decided.transaction, self.coordinator_epoch)
            self.decided.remove(decided)
            self.run(self.shard.complete(decided.transaction, self.now_ms), lambda _decision: None)
            self.commit_everything()
        self.nothing_is_visible_that_nobody_committed()
        open_offsets = {
            value
            for partition in self.partitions.values()
            if (unstable := partition.state.first_unstable_offset()) is not None
            for _, value in partition.entries[unstable:]
        }
        missing = self.promised_commit - self.visible() - open_offsets
        assert not missing, f"committed and lost: {missing}"
        for batch in self.batches_of_values:
            fates = {value in self.visible() for value in batch if value not in open_offsets}
            assert len(fates) <= 1, f"half of a transaction is visible: {batch}"


TransactionMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestTransactions = TransactionMachine.TestCase


class _First:
    """Draws the first of whatever there is to choose from."""

    def draw(self, strategy: Any) -> Any:
        return strategy.elements[0]


def test_the_next_transaction_of_an_old_client_waits_for_the_markers_of_the_one_before() -> None:
    """The epoch stays the same, so a record written before the marker would be committed along with the first."""
    machine, first = TransactionMachine(), _First()
    machine.start(transactional_id="a", version=0, keep_prepared=False, two_phase=False, at_once=True)
    machine.begin_write(first, ("orders", 0), at_once=True)  # type: ignore[arg-type]
    machine.finish_write(first)  # type: ignore[arg-type]
    machine.end(first, commit=True, at_once=True)  # type: ignore[arg-type]
    machine.begin_write(first, ("orders", 0), at_once=True)  # type: ignore[arg-type]
    assert not machine.pending_writes
    machine.marker_arrives(first)  # type: ignore[arg-type]
    machine.commit_everything()
    assert machine.visible() == {"v1"}
    machine.begin_write(first, ("orders", 0), at_once=True)  # type: ignore[arg-type]
    machine.finish_write(first)  # type: ignore[arg-type]
    machine.teardown()
    assert machine.visible() == {"v1"}
