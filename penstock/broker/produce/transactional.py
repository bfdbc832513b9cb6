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


class Verification:
    """What was found out for the batches of one request, and under which leaderships it was asked."""

    def __init__(self, broker: Broker) -> None:
        self._replicas = broker.replicas
        self._transactional: dict[TopicPartition, BatchHeader] = {}
        self._asked_as: dict[TopicPartition, tuple[Any, int]] = {}
        self._answers: dict[TopicPartition, Verified] = {}

    def at_append(self, topic_partition: TopicPartition) -> Verified | None:
        """The guard that the append needs, or why there may be none; None where nothing was asked.

        To be called in the same stretch of code as the append: a leadership that began since then trusts no answer to
        the one before it, nor does the log of a topic made anew. The producer sends again, and is asked about again.
        """
        if topic_partition in self._transactional:
            partition = self._replicas.find(*topic_partition)
            if (
                partition is not None
                and partition.is_leader  # else the append says why
                and self._asked_as.get(topic_partition) != (partition.log, partition.leader_epoch)
            ):
                return Verified(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return self._answers.get(topic_partition)

    async def ask(
        self, broker: Broker, transactional_id: str, version: int, batches: list[tuple[str, int, bytes]]
    ) -> None:
        headers = {(topic, index): header for topic, index, batch in batches if (header := _transactional(batch))}
        pairs = {(header.producer_id, header.producer_epoch) for header in headers.values()}
        if len(pairs) > 1:
            refused = Verified(
                int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), "Transactional records contained more than one producer ID"
            )
            self._answers = {(topic, index): refused for topic, index, _ in batches}
            return
        if not pairs:
            return
        self._transactional = headers
        ability = ClientAbility.of_produce(version)
        ((producer_id, epoch),) = pairs
        logs: list[Any] = [
            partition.log
            for topic_partition in headers
            if (partition := self._replicas.find(*topic_partition)) is not None and partition.is_leader
        ]
        enabled = bool(broker.settings["transaction.partition.verification.enable"]) or any(
            log.is_unproven(producer_id, epoch) for log in logs
        )
        answers = await ask_coordinator(
            broker.transaction_links,
            transactional_id,
            producer_id,
            epoch,
            lambda: self._start(ability.adds),
            ability,
            enabled,
        )
        for topic_partition, (code, guard) in answers.items():
            self._answers[topic_partition] = Verified(int(code), code.message if code else None, guard)

    def _start(self, supports_epoch_bump: bool) -> dict[TopicPartition, Any]:
        """The guards of partitions whose append needs one, under the leaderships of now."""
        self._answers.clear()
        self._asked_as.clear()
        guards: dict[TopicPartition, Any] = {}
        for topic_partition, header in self._transactional.items():
            partition = self._replicas.find(*topic_partition)
            if partition is None or not partition.is_leader:
                continue  # the append says why
            log: Any = partition.log
            self._asked_as[topic_partition] = log, partition.leader_epoch
            stored_epoch = log.producer_epoch(header.producer_id)
            if stored_epoch is not None and header.producer_epoch < stored_epoch:
                self._answers[topic_partition] = Verified(
                    int(ErrorCode.INVALID_PRODUCER_EPOCH), "The producer has an old epoch"
                )
                continue
            guard = log.start_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, supports_epoch_bump
            )
            if guard is not None:
                guards[topic_partition] = guard
        return guards


def _transactional(batch: bytes) -> BatchHeader | None:
    """The header of a producer's transactional batch; None for others and for what the append will refuse anyway."""
    if len(batch) < HEADER_BYTES:
        return None
    try:
        header = BatchHeader.parse(batch)
    except InvalidBatch:
        return None
    return header if header.is_transactional and header.has_producer_id else None
