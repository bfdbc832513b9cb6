"""One replica of one partition on this broker: its role, its epochs and the high watermark.

The core is pure: the clock comes in by constructor, all I/O goes through its log, and what it wants from the outside
(an ISR change recorded by the controller) is handed out through `propose_isr`. The same code runs under the simulation.

Invariants that keep data:
- the high watermark only covers what every member of the *maximal* ISR (recorded ∪ asked for) has in its log;
- an ISR change counts only when the controller has recorded it, and only one is in flight;
- a replica of an older leader epoch neither accepts nor commits anything.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.base.clock import Clock
from penstock.log.results import LogWriteError
from penstock.protocol.errors import ErrorCode
from penstock.replication.followers import Follower
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.replica_log import ReplicaLog
from penstock.replication.roles import (
    NO_EPOCH,
    NO_LEADER,
    Assignment,
    Bound,
    IsrProposal,
    Membership,
    PartitionObserver,
)
from penstock.replication.throttle import ReplicationQuota

__all__ = [
    "NO_EPOCH",
    "NO_LEADER",
    "Assignment",
    "Bound",
    "IsrProposal",
    "Membership",
    "Partition",
    "PartitionObserver",
]

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Partition(InSyncReplicas):
    """A replica hosted here. `is_leader` says which half of the methods applies."""

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        log: ReplicaLog,
        node_id: int,
        clock: Clock,
        membership: Membership,
        propose_isr: Callable[[Partition, IsrProposal], None],
        lag_time_max_ms: float = 30_000,
    ) -> None:
        super().__init__(topic, index, topic_id, node_id, clock, membership, propose_isr, lag_time_max_ms)
        self.take_log(log)
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.dirty = False  # appended since the last write
        self.write_error: LogWriteError | None = None  # why the last write of staged appends failed, until it is taken
        self.observer: PartitionObserver | None = None
        self.leader_quota: ReplicationQuota | None = None
        self.rack_of: Callable[[int], str | None] | None = None  # set where consumers are sent to their rack's replica

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"<{self.topic}-{self.index} {role} epoch={self.leader_epoch} isr={self.isr}>"

    def take_log(self, log: ReplicaLog) -> None:
        """Stand on this log from now on."""
        self.log = log
        log.on_history_changed = self.stir
        self.stir()

    def stir(self) -> None:
        """Something that a reader can see moved: sessions that rested here have to look again."""
        self.changes += 1
        readers, self.resting_readers = self.resting_readers, {}
        for asked, news in readers.items():
            news.stirred(asked, self)

    # -- roles ---------------------------------------------------------------------------------------------------

    def become_leader(self, assignment: Assignment) -> bool:
        """Take over as leader, or take in a newer ISR or assignment. Returns whether a new leader epoch began."""
        if assignment.partition_epoch < self.partition_epoch or assignment.leader_epoch < self.leader_epoch:
            return False
        self.stir()
        was_leader = self.is_leader
        new_epoch = not was_leader or assignment.leader_epoch > self.leader_epoch
        now_ms = self._now_ms()
        self.leader_id = self.node_id
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.replicas = tuple(assignment.replicas)
        self.isr = tuple(assignment.isr)
        self._recorded_min_isr = assignment.min_isr
        self.isr_proposal = None  # what is recorded now answers it, whichever way
        for broker_id in [known for known in self.followers if known not in self.replicas]:
            del self.followers[broker_id]
        for broker_id in self.replicas:
            if broker_id != self.node_id and broker_id not in self.followers:
                self.followers[broker_id] = Follower(broker_id)
                if not new_epoch:
                    self.followers[broker_id].reset(now_ms, 0, broker_id in self.isr, new_leader=True)
        if new_epoch:
            self.is_leader = True
            self.write_now()
            end_offset = self.log.log_end_offset
            # Even an epoch without records is remembered: followers of older epochs find their divergence by it.
            self.log.assign_epoch_start(self.leader_epoch, end_offset)
            self.leader_epoch_start_offset = end_offset
            for follower in self.followers.values():
                follower.reset(now_ms, end_offset, follower.broker_id in self.isr, new_leader=not was_leader)
            self._end_fetch_waits()
        self.advance_high_watermark()
        return new_epoch

    def become_follower(self, assignment: Assignment) -> bool:
        """Follow the recorded leader (which may be none). Returns whether the leader or its epoch changed."""
        if assignment.partition_epoch < self.partition_epoch or assignment.leader_epoch < self.leader_epoch:
            return False
        changed = self.is_leader or assignment.leader_epoch != self.leader_epoch or assignment.leader != self.leader_id
        self.stir()
        self.write_now()
        self.is_leader = False
        self.leader_id = assignment.leader
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.replicas = tuple(assignment.replicas)
        self.isr = tuple(assignment.isr)
        self.isr_proposal = None
        if changed:
            self.followers.clear()
            self._end_all_waits(_NOT_LEADER)
            log = self.log
            if log.latest_epoch() is None and log.log_end_offset > log.high_watermark:
                # Nothing says which leader wrote the tail: only what was committed can be kept.
                log.truncate_to(log.high_watermark)
        return changed

    def close(self, error: int = _NOT_LEADER) -> None:
        """The replica leaves this broker (deleted, moved, disk gone): nobody may wait on it any longer."""
        self.is_leader = False
        self.log.on_history_changed = None  # nothing holds the other: both are gone at once, with what they remember
        self._end_all_waits(error)

    # -- leader: appends -----------------------------------------------------------------------------------------

    def append_error(self, acks: int) -> int:
        """Why a produce may not be appended here now; 0 when it may."""
        if not self.is_leader:
            return _NOT_LEADER
        if acks == -1 and len(self.isr) < self.min_isr():
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return _NONE

    def write_now(self) -> None:
        """Write what is staged. A failure is kept in `write_error` until the writer of those records takes it."""
        if not self.dirty:
            return
        self.dirty = False
        try:
            self.log.write_staged()
        except LogWriteError as error:
            self.write_failed(error)
        else:
            if self.log.voided is not None:  # a flush or a lookup wrote before us, and had nobody to tell
                self.write_failed(self.log.voided)

    def write_failed(self, error: LogWriteError) -> None:
        """Everything staged is void. Who waits for it is told; whoever appended in this wake-up asks `write_error`."""
        self.write_error = error
        self.log.voided = None
        end_offset = self.log.log_end_offset
        while self.commit_waits and self.commit_waits[-1][0] > end_offset:
            _, wait, slot = self.commit_waits.pop()
            wait.settle(slot, int(ErrorCode.KAFKA_STORAGE_ERROR))
        if self.observer is not None:
            self.observer.on_lost(self.topic, self.index)

    def written(self) -> None:
        """Appended records reached the file: move the high watermark and wake who waits."""
        if self.resting_readers:
            self.stir()
        self.advance_high_watermark()
        if self.fetch_waits:
            self._wake_fetches()

    # -- leader: high watermark ----------------------------------------------------------------------------------

    def advance_high_watermark(self) -> bool:
        """Move it to what every member of the maximal ISR has; only what is written counts, and it only grows."""
        log = self.log
        if not self.is_leader or self.dirty:
            return False  # what is staged is not in the log yet; whoever writes it comes here again
        end_offset = log.log_end_offset
        if self.followers:
            if len(self.isr) < self.min_isr():
                return False
            end_offset = self._committed_end_offset(end_offset)
        if end_offset <= log.high_watermark:
            return False
        log.set_high_watermark(end_offset)
        self._high_watermark_moved()
        return True

    def _committed_end_offset(self, end_offset: int) -> int:
        leader_end_offset = end_offset
        now_ms = self._now_ms()
        maximal_isr = self.maximal_isr()
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < end_offset and (
                broker_id in maximal_isr
                # A follower about to join is waited for, so that its joining does not stop the high watermark.
                or (
                    follower.caught_up(leader_end_offset, now_ms, self.lag_time_max_ms)
                    and self._membership.broker_epoch(broker_id) is not None
                )
            ):
                end_offset = follower.log_end_offset
        return end_offset

    def _high_watermark_moved(self) -> None:
        if self.resting_readers:
            self.stir()
        high_watermark = self.log.high_watermark
        waits = self.commit_waits
        if waits and waits[0][0] <= high_watermark:
            error = _NONE
            if len(self.maximal_isr()) < self.min_isr():
                error = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            while waits and waits[0][0] <= high_watermark:
                _, wait, slot = waits.popleft()
                wait.settle(slot, error)
        if self.fetch_waits:
            self._wake_fetches()
        if self.observer is not None:
            self.observer.on_committed(self.topic, self.index, high_watermark)

    # -- leader: followers ---------------------------------------------------------------------------------------

    def follower_fetched(self, follower: Follower, fetch_offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """Take in what a follower's valid fetch says of it: maybe it joins the ISR, maybe the high watermark moves."""
        now_ms = self._now_ms()
        log = self.log
        old_start_offset = follower.log_start_offset
        old_end_offset = follower.log_end_offset
        if self.resting_readers and broker_epoch != follower.broker_epoch:
            self.stir()  # another life of that broker: the sessions of the one before are asked who they are
        follower.fetched(fetch_offset, log_start_offset, log.log_end_offset, now_ms, broker_epoch)
        if follower.broker_id not in self.isr:
            self._maybe_expand_isr(follower)
        if old_end_offset != fetch_offset:
            self.advance_high_watermark()
        if self.low_watermark_waits and old_start_offset != log_start_offset:
            self.check_low_watermark()

    def replica_in_rack(self, rack: str, fetch_offset: int) -> int:
        """Whom a consumer of this rack should read from: the leader, unless a member of the ISR is nearer."""
        rack_of = self.rack_of
        if rack_of is None or rack_of(self.node_id) == rack:
            return self.node_id
        near = [
            follower
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr
            and rack_of(broker_id) == rack
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and self._membership.broker_epoch(broker_id) is not None
        ]
        if not near:
            return self.node_id
        return max(near, key=lambda f: (f.log_end_offset, f.caught_up_ms, -f.broker_id)).broker_id

    def holds_back(self, broker_id: int) -> bool:
        """Whether the leader's throttle leaves this follower without data now; members of the ISR are never slowed."""
        quota = self.leader_quota
        return (
            quota is not None
            and quota.throttles(self.topic, self.index)
            and broker_id not in self.isr
            and quota.exceeded(self._clock.monotonic())
        )

    def sent_to(self, broker_id: int, size_bytes: int) -> None:
        quota = self.leader_quota
        if quota is not None and broker_id not in self.isr and quota.throttles(self.topic, self.index):
            quota.record(size_bytes, self._clock.monotonic())

    # -- follower --------------------------------------------------------------------------------------------------

    def follower_advanced(self) -> None:
        """The log or its high watermark changed by replication: consumers may read from here too (KIP-392)."""
        if self.resting_readers:
            self.stir()
        if self.fetch_waits:
            self._wake_fetches()

    # -- leader: delete records ----------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> tuple[int, int]:
        """Raise the log start. Returns (error, offset that the low watermark must reach)."""
        if not self.is_leader:
            return _NOT_LEADER, -1
        config = self.log.config
        if config.cleanup_compact and not config.cleanup_delete:
            return int(ErrorCode.POLICY_VIOLATION), -1
        self.write_now()
        offset = self.log.high_watermark if before_offset == -1 else before_offset
        if offset < 0 or offset > self.log.high_watermark:
            return int(ErrorCode.OFFSET_OUT_OF_RANGE), -1
        self.log.raise_log_start_offset(offset)
        self._wake_fetches()
        return _NONE, offset

    def low_watermark(self) -> int:
        """The smallest log start over the live replicas: nothing before it exists anywhere."""
        low = self.log.log_start_offset
        for broker_id, follower in self.followers.items():
            if self._membership.broker_epoch(broker_id) is not None and follower.log_start_offset < low:
                low = follower.log_start_offset
        return low

    def check_low_watermark(self) -> None:
        if not self.low_watermark_waits:
            return
        low = self.low_watermark()
        waiting, self.low_watermark_waits = self.low_watermark_waits, []
        for offset, wait, slot in waiting:
            if offset <= low:
                wait.settle(slot, _NONE)
            elif not wait.done:
                self.low_watermark_waits.append((offset, wait, slot))
