"""Who waits on one partition: produces for the high watermark, deletions for the low one, long polls for data.

The part of `Partition` that parks and wakes. The rest of it says when something moved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from penstock.log import cold
from penstock.log.damage import UNREADABLE
from penstock.log.results import Region
from penstock.protocol.errors import ErrorCode
from penstock.replication.news import News
from penstock.replication.replica_log import ReplicaLog
from penstock.replication.roles import Bound
from penstock.replication.waits import OffsetWait, Poll

_NONE = int(ErrorCode.NONE)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class PartitionWaits(ABC):
    log: ReplicaLog
    is_leader: bool

    def __init__(self) -> None:
        self.commit_waits: deque[tuple[int, OffsetWait, int]] = deque()  # (offset, wait, slot), offsets ascending
        self.low_watermark_waits: list[tuple[int, OffsetWait, int]] = []
        self.fetch_waits: dict[Poll, tuple[int, int]] = {}  # wait → (fetch offset, bound)
        self.changes = 0  # counts what is no matter of offsets: roles, epochs, the ISR, another log
        self.resting_readers: dict[Any, News[Any]] = {}  # sessions with nothing to look at until it is stirred

    @abstractmethod
    def maximal_isr(self) -> tuple[int, ...]: ...

    @abstractmethod
    def min_isr(self) -> int: ...

    @abstractmethod
    def low_watermark(self) -> int: ...

    @abstractmethod
    def stir(self) -> None: ...

    def wait_committed(self, offset: int, wait: OffsetWait, slot: int) -> None:
        if not self.is_leader:
            wait.settle(slot, _NOT_LEADER)
        elif offset <= self.log.high_watermark:
            enough = len(self.maximal_isr()) >= self.min_isr()
            wait.settle(slot, _NONE if enough else int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        else:
            waits = self.commit_waits
            position = len(waits)
            while position and waits[position - 1][0] > offset:  # duplicates wait for older offsets; rare
                position -= 1
            if position == len(waits):
                waits.append((offset, wait, slot))
            else:
                waits.insert(position, (offset, wait, slot))

    def wait_low_watermark(self, offset: int, wait: OffsetWait, slot: int) -> None:
        if not self.is_leader:
            wait.settle(slot, _NOT_LEADER)
        elif offset <= self.low_watermark():
            wait.settle(slot, _NONE)
        else:
            self.low_watermark_waits.append((offset, wait, slot))

    def read_bound(self, bound: int) -> int:
        """The offset before which a reader of this kind may see."""
        if bound == Bound.LOG_END:
            return self.log.log_end_offset
        return self.log.high_watermark if bound == Bound.HIGH_WATERMARK else self.log.last_stable_offset

    def readable_bytes(self, fetch_offset: int, bound: int, limit: int) -> int:
        """Bytes that a read would give now, up to about `limit`."""
        upper = self.read_bound(bound)
        if fetch_offset >= upper:
            return 0
        try:
            region = self.log.read(fetch_offset, max(limit, 1), upper)
        except UNREADABLE as error:
            self.log.damage.tell(fetch_offset, error)
            return limit  # it need not wait for what its read will say
        except cold.ColdPages:  # whoever woke it must not wait: its own read will, in a thread
            return limit
        if not isinstance(region, Region):
            return 0
        # A region ends with its segment: what lies behind it is more than the asker waits for.
        return region.length if region.next_offset >= upper else max(region.length, limit)

    def _wake_fetches(self) -> None:
        for wait, (fetch_offset, bound) in list(self.fetch_waits.items()):
            if wait.done:
                continue
            out_of_range = not self.log.log_start_offset <= fetch_offset <= self.log.log_end_offset
            if out_of_range or (self.read_bound(bound) > fetch_offset and (wait.min_bytes <= 1 or wait.enough())):
                wait.finish()

    def _end_fetch_waits(self) -> None:
        self.stir()
        for wait in list(self.fetch_waits):
            wait.finish()

    def _end_all_waits(self, error: int) -> None:
        commit_waits, self.commit_waits = self.commit_waits, deque()
        low_watermark_waits, self.low_watermark_waits = self.low_watermark_waits, []
        for _, wait, slot in (*commit_waits, *low_watermark_waits):
            wait.settle(slot, error)
        self._end_fetch_waits()
