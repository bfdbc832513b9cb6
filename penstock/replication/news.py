"""What has changed for one fetch session since its last answer: a fetch looks at that, and at nothing else.

A partition whose last answer left nothing to say *rests*: it stands in `Partition.resting_readers` until something that
its reader could see moves there (`Partition.stir`). All others are due at every fetch: those with an error, with bytes
that were not sent, held back by a throttle, named by the request, or of a follower that is not in the ISR yet.

A follower's fetch is a sign of life for all that rest in its session. It is written down once, here; the partition
takes it over (`Follower.rouse`) when it is stirred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from penstock.replication.roles import Bound

if TYPE_CHECKING:
    from penstock.replication.partition import Partition
    from penstock.replication.reads import Fetched
    from penstock.replication.waits import Poll

NO_REPLICA = -1


class Asked(Protocol):
    """One partition of a session. Hashed by identity."""

    offset: int
    turn: int  # partitions with the lower one are read first


A = TypeVar("A", bound=Asked)


class News(Generic[A]):
    """The partitions of one session: due, or resting."""

    __slots__ = ("_due", "_ended", "_resting", "bound", "last_fetch_ms", "replica_id", "waits")

    def __init__(self) -> None:
        self._due: dict[A, None] = {}
        self._resting: dict[A, Partition] = {}
        self._ended = False
        self.bound: int = Bound.HIGH_WATERMARK
        self.replica_id = NO_REPLICA
        self.last_fetch_ms = 0.0
        self.waits: set[Poll] = set()  # long polls of this session

    def due(self) -> list[A]:
        """What a fetch must look at, in the order of turns."""
        if len(self._due) > 1:
            return sorted(self._due, key=_turn)
        return list(self._due)

    @property
    def due_count(self) -> int:
        return len(self._due)

    def only_due(self, asked: A) -> bool:
        """Whether a fetch that names `asked` looks at nothing else."""
        due = self._due
        return not due or (len(due) == 1 and asked in due)

    @property
    def resting(self) -> dict[A, Partition]:
        return self._resting

    def look_at(self, asked: A) -> None:
        """The reader has named it: a new partition, or another position."""
        partition = self._resting.get(asked)
        if partition is None:
            self._due[asked] = None
        else:
            del partition.resting_readers[asked]
            self.stirred(asked, partition)

    def forget(self, asked: A) -> None:
        if asked in self._resting:
            self.look_at(asked)
        self._due.pop(asked, None)

    def look_at_all(self) -> None:
        """The reader is another, or metadata or rights are."""
        for asked in list(self._resting):
            self.look_at(asked)

    def end(self) -> None:
        """The session is gone: nothing rests in it any longer. A long poll of it may still be answered."""
        self.look_at_all()
        self._ended = True

    def stirred(self, asked: A, partition: Partition) -> None:
        """`partition`, which no longer holds `asked` as resting, moved."""
        del self._resting[asked]
        self._due[asked] = None
        if self.replica_id >= 0:
            follower = partition.followers.get(self.replica_id)
            if follower is not None and follower.rests_in is self:
                follower.rouse()
        for wait in self.waits:
            wait.watch(partition, asked.offset)

    def answered(self, asked: A, partition: Partition, fetched: Fetched) -> None:
        """This was told. Unless there is more to say, it rests from now on."""
        if (
            fetched.error
            or fetched.region is not None
            or fetched.diverging_epoch is not None
            or fetched.preferred_replica >= 0
            or asked not in self._due
            or self._ended
        ):
            return
        log = partition.log
        if (
            partition.dirty
            # It may have moved while the others were read.
            or log.high_watermark != fetched.high_watermark
            or log.log_start_offset != fetched.log_start_offset
            or asked.offset < partition.read_bound(self.bound)
        ):
            return
        if self.replica_id >= 0:
            follower = partition.followers.get(self.replica_id)
            if follower is None or self.replica_id not in partition.isr or follower.log_end_offset != asked.offset:
                return  # each of its fetches may be the one that lets it join; only members are never throttled
            follower.rests_in = self
        elif partition.rack_of is not None:
            return  # a nearer replica may catch up at any time
        del self._due[asked]
        self._resting[asked] = partition
        partition.resting_readers[asked] = self


def _turn(asked: Asked) -> int:
    return asked.turn
