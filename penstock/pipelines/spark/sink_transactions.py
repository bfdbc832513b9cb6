"""Transactions as the sink needs them: open, write into, end, look at, find by prefix. Async, on the shared client.

A transaction here is a value, (transactional id, producer id, epoch), which any process may end. Errors that pass by
themselves (a coordinator that moves, a transaction that is still ending) are waited for; the rest is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.retry import Attempts
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record

_INIT_PRODUCER_ID_KEY: Final = 22
_TWO_PHASE_VERSION: Final = 6
_WAIT_S: Final = 120.0

ONGOING: Final = "Ongoing"
_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})

FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class TransactionLost(Exception):
    """A transaction that should be open is not: somebody ended it, or another driver has taken over."""


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionState:
    state: str  # Kafka's name, "" when the coordinator does not know the id
    producer_id: int
    epoch: int


async def supports_two_phase(client: Client) -> bool:
    """Whether the cluster keeps transactions open without time limit (KIP-939); brokers advertise it by the version."""
    connection = await client.any_connection()
    return connection.api_versions.get(_INIT_PRODUCER_ID_KEY, (0, 0))[1] >= _TWO_PHASE_VERSION


async def uses_implicit_partitions(client: Client) -> bool:
    """Transaction protocol version 2 (KIP-890): partitions join by being written to, and every end raises the epoch."""
    return await client.finalized_feature("transaction.version") >= 2


async def open_transaction(
    client: Client, transactional_id: str | None, *, two_phase: bool = False, timeout_ms: int = 60_000
) -> Transaction:
    """A producer id and a fresh epoch, which fences whoever held the id. Without an id: an idempotent producer."""
    api = messages.api("init_producer_id")
    request = api.Request(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=two_phase,
    )
    highest = None if two_phase else _TWO_PHASE_VERSION - 1

    async def ask() -> Any:
        if transactional_id is None:
            return await client.call_any("init_producer_id", request, highest_version=highest)
        return await client.call_coordinator(
            "transaction", transactional_id, "init_producer_id", request, highest_version=highest
        )

    answer = await _until_settled(client, ask, f"open transaction {transactional_id!r}")
    return Transaction(transactional_id or "", answer.producer_id, answer.producer_epoch)


async def add_partition(client: Client, transaction: Transaction, topic: str, partition: int) -> None:
    """Needed before the first write to a partition, unless the cluster `uses_implicit_partitions`."""
    api = messages.api("add_partitions_to_txn")
    request = api.Request()
    request.v3_and_below_transactional_id = transaction.transactional_id
    request.v3_and_below_producer_id = transaction.producer_id
    request.v3_and_below_producer_epoch = transaction.epoch
    request.v3_and_below_topics = [api.AddPartitionsToTxnTopic(name=topic, partitions=[partition])]

    async def ask() -> Any:
        answer = await client.call_coordinator(
            "transaction", transaction.transactional_id, "add_partitions_to_txn", request, highest_version=3
        )
        codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
        return _Outcome(next((code for code in codes if code), 0))

    await _until_settled(client, ask, f"add {topic}-{partition} to {transaction.transactional_id!r}")


async def write_record(
    client: Client,
    owner: Transaction,
    place: tuple[str, int],
    key: str,
    value: bytes | None,
    *,
    sequence: int = 0,
    implicit: bool,
) -> None:
    """One record into a (topic, partition) as part of a transaction."""
    batch = build_batch(
        [new_record(key.encode(), value, int(time.time() * 1000))],
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    if not implicit:
        await add_partition(client, owner, *place)
    attempts = Attempts(client.retry)
    while True:
        try:
            await records.produce(
                client, *place, batch, transactional_id=owner.transactional_id, implicit_partitions=implicit
            )
            return
        except KafkaError as error:
            if not (error.retriable or error.code == ErrorCode.CONCURRENT_TRANSACTIONS) or not await attempts.pause():
                raise


async def settled(client: Client, topic: str, partition: int) -> None:
    """Wait until everything that is in a partition now is readable: transactions under way in it have ended."""
    key = (topic, partition)
    wanted = (await records.list_offsets(client, {key: records.LATEST}))[key]
    attempts = Attempts(client.retry, _WAIT_S)
    while True:
        stable = (await records.list_offsets(client, {key: records.LATEST}, read_committed=True))[key]
        for answer in (wanted, stable):
            if answer.error_code:
                raise KafkaError(answer.error_code, f"the end of {topic}-{partition}")
        if stable.offset >= wanted.offset:
            return
        if not await attempts.pause():
            raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"transactions in {topic}-{partition} do not end")


async def committed_offset(client: Client, group_id: str, topic: str) -> int:
    """The offset of partition 0, -1 if none; waits for an undecided transaction that holds one."""
    api = messages.api("offset_fetch")
    group = api.OffsetFetchRequestGroup(group_id=group_id, member_epoch=-1)
    wanted = api.OffsetFetchRequestTopics(partition_indexes=[0])
    wanted.name = topic
    group.topics = [wanted]
    request = api.Request(groups=[group], require_stable=True)
    request.group_id = group_id
    former = api.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    request.topics = [former]  # what versions before 8 carry
    found: dict[str, int] = {}

    async def ask() -> Any:
        answer = await client.call_coordinator("group", group_id, "offset_fetch", request, highest_version=9)
        holder = answer.groups[0] if answer.groups else answer
        if holder.error_code:
            return _Outcome(holder.error_code)
        partition = holder.topics[0].partitions[0]
        found["offset"] = partition.committed_offset
        return _Outcome(partition.error_code)

    await _until_settled(client, ask, f"committed offset of {group_id!r}")
    return found["offset"]


async def end_transaction(client: Client, transaction: Transaction, *, commit: bool, implicit: bool) -> None:
    """Commit or abort; ending a transaction twice the same way is fine. Fenced means TransactionLost."""
    api = messages.api("end_txn")
    request = api.Request(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )

    async def ask() -> Any:
        return await client.call_coordinator(
            "transaction", transaction.transactional_id, "end_txn", request, highest_version=None if implicit else 4
        )

    try:
        await _until_settled(client, ask, f"end transaction {transaction.transactional_id!r}")
    except KafkaError as error:
        if error.code in FENCED or error.code == ErrorCode.INVALID_TXN_STATE:
            raise TransactionLost(f"{transaction.transactional_id} is no longer ours to end: {error}") from error
        raise


async def describe(client: Client, transactional_id: str) -> TransactionState:
    request = messages.api("describe_transactions").Request(transactional_ids=[transactional_id])
    found: list[Any] = []

    async def ask() -> Any:
        answer = await client.call_coordinator("transaction", transactional_id, "describe_transactions", request)
        found[:] = answer.transaction_states
        code = found[0].error_code
        return _Outcome(0 if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else code)

    await _until_settled(client, ask, f"describe transaction {transactional_id!r}")
    state = found[0]
    return TransactionState(state.transaction_state, state.producer_id, state.producer_epoch)


async def finish(client: Client, transaction: Transaction, *, implicit: bool) -> None:
    """Commit a transaction that was decided on, however far an earlier try has come."""
    now = await describe(client, transaction.transactional_id)
    if now.state == ONGOING and (now.producer_id, now.epoch) == (transaction.producer_id, transaction.epoch):
        await end_transaction(client, transaction, commit=True, implicit=implicit)
        return
    if now.state == "" or now.state in _COMMITTED:  # ended by an earlier try; long-finished ids are forgotten
        return
    raise TransactionLost(
        f"{transaction.transactional_id} (producer {transaction.producer_id}, epoch {transaction.epoch}) was decided to"
        f" be committed, but it is {now.state} with epoch {now.epoch}: somebody aborted it, its rows are lost"
    )


async def open_under_prefix(client: Client, prefix: str) -> list[Transaction]:
    """All transactions whose id begins with `prefix` and that are open now, from every broker."""
    api = messages.api("list_transactions")
    request = api.Request(
        state_filters=[ONGOING], duration_filter=-1, transactional_id_pattern=re.escape(prefix) + ".*"
    )
    view = await client.metadata()
    ids: set[str] = set()
    for node_id in sorted(view.brokers):

        async def ask(node_id: int = node_id) -> Any:
            answer = await client.call_broker(node_id, "list_transactions", request)
            ids.update(s.transactional_id for s in answer.transaction_states if s.transactional_id.startswith(prefix))
            return answer

        await _until_settled(client, ask, f"list transactions of broker {node_id}")
    found = []
    for transactional_id in sorted(ids):
        state = await describe(client, transactional_id)
        if state.state == ONGOING:
            found.append(Transaction(transactional_id, state.producer_id, state.epoch))
    return found


async def abort_all(client: Client, transactions: Iterable[Transaction], *, implicit: bool) -> None:
    """Abort exactly these; one that has ended meanwhile is no longer ours to abort."""

    async def abort(transaction: Transaction) -> None:
        with contextlib.suppress(TransactionLost):  # its owner or another sweep was faster
            await end_transaction(client, transaction, commit=False, implicit=implicit)

    await asyncio.gather(*(abort(transaction) for transaction in transactions))


@dataclass(slots=True)
class _Outcome:
    error_code: int


_PASSING: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


async def _until_settled(client: Client, ask: Callable[[], Awaitable[Any]], what: str) -> Any:
    attempts = Attempts(client.retry, _WAIT_S)
    while True:
        answer = await ask()
        if not answer.error_code:
            return answer
        error = KafkaError(answer.error_code, what)
        passing = answer.error_code in _PASSING or error.retriable
        if not passing or not await attempts.pause():
            raise error
