"""Before a transactional batch is appended: is its partition in the transaction (KIP-890)?

Up to v11 the coordinator is asked to verify, from v12 to add the partition; a partition whose transaction is open
already needs no question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.coordinator.transaction.verification import ClientAbility
from penstock.coordinator.transaction.verification import verify as ask_coordinator
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, InvalidBatch
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

TopicPartition = tuple[str, int]


class Verified(NamedTuple):
    error: int
    message: str | None = None
    guard: Any = None


async def verify(
    broker: Broker, transactional_id: str, version: int, batches: list[tuple[str, int, bytes]]
) -> dict[TopicPartition, Verified]:
    """Guards (or errors) for the partitions whose append needs one."""
    headers = {(topic, index): header for topic, index, batch in batches if (header := _transactional(batch))}
    pairs = {(header.producer_id, header.producer_epoch) for header in headers.values()}
    if len(pairs) > 1:
        refused = Verified(
            int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), "Transactional records contained more than one producer ID"
        )
        return {(topic, index): refused for topic, index, _ in batches}
    verified: dict[TopicPartition, Verified] = {}
    if not pairs:
        return verified
    ability = ClientAbility.of_produce(version)

    def start() -> dict[TopicPartition, Any]:
        verified.clear()
        guards: dict[TopicPartition, Any] = {}
        for topic_partition, header in headers.items():
            partition = broker.replicas.find(*topic_partition)
            if partition is None or not partition.is_leader:
                continue  # the append says why
            log: Any = partition.log
            stored_epoch = log.producer_epoch(header.producer_id)
            if stored_epoch is not None and header.producer_epoch < stored_epoch:
                verified[topic_partition] = Verified(
                    int(ErrorCode.INVALID_PRODUCER_EPOCH), "The producer has an old epoch"
                )
                continue
            guard = log.start_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, ability.adds
            )
            if guard is not None:
                guards[topic_partition] = guard
        return guards

    ((producer_id, epoch),) = pairs
    enabled = bool(broker.settings["transaction.partition.verification.enable"])
    answers = await ask_coordinator(
        broker.transaction_links, transactional_id, producer_id, epoch, start, ability, enabled
    )
    for topic_partition, (code, guard) in answers.items():
        verified[topic_partition] = Verified(int(code), code.message if code else None, guard)
    return verified


def _transactional(batch: bytes) -> BatchHeader | None:
    """The header of a transactional batch; None for others and for what the append will refuse anyway."""
    if len(batch) < HEADER_BYTES:
        return None
    try:
        header = BatchHeader.parse(batch)
    except InvalidBatch:
        return None
    return header if header.is_transactional else None
