"""KIP-890: before a transactional batch is appended, its partition must be part of the open transaction.

Produce up to v11 and TxnOffsetCommit up to v4 only *verify*; from v12 and v5 on the broker *adds* the partition in the
client's name. The coordinator may be another broker, so the way there is handed in; what comes back is translated
here to what a producer of that version understands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock.coordinator.transaction.state import TopicPartition
from penstock.protocol.errors import ErrorCode

RETRY_SECONDS = 0.02
RETRIES = 5  # Kafka: steps of 20 ms, 100 ms in all

_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class CoordinatorLink(Protocol):
    """The way to the coordinator of an id, on this broker or another. Network trouble is NETWORK_EXCEPTION."""

    async def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]: ...


class Verified(NamedTuple):
    """NONE and the guard that the append must carry, or what to tell the producer."""

    error: ErrorCode
    guard: Any = None


class ClientAbility:
    """What the asking client can do, from its request's version."""

    __slots__ = ("adds", "knows_abortable")

    def __init__(self, adds: bool, knows_abortable: bool) -> None:
        self.adds = adds
        self.knows_abortable = knows_abortable

    @classmethod
    def of_produce(cls, version: int) -> ClientAbility:
        return cls(version >= 12, version >= 11)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> ClientAbility:
        return cls(version >= 5, version >= 4)


async def verify(
    link: CoordinatorLink,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    start: Callable[[], dict[TopicPartition, Any]],
    ability: ClientAbility,
    enabled: bool = True,
) -> dict[TopicPartition, Verified]:
    """For each partition that needs it: may it be appended to, and with which guard?

    `start` begins the verification in the logs and gives the guards. It is called again before a question is
    repeated: the marker that the question waited for has ended the guards of the attempt before it.
    """
    for attempt in range(RETRIES + 1):
        guards = start()
        if not guards or not (enabled or ability.adds):
            return {tp: Verified(ErrorCode.NONE, guard) for tp, guard in guards.items()}
        answer = await link.add_or_verify(
            transactional_id, producer_id, producer_epoch, list(guards), verify_only=not ability.adds
        )
        concurrent = any(code is ErrorCode.CONCURRENT_TRANSACTIONS for code in answer.values())
        if not concurrent or not ability.adds or attempt == RETRIES:
            break
        await asyncio.sleep(RETRY_SECONDS)
    return {
        tp: Verified(translate(answer.get(tp, ErrorCode.NETWORK_EXCEPTION), ability), guard)
        for tp, guard in guards.items()
    }


def translate(error: ErrorCode, ability: ClientAbility) -> ErrorCode:
    """The coordinator's word in the producer's language: retriable without a refresh of metadata."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not ability.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _ASK_AGAIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not ability.adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
