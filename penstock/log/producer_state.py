"""Producer state of one log: idempotence, epochs and open transactions."""

from __future__ import annotations


class VerificationGuard:
    """Identity of one verification attempt (KIP-890): an answer to an older attempt carries another guard."""

    __slots__ = ()


class ProducerEntry:
    """What a log knows of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    txn_first_offset: int
    """-1 when no transaction is open."""
    batches: tuple[tuple[int, int, int, int, int], ...]
    """The last five, oldest first: (first sequence, last sequence, last offset, offset delta, timestamp)."""
