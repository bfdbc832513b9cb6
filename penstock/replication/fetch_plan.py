"""The follower's side of an incremental fetch session with one leader broker (KIP-227): what the next fetch must say.

Only partitions whose position changed since the last request are named again; the rest the leader remembers.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.protocol.errors import ErrorCode
from penstock.replication.following import Outcome, Position, position
from penstock.replication.partition import Partition

TopicPartition = tuple[str, int]
_MAX_SESSION_EPOCH = 2**31 - 1
SESSION_ERRORS = frozenset(
    (
        int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        int(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    )
)


class Plan(NamedTuple):
    """One fetch request, before it has a wire form."""

    session_id: int
    session_epoch: int
    named: list[tuple[Partition, Position]]
    forgotten: list[Partition]


class FetchPlan:
    """Partitions followed from one leader, and the session with it."""

    def __init__(self, back_off_ms: float = 1000) -> None:
        self.back_off_ms = back_off_ms
        self.partitions: dict[TopicPartition, Partition] = {}
        self.asked: dict[TopicPartition, Position] = {}  # what the leader's session holds
        self._delayed: dict[TopicPartition, float] = {}  # until when (monotonic ms); inf waits for metadata
        self._changed: dict[TopicPartition, None] = {}
        self._gone: dict[TopicPartition, Partition] = {}  # in the session, no longer wanted
        self._session_id = 0
        self._session_epoch = 0

    def __len__(self) -> int:
        return len(self.partitions)

    def add(self, partition: Partition) -> None:
        """Follow a partition, or follow it anew after its leader epoch changed."""
        key = (partition.topic, partition.index)
        self.partitions[key] = partition
        self._delayed.pop(key, None)
        self._changed[key] = None

    def remove(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        self.partitions.pop(key, None)
        self._delayed.pop(key, None)
        self._changed.pop(key, None)
        if self.asked.pop(key, None) is not None:
            self._gone[key] = partition

    def throttle(self, key: TopicPartition, until_ms: float) -> None:
        """Leave a partition out until then."""
        if key in self.partitions:
            self._delay(key, until_ms)

    def next(self, now_ms: float) -> Plan:
        """The request to send now. It is empty of partitions (and must not be sent) only if none is active."""
        for key in [key for key, until_ms in self._delayed.items() if until_ms <= now_ms]:
            del self._delayed[key]
            self._changed[key] = None
        if self._session_epoch == 0:
            self.asked.clear()
            self._gone.clear()
            self._changed = dict.fromkeys(key for key in self.partitions if key not in self._delayed)
        named = []
        for key in self._changed:
            partition = self.partitions[key]
            here = position(partition)
            if self.asked.get(key) != here:
                self.asked[key] = here
                named.append((partition, here))
            self._gone.pop(key, None)
        self._changed.clear()
        forgotten = list(self._gone.values())
        self._gone.clear()
        return Plan(self._session_id, self._session_epoch, named, forgotten)

    @property
    def active(self) -> bool:
        """Whether there is anything to fetch: somebody waits neither for metadata nor for a back-off."""
        return len(self._delayed) < len(self.partitions)

    def next_wake_ms(self) -> float:
        """When the first delayed partition may be tried again."""
        return min(self._delayed.values(), default=float("inf"))

    def answered(self, error: int, session_id: int) -> bool:
        """Take in the head of an answer. False: the session is gone, a full fetch follows."""
        if error:
            self.reset(keep_id=error not in SESSION_ERRORS)
            return False
        if session_id == 0:
            self.reset()  # the leader has no room for a session: every fetch is a full one
        else:
            self._session_id = session_id
            self._session_epoch = 1 if self._session_epoch == _MAX_SESSION_EPOCH else self._session_epoch + 1
        return True

    def reset(self, keep_id: bool = False) -> None:
        """Begin a new session (closing the old one, if the leader still knows it)."""
        self._session_epoch = 0
        if not keep_id:
            self._session_id = 0

    def settled(self, key: TopicPartition, outcome: Outcome, now_ms: float) -> None:
        """Take in what came of a partition's answer."""
        if key not in self.partitions:
            return
        if outcome is Outcome.FETCH or outcome is Outcome.IGNORE:
            self._changed[key] = None
        elif outcome is Outcome.WAIT or outcome is Outcome.FAILED:
            self._delay(key, float("inf"))
        elif outcome is Outcome.BACK_OFF or outcome is Outcome.ASK_OFFSETS:
            self._delay(key, now_ms + self.back_off_ms)

    def _delay(self, key: TopicPartition, until_ms: float) -> None:
        self._delayed[key] = until_ms
        self._changed.pop(key, None)
        if self.asked.pop(key, None) is not None:
            self._gone[key] = self.partitions[key]
