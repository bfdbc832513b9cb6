"""Sequences of transactions: two producers of one id and a stranger, both versions, writes, offsets and time-outs."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record
from penstock.testing.lockstep.sides import PARTITIONS, TOPIC, Answer, Side, Step

SHORT_TIMEOUT_MS = 700
WRITTEN = 12  # so few that writes meet each other


class TransactionSide(Side):
    timeout_ms = 60_000

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pairs: dict[str, tuple[int, int]] = {"a": (-1, -1), "b": (-1, -1), "stranger": (999_999, 0)}
        self._sequences: dict[tuple[int, int, int], int] = {}

    async def initialize(self, who: str, expect: bool, version: int) -> Answer:
        pair = self.pairs[who] if expect else (-1, -1)
        request = messages.api("init_producer_id").Request(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=pair[0],
            producer_epoch=pair[1],
        )
        answer = await self.ask("init_producer_id", request, version, lambda a: int(a.error_code))
        if answer.error_code == 0:
            self.pairs[who] = (answer.producer_id, answer.producer_epoch)
        return answer.error_code, self.ids.of(answer.producer_id), answer.producer_epoch

    async def add(self, who: str, partition: int) -> Answer:
        api = messages.api("add_partitions_to_txn")
        producer_id, epoch = self.pairs[who]
        request = api.Request(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )

        def code(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        return (code(await self.ask("add_partitions_to_txn", request, 3, code)),)

    async def end(self, who: str, commit: bool, version: int) -> Answer:
        producer_id, epoch = self.pairs[who]
        request = messages.api("end_txn").Request(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = await self.ask("end_txn", request, version, lambda a: int(a.error_code))
        if answer.error_code == 0 and version >= 5:
            self.pairs[who] = (answer.producer_id, answer.producer_epoch)
            return 0, self.ids.of(answer.producer_id), answer.producer_epoch
        return (answer.error_code,)

    async def transaction(self) -> Answer:
        """Its state, once no markers are on their way."""
        request = messages.api("describe_transactions").Request(transactional_ids=[self.name])
        while True:
            answer = await self.ask(
                "describe_transactions", request, 0, lambda a: int(a.transaction_states[0].error_code)
            )
            state = answer.transaction_states[0]
            if not state.transaction_state.startswith("Prepare"):
                break
            await asyncio.sleep(0.005)
        partitions = sorted(index for topic in state.topics for index in topic.partitions)
        # Of an id that is not there both say producer 0, which elsewhere is somebody's.
        pair = (self.ids.of(state.producer_id) if state.error_code == 0 else -1), state.producer_epoch
        return state.error_code, state.transaction_state, *pair, state.transaction_timeout_ms, partitions

    async def write(self, who: str, partition: int, version: int) -> Answer:
        """A batch into the transaction; from version 12 on its partition joins by being written to."""
        producer_id, epoch = self.pairs[who]
        place = (producer_id, epoch, partition)
        batch = build_batch(
            [new_record(b"k", b"v", int(time.time() * 1000))],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=True,
        )
        api = messages.api("produce")
        data = api.PartitionProduceData(index=partition, records=batch)
        topic = api.TopicProduceData(name=TOPIC, topic_id=self.topic_id, partition_data=[data])
        request = api.Request(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=[topic])

        def code(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        found = _as_one(code(await self.ask("produce", request, version, _but_for_verification(code))))
        if found == 0:
            self._sequences[place] = self._sequences.get(place, 0) + 1
        return (found,)

    async def commit_offset(self, who: str, offset: int, version: int) -> Answer:
        api = messages.api("txn_offset_commit")
        producer_id, epoch = self.pairs[who]
        partition = api.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = api.Request(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            topics=[api.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return (_as_one(code(await self.ask("txn_offset_commit", request, version, code))),)

    async def state(self) -> Answer:
        transaction = await self.transaction()  # first: offsets are there when the markers are
        fetch = messages.api("offset_fetch")
        request = fetch.Request(
            groups=[fetch.OffsetFetchRequestGroup(group_id=self.name, topics=None)], require_stable=False
        )
        fetched = (await self.ask("offset_fetch", request, 8, lambda a: int(a.groups[0].error_code))).groups[0]
        offsets = [(p.partition_index, p.committed_offset) for t in fetched.topics for p in t.partitions]
        return *transaction, fetched.error_code, offsets


def _as_one(code: int) -> int:
    """Which of the two is said depends on the version. Kafka asks the coordinator for several clients at once and gives
    all of them the word that the first one's version knows, so side by side with others either may come."""
    return int(ErrorCode.INVALID_TXN_STATE if code == ErrorCode.TRANSACTION_ABORTABLE else code)


def _but_for_verification(code: Any) -> Any:
    """While a coordinator is busy a leader that must ask it says "not enough replicas": that means "come again"."""

    def retried(answer: Any) -> int:
        found = code(answer)
        return int(ErrorCode.CONCURRENT_TRANSACTIONS) if found == ErrorCode.NOT_ENOUGH_REPLICAS else int(found)

    return retried


class ShortTransactionSide(TransactionSide):
    """Every transaction that is open after a step is left alone until its time is over."""

    timeout_ms = SHORT_TIMEOUT_MS

    async def state(self) -> Answer:
        while True:
            found = await super().state()
            if found[1] != "Ongoing":
                return found
            await asyncio.sleep(0.05)


def transaction_step(chance: random.Random) -> Step:
    who = chance.choice(["a", "a", "a", "b", "stranger"])
    kind = chance.choice(["init", "init", "add", "add", "write", "write", "offset", "end", "end", "end"])
    if kind == "init":
        expect, version = chance.random() < 0.4, chance.choice([2, 3, 4, 5])
        return f"init {who} expect={expect} v{version}", lambda side: side.initialize(who, expect, version)
    if kind == "add":
        partition = chance.choice([*range(WRITTEN), PARTITIONS])  # the last one is not there
        return f"add {who} {partition}", lambda side: side.add(who, partition)
    if kind == "write" and who != "stranger":
        partition, version = chance.randrange(WRITTEN), chance.choice([9, 11, 12, 12])
        return f"write {who} {partition} v{version}", lambda side: side.write(who, partition, version)
    if kind == "offset":
        offset, version = chance.randrange(100), chance.choice([3, 4, 5, 5])
        return f"offset {who} {offset} v{version}", lambda side: side.commit_offset(who, offset, version)
    commit, version = chance.random() < 0.6, chance.choice([1, 4, 5, 5, 5])
    return f"end {who} commit={commit} v{version}", lambda side: side.end(who, commit, version)
