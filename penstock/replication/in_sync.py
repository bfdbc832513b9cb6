"""Who is in sync with the leader of a partition: the ISR as recorded, the one asked for, and who may join or must go.

The part of `Partition` that speaks with the controller. An ISR change counts only when the controller has recorded it,
and only one is in flight; until then whoever is asked to join is waited for, and whoever is asked to go still counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.base.clock import Clock
from penstock.protocol.errors import ErrorCode
from penstock.replication.followers import Follower
from penstock.replication.partition_waits import PartitionWaits
from penstock.replication.roles import NO_EPOCH, IsrProposal, Membership

_WAIT_FOR_METADATA = frozenset(
    int(code)
    for code in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class InSyncReplicas(PartitionWaits):
    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        node_id: int,
        clock: Clock,
        membership: Membership,
        propose_isr: Callable[[Any, IsrProposal], None],
        lag_time_max_ms: float,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.node_id = node_id
        self.lag_time_max_ms = lag_time_max_ms
        self._clock = clock
        self._membership = membership
        self._propose_isr = propose_isr

        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.leader_epoch_start_offset = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()  # as recorded by the controller
        self._recorded_min_isr = 0  # recorded with it; 0 by a controller that does not say it
        self.isr_proposal: IsrProposal | None = None  # the one in flight
        self.followers: dict[int, Follower] = {}

    @abstractmethod
    def write_now(self) -> None: ...

    @abstractmethod
    def advance_high_watermark(self) -> bool: ...

    def min_isr(self) -> int:
        """The one that the controller recorded together with the ISR (`cluster.eligible` stands on it)."""
        return self._recorded_min_isr or min(int(self.log.config.min_insync_replicas), len(self.replicas))

    def maximal_isr(self) -> tuple[int, ...]:
        """The recorded ISR and whoever is asked to join: all of them must have what counts as committed."""
        proposal = self.isr_proposal
        return self.isr if proposal is None else self.isr + proposal.joining

    def under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) < self.min_isr()

    def accepts_broker_epoch(self, broker_id: int, broker_epoch: int) -> bool:
        """A fetch of an earlier life of the broker says nothing about the log of its present one (KIP-841)."""
        if broker_epoch == -1:
            return True
        follower = self.followers.get(broker_id)
        if follower is not None and broker_epoch < follower.broker_epoch:
            return False  # a late request of a life whose successor has fetched already
        recorded = self._membership.broker_epoch(broker_id)
        return recorded is None or broker_epoch >= recorded

    def _maybe_expand_isr(self, follower: Follower) -> None:
        if self.isr_proposal is not None or follower.broker_id not in self.replicas:
            return
        if follower.log_end_offset < max(self.log.high_watermark, self.leader_epoch_start_offset):
            return
        broker_epoch = self._membership.broker_epoch(follower.broker_id)
        if broker_epoch is None or (follower.broker_epoch != -1 and follower.broker_epoch != broker_epoch):
            return
        self._propose((*self.isr, follower.broker_id), (follower.broker_id,))

    def shrink_isr(self) -> bool:
        """Timer: ask to drop members that lag for too long. Returns whether a change was asked for."""
        if not self.is_leader or self.isr_proposal is not None:
            return False
        self.write_now()
        now_ms = self._now_ms()
        end_offset = self.log.log_end_offset
        in_sync = tuple(
            broker_id
            for broker_id in self.isr
            if broker_id == self.node_id
            or (
                (follower := self.followers.get(broker_id)) is not None
                and follower.caught_up(end_offset, now_ms, self.lag_time_max_ms)
            )
        )
        if len(in_sync) == len(self.isr) or self.node_id not in in_sync:
            return False
        self._propose(in_sync, ())
        return True

    def _propose(self, isr: tuple[int, ...], joining: tuple[int, ...]) -> None:
        epochs = tuple(self._known_epoch(broker_id) for broker_id in isr)
        self.isr_proposal = IsrProposal(
            self.topic, self.topic_id, self.index, self.leader_epoch, self.partition_epoch, isr, epochs, joining
        )
        self._propose_isr(self, self.isr_proposal)

    def _known_epoch(self, broker_id: int) -> int:
        if broker_id == self.node_id:
            epoch = self._membership.broker_epoch(broker_id)
            return -1 if epoch is None else epoch
        follower = self.followers.get(broker_id)
        return -1 if follower is None else follower.broker_epoch

    def isr_recorded(
        self, proposal: IsrProposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller answered a proposal with what is recorded now."""
        if self.isr_proposal is not proposal or not self.is_leader:
            return  # newer metadata came first
        if leader_epoch != self.leader_epoch or not 0 <= partition_epoch - self.partition_epoch <= 1:
            return  # more than the ISR has changed: in flight until the metadata that explains it arrives
        self.stir()
        self.isr_proposal = None
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.advance_high_watermark()

    def isr_refused(self, proposal: IsrProposal, error: int) -> bool:
        """The controller refused. Returns whether the same proposal should be sent again.

        A definite refusal brings back the recorded ISR; where the controller knows more than we do, the proposal stays
        in flight (and its joining members stay in the maximal ISR) until newer metadata arrives.
        """
        if self.isr_proposal is not proposal:
            return False
        if error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            self.isr_proposal = None
            return False
        return error not in _WAIT_FOR_METADATA

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
