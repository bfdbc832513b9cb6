"""The transaction coordinator of one broker: the door that the APIs, the produce path and the timers knock at.

The calls that a two-phase committer (the exactly-once Spark sink) makes, at any version that carries them:

    InitProducerId v6   transactional_id, enable2_pc=True       → (producer id, epoch); the transaction never times out
    Produce             v12+ adds partitions by itself; below, AddPartitionsToTxn v0–3 goes first
    … nothing more from the writer: it hands (transactional id, producer id, epoch) to whoever decides …
    EndTxn v0–5         from any process that presents the three; commit or abort
    ListTransactions    v2 with `transactional_id_pattern` (RE2, the whole id must match, e.g. "query-7-.*") and
                        `state_filters=["Ongoing"]`; v1 has `duration_filter` for the forgotten ones
    DescribeTransactions v0: producer id and epoch to present, start time (age), the partitions that it holds back
    InitProducerId v6   keep_prepared_txn=True takes over after a crash: `ongoing_txn_*` names what is open, and the
                        pair in the answer is the only one that may end it. Without keep_prepared_txn it is aborted.

A request that meets a transaction whose markers are still on their way waits for them a moment, instead of sending
its client into a back-off; then it gets CONCURRENT_TRANSACTIONS as from Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.base.clock import Clock
from penstock.coordinator.java_hash import partition_of
from penstock.coordinator.runtime import CoordinatorRuntime, Write
from penstock.coordinator.shard_log import ShardLog
from penstock.coordinator.timers import Timers
from penstock.coordinator.transaction import decisions, queries
from penstock.coordinator.transaction.decisions import Decision, refuse
from penstock.coordinator.transaction.initialize import InitializeRequest, check_request
from penstock.coordinator.transaction.marker_sender import MarkerSender, MarkerTransport
from penstock.coordinator.transaction.producer_ids import ProducerIds, ProducerIdsExhausted
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.coordinator.transaction.state import TopicPartition, Transaction, TransactionState
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

TOPIC = "__transaction_state"
COMPLETION_WAIT_SECONDS = 0.1
MAX_WAITS_FOR_COMPLETION = 2
COMPLETION_RETRY_SECONDS = 0.5
PRODUCER_IDS_AT_HAND = 16  # commands of one wake-up may each take one


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    max_timeout_ms: int = 900_000
    two_phase_enabled: bool = False
    id_expiration_ms: int = 604_800_000
    timeout_scan_interval_ms: int = 10_000
    expiry_scan_interval_ms: int = 3_600_000

    @classmethod
    def from_settings(cls, settings: Any) -> TransactionLimits:
        return cls(
            settings["transaction.max.timeout.ms"],
            settings["transaction.two.phase.commit.enable"],
            settings["transactional.id.expiration.ms"],
            settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            settings["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds back the last stable offset of its partitions."""

    transaction: Transaction
    age_ms: int


