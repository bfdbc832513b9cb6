"""Transactional producers of both versions, with offsets in some transactions; one of them in two phases, whose
transactions are taken over as they are while their former writer goes on; and consumers that read committed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ClientError
from penstock.coordinator.group.service import TOPIC as GROUP_TOPIC
from penstock.coordinator.java_hash import partition_of
from penstock.coordinator.transaction.service import TOPIC as TRANSACTION_TOPIC
from penstock.protocol import messages
from penstock.protocol.batch import build_batch, iterate_batches
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record
from penstock.replication import reads
from penstock.replication.partition import Bound
from penstock.testing.simulation.coordinating import INTERNAL_PARTITIONS
from penstock.testing.simulation.group_clients import ANSWER_SECONDS, CoordinatorClient
from penstock.testing.simulation.transaction_rules import SimTransaction, TransactionRules, values_in
from penstock.testing.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from penstock.testing.simulation.disk import TopicPartition
    from penstock.testing.simulation.node import SimCluster, SimNode

TIMEOUT_MS = 5_000
TRIES = 12
FATAL = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}


class Given(Exception):
    """The transaction cannot go on: abort it, or begin anew as another life."""


class TransactionalProducer(CoordinatorClient):
    """One transactional id, one life after the other. `implicit`: transaction.version 2."""

    def __init__(
        self, number: int, places: list[TopicPartition], topic: str, cluster: SimCluster, rules: TransactionRules
    ) -> None:
        name = f"transactions-{number}"
        super().__init__(name, cluster, (TRANSACTION_TOPIC, partition_of(name, INTERNAL_PARTITIONS)))
        self.places = places
        self.topic = topic
        self.rules = rules
        self.implicit = number % 2 == 0
        self.two_phase = number % 3 == 2
        self.kept: SimTransaction | None = None
        self.offsets_at = (GROUP_TOPIC, partition_of(name, INTERNAL_PARTITIONS))
        self.pair: tuple[int, int] | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.active = True
        self.idle = asyncio.Event()

    async def run(self) -> None:
        dice = self.world.random
        while self.active:
            await asyncio.sleep(dice.expovariate(4.0))
            if self.pair is None and not await self._initialize():
                continue
            transaction = self.rules.begin(self.cluster.next_number(), self.name)
            try:
                await self._fill(transaction)
            except Given as why:
                self.world.log(f"{self.name}: gives up {transaction.number}: {why}")
                if self.implicit and dice.random() < 0.5:
                    await self._end(transaction, False)
                else:
                    self.pair = None
                continue
            if dice.random() < (0.4 if self.two_phase else 0.1):
                self.world.log(f"{self.name}: dies with {transaction.number} open")
                if self.two_phase:
                    self.kept = transaction
                    self.world.spawn(self._write_on(transaction, self.pair, dict(self.sequences)))
                self.pair = None
                await asyncio.sleep(dice.choice((0.0, 1.0, 8.0)))
            else:
                await self._end(transaction, dice.random() < 0.7)
        while self.two_phase and self.pair is None:  # nobody else would ever end what it left open
            await asyncio.sleep(0.2)
            await self._initialize()
        if self.pair is not None and not self.two_phase and self.world.random.random() < 0.5:
            await self._fill_and_leave()
        self.idle.set()

    async def _fill_and_leave(self) -> None:
        """The last thing that it does: a transaction that nobody ends. Its time-out must."""
        try:
            await self._fill(self.rules.begin(self.cluster.next_number(), self.name))
        except Given:
            return

    async def _initialize(self) -> bool:
        request = messages.api("init_producer_id").Request(
            transactional_id=self.name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=self.two_phase,
            keep_prepared_txn=self.kept is not None,
        )
        answer = await self.ask_coordinator("init_producer_id", 6, request, 8.0)
        if answer is None or answer.error_code:
            return False
        self.pair = (answer.producer_id, answer.producer_epoch)
        self.rules.of_producer[answer.producer_id] = self.name
        self.sequences = {}
        if self.kept is not None:
            kept, self.kept = self.kept, None
            self.rules.taken_over(kept, answer.ongoing_txn_producer_id)
            await asyncio.sleep(self.world.random.uniform(0.0, 2.0))  # whoever decides takes his time
            await self._end(kept, self.world.random.random() < 0.7)
        return self.pair is not None

    async def _write_on(
        self, transaction: SimTransaction, pair: tuple[int, int] | None, sequences: dict[TopicPartition, int]
    ) -> None:
        """The former writer does not know that it is replaced."""
        assert pair is not None
        dice = self.world.random
        for _ in range(20):
            await asyncio.sleep(dice.uniform(0.05, 0.8))
            where = dice.choice(self.places)
            value = self.rules.new_value(self.cluster.next_number(), transaction)
            code = await self._send(where, self._batch(pair, sequences.get(where, 0), value))
            if code != ErrorCode.NONE:
                return
            sequences[where] = sequences.get(where, 0) + 1
            self.rules.written(transaction, where, value)

    async def _fill(self, transaction: SimTransaction) -> None:
        dice = self.world.random
        for _ in range(dice.randint(1, 3)):
            where = dice.choice(self.places)
            if not self.implicit:
                await self._add(where)
            await self._write(transaction, where)
        if dice.random() < 0.5:
            await self._commit_offset(transaction)

    async def _insist(self, what: str, attempt: Any) -> None:
        """Until it is done; Given up when the answer says that it never will be, or after many tries."""
        for _ in range(TRIES):
            code = await attempt()
            if code is not None:
                error = ErrorCode(code)
                if error is ErrorCode.NONE:
                    return
                if error in FATAL:
                    raise Given(f"{what}: {error.name}")
            await asyncio.sleep(self.world.random.uniform(0.02, 0.3))
        raise Given(f"{what}: no luck")

    async def _add(self, where: TopicPartition) -> None:
        api = messages.api("add_partitions_to_txn").load_all_versions()
        assert self.pair is not None
        request = api.Request(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=where[0], partitions=[where[1]])],
        )

        async def attempt() -> int | None:
            answer = await self.ask_coordinator("add_partitions_to_txn", 3, request)
            if answer is None:
                return None
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        await self._insist("add", attempt)

    async def _write(self, transaction: SimTransaction, where: TopicPartition) -> None:
        assert self.pair is not None
        value = self.rules.new_value(self.cluster.next_number(), transaction)
        sequence = self.sequences.get(where, 0)
        batch = self._batch(self.pair, sequence, value)
        self.sequences[where] = sequence + 1
        await self._insist(f"write to {where}", lambda: self._send(where, batch))
        self.rules.written(transaction, where, value)

    def _batch(self, pair: tuple[int, int], sequence: int, value: int) -> bytes:
        batch = build_batch(
            [new_record(None, b"%d" % value, int(self.world.now * 1000) + EPOCH_MS)],
            producer_id=pair[0],
            producer_epoch=pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        return bytes(batch)

    async def _send(self, where: TopicPartition, batch: bytes) -> int | None:
        node = self.coordinator(where)
        if node is None or node.broker is None:
            return None
        broker = node.broker
        try:
            code, _ = await self.world.call(
                self.life,
                node.life,
                lambda: broker.produce(self.name, 12 if self.implicit else 11, where, batch, 1500),
                ANSWER_SECONDS,
            )
        except ClientError:
            return None
        return code

    async def _commit_offset(self, transaction: SimTransaction) -> None:
        assert self.pair is not None
        if not self.implicit:
            added = messages.api("add_offsets_to_txn").Request(
                transactional_id=self.name,
                producer_id=self.pair[0],
                producer_epoch=self.pair[1],
                group_id=self.name,
            )

            async def add() -> int | None:
                answer = await self.ask_coordinator("add_offsets_to_txn", 3, added)
                return None if answer is None else int(answer.error_code)

            await self._insist("add offsets", add)
        api = messages.api("txn_offset_commit")
        offset = self.cluster.next_number()
        partition = api.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = api.Request(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            generation_id=-1,
            topics=[api.TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )

        async def commit() -> int | None:
            node = self.coordinator(self.offsets_at)
            version = 5 if self.implicit else 4
            answer = await self.ask(node, "txn_offset_commit", version, request, ANSWER_SECONDS)
            return None if answer is None else int(answer.topics[0].partitions[0].error_code)

        await self._insist("commit offsets", commit)
        transaction.offset = offset

    async def _end(self, transaction: SimTransaction, commit: bool) -> None:
        assert self.pair is not None
        transaction.asked = commit
        request = messages.api("end_txn").Request(
            transactional_id=self.name, producer_id=self.pair[0], producer_epoch=self.pair[1], committed=commit
        )
        told: list[Any] = []

        async def attempt() -> int | None:
            answer = await self.ask_coordinator("end_txn", 5 if self.implicit else 4, request)
            told.append(answer)
            return None if answer is None else int(answer.error_code)

        try:
            await self._insist("end", attempt)
        except Given as why:
            self.world.log(f"{self.name}: does not know how {transaction.number} ended: {why}")
            self.pair = None
            return
        transaction.ended = commit
        if self.implicit:
            self.pair = (told[-1].producer_id, told[-1].producer_epoch)
            self.rules.of_producer[told[-1].producer_id] = self.name
            self.sequences = {}


class CommittedReader(CoordinatorClient):
    """Reads one partition with read_committed, as a consumer does: aborted batches are left out by the list that comes
    with them."""

    def __init__(self, where: TopicPartition, cluster: SimCluster, rules: TransactionRules) -> None:
        super().__init__(f"reader of {where[0]}-{where[1]}", cluster, where)
        self.where = where
        self.rules = rules
        self.offset = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.world.random.uniform(0.05, 0.3))
            node = self.coordinator()
            if node is not None:
                try:
                    await self.world.call(self.life, node.life, partial(self._read, node), ANSWER_SECONDS)
                except ClientError:
                    continue

    async def _read(self, node: SimNode) -> None:
        partition = node.manager.find(*self.where)
        excused = self.where in self.cluster.checker.excused_from
        if partition is None or excused or self.excused():
            return
        fetched = reads.fetch(partition, self.offset, 2_000, Bound.LAST_STABLE)
        if fetched.error:
            return
        data = self.cluster.storage.bytes_of(fetched.region)
        aborted = sorted(fetched.aborted or [], key=lambda entry: entry.first_offset)
        hidden: set[int] = set()
        for header in iterate_batches(data):
            if header.base_offset >= fetched.last_stable_offset:
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                hidden.add(aborted.pop(0).producer_id)
            if header.is_control:
                hidden.discard(header.producer_id)
            elif header.producer_id not in hidden and header.base_offset >= self.offset:
                self.rules.visible(self.where, values_in(data, header), node.id)
            self.offset = max(self.offset, header.next_offset)

    def excused(self) -> bool:
        return bool(self.rules.excused_clients)
