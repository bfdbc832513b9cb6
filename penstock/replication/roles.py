"""What a partition speaks of: read bounds, who observes it, who lives, what is recorded, what is proposed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol
from uuid import UUID

NO_LEADER = -1
NO_EPOCH = -1


class Bound(IntEnum):
    """How far a reader may see."""

    LOG_END = 0  # followers
    HIGH_WATERMARK = 1  # read_uncommitted
    LAST_STABLE = 2  # read_committed


class PartitionObserver(Protocol):
    """Who must know at once what happens to a partition that this broker leads: the coordinators."""

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        """This broker leads now; also called when it keeps the leadership under a new epoch."""

    def on_resign(self, topic: str, partition: int, leader_epoch: int) -> None:
        """It leads no longer; `leader_epoch` is the one that ended it."""

    def on_committed(self, topic: str, partition: int, high_watermark: int) -> None:
        """The high watermark moved."""

    def on_lost(self, topic: str, partition: int) -> None:
        """Appended records could not be written after all: everything not committed by now is void."""


class Membership(Protocol):
    """Which brokers live, as the metadata image says."""

    def broker_epoch(self, broker_id: int) -> int | None:
        """Epoch of the broker's registration; None when it is not registered, fenced or shutting down."""


class Assignment(Protocol):
    """The recorded state of a partition (`penstock.cluster.image.PartitionRegistration`)."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def min_isr(self) -> int: ...


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader asks the controller to record (one partition of an AlterPartition request)."""

    topic: str
    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]  # per member, as the leader knows them; -1 = unknown
    joining: tuple[int, ...]  # members that the recorded ISR does not have