class TransactionCoordinator:
    """One per broker. Shards come and go with the leadership of `__transaction_state` partitions."""

    def __init__(
        self,
        log: ShardLog,
        clock: Clock,
        limits: TransactionLimits,
        producer_ids: ProducerIds,
        transport: MarkerTransport,
        partition_count: Callable[[], int],
        *,
        call_soon: Callable[[Callable[[], None]], Any] | None = None,
        call_later: Callable[[float, Callable[[], None]], Any] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.clock = clock
        self.limits = limits
        self.producer_ids = producer_ids
        self._transport = transport
        self._call_later = call_later or loop.call_later
        self.markers = MarkerSender(transport, self._markers_written)
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TOPIC,
            log,
            clock,
            self._new_shard,
            call_soon=call_soon or loop.call_soon,
            call_later=self._call_later,
        )
        self._partition_count = partition_count
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._scans: list[asyncio.Task[None]] = []

    # Life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for transactions that timed out and ids that nobody uses any more."""
        loop = asyncio.get_running_loop()
        self._scans = [
            loop.create_task(self._every(self.limits.timeout_scan_interval_ms, self.abort_timed_out)),
            loop.create_task(self._every(self.limits.expiry_scan_interval_ms, self.forget_expired)),
        ]

    async def stop(self) -> None:
        tasks = [*self._scans, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.markers.close()
        self.runtime.close()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds the id; its leader is the coordinator."""
        return partition_of(transactional_id, self._partition_count())

    def _new_shard(self, partition: int, timers: Timers) -> TransactionShard:
        return TransactionShard(
            partition, timers, self.producer_ids.take, self._decided, self._shard_loaded, self.markers.drop_shard
        )

    async def _every(self, interval_ms: int, scan: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await scan()
            except Exception:
                logger.exception("a scan of the transactions failed; the next one comes in %d ms", interval_ms)

    # What clients ask ------------------------------------------------------------------------------------------

    async def new_producer_id(self) -> int:
        """For an idempotent producer without transactions: an id of its own, no state."""
        await self.producer_ids.ensure()
        return self.producer_ids.take()

    async def initialize(self, request: InitializeRequest) -> Decision:
        error = check_request(request, self.limits.max_timeout_ms, self.limits.two_phase_enabled)
        if error:
            return refuse(error)
        decision = await self._when_settled(
            request.transactional_id, lambda shard, now_ms: shard.initialize(request, now_ms)
        )
        return await self._without_former_writer(decision) if decision.keeps_open else decision

    async def _without_former_writer(self, kept: Decision) -> Decision:
        """Whoever takes a transaction over as it is may rely on it: nobody adds to it after the answer."""
        assert kept.update is not None
        pair = (kept.ongoing_producer_id, kept.ongoing_producer_epoch)
        if await self._transport.fence(*pair, kept.update.partitions):
            return kept
        return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)  # the client comes again

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        asked = list(partitions)
        if refused := self._refuse(transactional_id, asked):
            return refused
        added = frozenset(asked)
        decision = await self._when_settled(
            transactional_id,
            lambda shard, now_ms: shard.add_partitions(
                transactional_id, producer_id, epoch, added, client_version, now_ms
            ),
        )
        return dict.fromkeys(asked, decision.error)

    async def verify_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        asked = list(partitions)
        if refused := self._refuse(transactional_id, asked):
            return refused

        def look(shard: TransactionShard) -> dict[TopicPartition, ErrorCode]:
            current = shard.transactions.get(transactional_id)
            return decisions.verify_partitions(current, producer_id, epoch, asked)

        error, answer = await self.runtime.query(self.partition_for(transactional_id), look)
        return dict.fromkeys(asked, error) if error else answer

    def _refuse(self, transactional_id: str, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """A partition that this broker has not heard of yet may not be added, whoever asks: when the transaction ends,
        one that is not in the image counts as deleted and gets no marker."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        unknown = {tp for tp in partitions if self._transport.leader_of(tp) is None}
        if not unknown:
            return {}
        return {
            tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if tp in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for tp in partitions
        }

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, client_version: int
    ) -> Decision:
        if not transactional_id:
            return refuse(ErrorCode.INVALID_REQUEST)
        return await self._when_settled(
            transactional_id,
            lambda shard, now_ms: shard.end(transactional_id, producer_id, epoch, commit, client_version, now_ms),
        )

    def list_transactions(self, listed: queries.ListFilter) -> tuple[ErrorCode, list[Transaction]]:
        """The transactions that this broker coordinates, ordered by id. Raises InvalidPattern."""
        matches = listed.matcher(self.clock.now_ms())
        if self.runtime.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        found = [t for _, shard in self.runtime.machines() for t in shard.transactions.values() if matches(t)]
        return ErrorCode.NONE, sorted(found, key=lambda t: t.transactional_id)

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        error, shard = self.runtime.find(self.partition_for(transactional_id))
        if shard is None:
            return error, None
        transaction = shard.transactions.get(transactional_id)
        return (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transaction is None else ErrorCode.NONE), transaction

    def open_transactions(self, older_than_ms: int = 0) -> list[OpenTransaction]:
        """Open for at least so long, the oldest first: what an operator looks at when consumers stand still."""
        now_ms = self.clock.now_ms()
        found = [
            OpenTransaction(t, queries.age_ms(t, now_ms))
            for _, shard in self.runtime.machines()
            for t in shard.transactions.values()
            if t.state is TransactionState.ONGOING and queries.age_ms(t, now_ms) >= older_than_ms
        ]
        return sorted(found, key=lambda entry: -entry.age_ms)

    # Running commands ------------------------------------------------------------------------------------------

    async def _when_settled(self, transactional_id: str, command: Callable[[TransactionShard, int], Write]) -> Decision:
        """Run the command; if markers of the transaction before are on their way, wait for them a moment and retry."""
        partition = self.partition_for(transactional_id)
        for attempt in range(MAX_WAITS_FOR_COMPLETION + 1):
            decision = await self._run(partition, transactional_id, command)
            if decision.error is not ErrorCode.CONCURRENT_TRANSACTIONS or attempt == MAX_WAITS_FOR_COMPLETION:
                break
            if not await self._completion(partition, transactional_id):
                break
        return decision

    async def _run(
        self, partition: int, transactional_id: str, command: Callable[[TransactionShard, int], Write]
    ) -> Decision:
        """Most commands take no producer id: they do not wait for a block of them, which a store that is away would not
        give."""
        is_short = False

        def guarded(shard: TransactionShard, now_ms: int) -> Write:
            nonlocal is_short
            try:
                is_short = False
                return command(shard, now_ms)
            except ProducerIdsExhausted:
                is_short = True  # what Kafka says while it waits for its next block:
                return Write(response=refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

        error, decision = await self.runtime.submit(partition, transactional_id, guarded)
        if is_short:
            try:
                await self.producer_ids.ensure(PRODUCER_IDS_AT_HAND)
            except ProducerIdsExhausted as why:
                logger.warning("transaction %s waits for a producer id: %s", transactional_id, why)
            else:
                error, decision = await self.runtime.submit(partition, transactional_id, guarded)
        return refuse(error) if error else decision

    async def _completion(self, partition: int, transactional_id: str) -> bool:
        """Wait until the decided transaction is complete; False if it takes too long."""
        _, shard = self.runtime.find(partition)
        current = shard.transactions.get(transactional_id) if shard is not None else None
        if current is None or not current.state.is_preparing:
            return current is not None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(transactional_id, []).append(future)
        try:
            await asyncio.wait_for(future, COMPLETION_WAIT_SECONDS)
        except TimeoutError:
            return False
        finally:
            waiting = self._waiting.get(transactional_id, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[transactional_id]
        return True

    # Bringing transactions to their end ------------------------------------------------------------------------

    def _decided(self, partition: int, transaction: Transaction) -> None:
        self.markers.send(partition, transaction, self.runtime.leader_epoch(partition))

    def _markers_written(self, partition: int, transaction: Transaction) -> None:
        """Completing is a record like any other; if it cannot be written now, it is tried again."""

        def done(error: ErrorCode, decision: Any) -> None:
            if error:
                logger.warning("cannot complete transaction %s: %s", transaction.transactional_id, error.name)
                self._call_later(COMPLETION_RETRY_SECONDS, lambda: self._complete_again(partition, transaction))
            for future in self._waiting.pop(transaction.transactional_id, []):
                if not future.done():
                    future.set_result(None)

        self.runtime.write(
            partition,
            transaction.transactional_id,
            lambda shard, now_ms: shard.complete(transaction, now_ms),
            done,
        )

    def _complete_again(self, partition: int, transaction: Transaction) -> None:
        _, shard = self.runtime.find(partition)
        current = None if shard is None else shard.transactions.get(transaction.transactional_id)
        if current == transaction and not self.markers.is_sending(transaction):
            self._markers_written(partition, transaction)

    def _shard_loaded(self, partition: int) -> None:
        task = asyncio.get_running_loop().create_task(self._resume(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resume(self, partition: int) -> None:
        """Send the markers of what was decided, once the decision is known to be committed."""
        error, preparing = await self.runtime.query(partition, lambda shard: shard.preparing())
        if error:
            return  # resigned, or not committed yet: the next scan looks again
        for transaction in preparing:
            if not self.markers.is_sending(transaction):
                self._decided(partition, transaction)

    # What is due -----------------------------------------------------------------------------------------------

    async def abort_timed_out(self) -> int:
        """Fence and abort what has been open for too long; pick up decided ones that lost their sender."""
        aborted = await self._for_each_due(
            lambda shard, now_ms: shard.timed_out(now_ms),
            lambda shard, transactional_id, now_ms: shard.abort_timed_out(transactional_id, now_ms),
        )
        for partition, shard in list(self.runtime.machines()):
            if any(not self.markers.is_sending(t) for t in shard.preparing()):
                await self._resume(partition)
        return sum(decision.update is not None for decision in aborted)

    async def forget_expired(self) -> int:
        """Forget ids that were not used for `transactional.id.expiration.ms`."""
        expiration_ms = self.limits.id_expiration_ms
        forgotten = await self._for_each_due(
            lambda shard, now_ms: shard.expired(now_ms, expiration_ms),
            lambda shard, transactional_id, now_ms: shard.forget_expired(transactional_id, now_ms, expiration_ms),
        )
        return sum(decision.error is ErrorCode.NONE for decision in forgotten)

    async def _for_each_due(
        self,
        find: Callable[[TransactionShard, int], list[str]],
        command: Callable[[TransactionShard, str, int], Write],
    ) -> list[Decision]:
        now_ms = self.clock.now_ms()
        due = [(partition, name) for partition, shard in self.runtime.machines() for name in find(shard, now_ms)]
        return [
            await self._run(partition, name, lambda shard, now_ms, name=name: command(shard, name, now_ms))  # type: ignore[misc]
            for partition, name in due
        ]
