"""The stage of the stories: a partition over an in-memory log, a clock that stands still, brokers that live or not."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.base.clock import ManualClock
from penstock.cluster.image import PartitionRegistration
from penstock.replication import reads
from penstock.replication.partition import IsrProposal, Partition
from penstock.replication.waits import Parking
from penstock.testing.simulation.disk import Entry, SimLog, SimLogConfig, StoredLog
from penstock.testing.simulation.invariants import Checker
from penstock.testing.simulation.storage import ModelDisk

TOPIC_ID = uuid.UUID(int=7)


class Brokers:
    """Who lives, with which epoch."""

    def __init__(self, *broker_ids: int) -> None:
        self.epochs = {broker_id: 100 + broker_id for broker_id in broker_ids}

    def broker_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)


class ManualTimers:
    """Timers that fire when the story says so."""

    def __init__(self) -> None:
        self.pending: list[ManualTimer] = []

    def call_later(self, delay: float, callback: Any, *args: Any) -> ManualTimer:
        timer = ManualTimer(delay, callback, args)
        self.pending.append(timer)
        return timer

    def fire_all(self) -> None:
        pending, self.pending = self.pending, []
        for timer in pending:
            if not timer.cancelled:
                timer.callback(*timer.args)


class ManualTimer:
    def __init__(self, delay: float, callback: Any, args: tuple[Any, ...]) -> None:
        self.delay, self.callback, self.args = delay, callback, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def new_log(min_insync_replicas: int = 1, node_id: int = 1) -> SimLog:
    disk = ModelDisk(node_id)
    disk.logs[("t", 0)] = StoredLog(TOPIC_ID)
    return SimLog(("t", 0), node_id, disk, SimLogConfig(min_insync_replicas), Checker(lambda line: None))


def assignment(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionRegistration:
    return PartitionRegistration(replicas, isr, leader, leader_epoch, partition_epoch)


class Stage:
    """Broker 1's replica of t-0."""

    def __init__(self, min_insync_replicas: int = 1, **registration: Any) -> None:
        self.clock = ManualClock()
        self.brokers = Brokers(1, 2, 3)
        self.proposals: list[IsrProposal] = []
        self.timers = ManualTimers()
        self.parking = Parking(self.timers)
        self.log = new_log(min_insync_replicas)
        self.partition = Partition(
            "t",
            0,
            TOPIC_ID,
            self.log,
            1,
            self.clock,
            self.brokers,
            lambda partition, proposal: self.proposals.append(proposal),
            lag_time_max_ms=30_000,
        )
        self.sequence = 0
        state = assignment(**registration)
        if state.leader == 1:
            self.partition.become_leader(state)
        else:
            self.partition.become_follower(state)

    def append(self, records: int = 1, write: bool = True) -> int:
        """The offset behind the appended batch."""
        batch = Entry(0, 0, 1, self.sequence, records, self.sequence).encode()
        self.sequence += 1
        result = self.log.append_as_leader(batch, self.partition.leader_epoch, 0)
        assert not result.error
        self.partition.dirty = True
        if write:
            self.partition.write_now()
            self.partition.written()
        return result.last_offset + 1

    def fetch_from(self, broker_id: int, offset: int, **details: Any) -> reads.Fetched:
        details.setdefault("current_leader_epoch", self.partition.leader_epoch)
        epoch = details.pop("broker_epoch", self.brokers.epochs.get(broker_id, -1))
        log_start = details.pop("log_start_offset", 0)
        return reads.follower_fetch(self.partition, broker_id, epoch, offset, log_start, 10_000, **details)

    def wait_committed(self, offset: int, timeout_ms: int = 1000) -> list[list[int]]:
        answers: list[list[int]] = []
        self.parking.until_committed([(self.partition, offset)], timeout_ms, answers.append)
        return answers

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark
