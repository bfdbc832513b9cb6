"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, answers carry only what changed.

A fetch looks only at what may have changed (replication/news); at all of it when the asker, the metadata or the rights
are not those of the fetch before.

The rules are Kafka's. Bounded by `max.incremental.fetch.session.cache.slots` and by half a million partitions: a full
cache gives up a session only for a newcomer that is worth more, or when the old one is idle for two minutes; else the
newcomer goes without.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection
from operator import is_not
from typing import TYPE_CHECKING, Any

from penstock.broker.fetch.codec import FIRST_WITH_TOPIC_ID, FetchPartition, FetchRequest
from penstock.protocol.errors import ErrorCode
from penstock.replication.news import News

if TYPE_CHECKING:
    from penstock.replication.replica_log import ReplicaLog

IDLE_BEFORE_EVICTION_SECONDS = 120.0
MOST_PARTITIONS = 500_000  # in all sessions of consumers
_USUAL_NAME_BYTES = 256
NO_SESSION = 0
CLOSE_EPOCH = -1
FIRST_EPOCH = 0

PartitionKey = tuple[bytes, int]


def _weight(key: PartitionKey) -> int:
    """What it counts in the cache: a name that no topic can have costs what its length does."""
    return 1 + len(key[0]) // _USUAL_NAME_BYTES


def next_epoch(epoch: int) -> int:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


class FetchSession:
    __slots__ = ("_asker", "_surroundings", "_turns", "cache", "epoch", "id", "last_used", "news", "partitions",
                 "privileged", "started", "uses_topic_ids", "usual")  # fmt: skip

    def __init__(
        self, session_id: int, privileged: bool, uses_topic_ids: bool, now: float, cache: FetchSessionCache
    ) -> None:
        self.cache: FetchSessionCache | None = cache  # None: it has ended
        self.id = session_id
        self.epoch = 1  # what the next request must carry
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.started = now
        self.last_used = now
        self.partitions: OrderedDict[PartitionKey, FetchPartition] = OrderedDict()
        self.news = News[FetchPartition]()
        self.usual: Any = None  # the UsualFetch whose partition is as that found it
        self._turns = 0
        self._asker: tuple[int | str, ...] = ()
        self._surroundings: tuple[Any, ...] = ()

    def add(self, asked: FetchPartition) -> None:
        key = (asked.name, asked.index)
        replaced = self.partitions.get(key)
        if replaced is not None:
            self.news.forget(replaced)
        elif self.cache is not None:
            self.cache.partition_count += _weight(key)
        self.partitions[key] = asked
        asked.turn = self._turns if replaced is None else replaced.turn
        self._turns += 1
        self.news.look_at(asked)

    def seen_by(self, request: FetchRequest, bound: int, surroundings: tuple[Any, ...]) -> None:
        """Who asks, and what an answer depends on beside the partitions themselves (compared by identity): if any of it
        is not what it was, everything is news."""
        asker = (request.version, request.replica_id, request.replica_epoch, request.rack_id, bound)
        if asker != self._asker or any(map(is_not, surroundings, self._surroundings)):
            self.news.look_at_all()
            self.usual = None
            self._asker, self._surroundings = asker, surroundings
            self.news.replica_id, self.news.bound = request.replica_id, bound

    def update(self, request: FetchRequest) -> None:
        if request.partitions or request.forgotten:
            self.usual = None
        for asked in request.partitions:
            known = self.partitions.get((asked.name, asked.index))
            if known is None:
                self.add(asked)
                continue
            known.current_leader_epoch = asked.current_leader_epoch
            known.offset = asked.offset
            known.last_fetched_epoch = asked.last_fetched_epoch
            known.log_start_offset = asked.log_start_offset
            known.max_bytes = asked.max_bytes
            self.news.look_at(known)
        for key in request.forgotten:
            forgotten = self.partitions.pop(key, None)
            if forgotten is not None:
                self.news.forget(forgotten)
                if self.cache is not None:
                    self.cache.partition_count -= _weight(key)

    def sent(self, asked: FetchPartition, log: ReplicaLog) -> None:
        """`changed` for one partition of which records are sent."""
        if len(self.partitions) > 1:
            self.partitions.move_to_end((asked.name, asked.index))
            asked.turn = self._turns
            self._turns += 1
        asked.told_high_watermark = log.high_watermark
        asked.told_log_start_offset = log.log_start_offset

    def changed(self, results: list[tuple[FetchPartition, Any]]) -> list[tuple[FetchPartition, Any]]:
        """What an incremental answer must contain; partitions with records go to the end, so all get their turn."""
        told: list[tuple[FetchPartition, Any]] = []
        news = self.news
        for partition, fetched in results:
            tell = fetched.error != 0 or fetched.preferred_replica >= 0 or fetched.diverging_epoch is not None
            if fetched.size:
                tell = True
                key = (partition.name, partition.index)
                if key in self.partitions:
                    self.partitions.move_to_end(key)
                    partition.turn = self._turns
                    self._turns += 1
            if partition.told_high_watermark != fetched.high_watermark:
                partition.told_high_watermark = fetched.high_watermark
                tell = True
            if partition.told_log_start_offset != fetched.log_start_offset:
                partition.told_log_start_offset = fetched.log_start_offset
                tell = True
            if fetched.error:
                partition.told_high_watermark = -1  # so that the recovery is told
            elif partition.replica is not None:
                news.answered(partition, partition.replica, fetched)
            if tell:
                told.append((partition, fetched))
        return told


class FetchContext:
    """How one request is to be answered."""

    __slots__ = ("all_partitions", "error", "incremental", "session", "session_id")

    def __init__(
        self,
        partitions: Collection[FetchPartition],
        session: FetchSession | None = None,
        incremental: bool = False,
        error: int = 0,
        session_id: int = NO_SESSION,
    ) -> None:
        self.all_partitions = partitions
        self.session = session
        self.incremental = incremental
        self.error = error
        self.session_id = session_id

    @property
    def due_count(self) -> int:
        return len(self.all_partitions) if self.session is None else self.session.news.due_count

    def partitions(self) -> Collection[FetchPartition]:
        """What to look at now."""
        return self.all_partitions if self.session is None else self.session.news.due()


class FetchSessionCache:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self.evictions = 0
        self.partition_count = 0  # in all sessions; a very long name counts as several

    def context(self, request: FetchRequest, now: float, size: int | None = None) -> FetchContext:
        """`size` counts the partitions where the request names only the first of them."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (CLOSE_EPOCH, FIRST_EPOCH):
            if session_id != NO_SESSION:
                self._close(session_id)
            session = self._try_add(request, now, size) if epoch == FIRST_EPOCH else None
            if session is None:
                return FetchContext(request.partitions)
            return FetchContext(session.partitions.values(), session, session_id=session.id)
        session = self.sessions.get(session_id)
        if session is None:
            return FetchContext([], error=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        if session.epoch != epoch:
            return FetchContext([], error=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session_id=session.id)
        if session.uses_topic_ids != (request.version >= FIRST_WITH_TOPIC_ID):
            return FetchContext([], error=int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR), session_id=session.id)
        if not session.privileged and self._too_many(request, size, session):
            self._close(session_id)
            return FetchContext([], error=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        session.update(request)
        if not session.partitions:
            self._close(session_id)
            return FetchContext([])
        session.epoch = next_epoch(epoch)
        session.last_used = now
        self.sessions.move_to_end(session_id)
        return FetchContext(session.partitions.values(), session, incremental=True, session_id=session_id)

    def _too_many(self, request: FetchRequest, size: int | None, session: FetchSession | None = None) -> bool:
        """Whether what it names beyond its session would be more than memory is meant for."""
        known: Collection[PartitionKey] = () if session is None else session.partitions
        keys = [(asked.name, asked.index) for asked in request.partitions]
        more = sum(_weight(key) for key in keys if key not in known)
        if size is not None:  # of the others nothing is known yet
            more += size - len(keys)
        return more > 0 and self.partition_count + more > MOST_PARTITIONS

    def goes_on(self, session: FetchSession, asked: FetchPartition, now: float) -> None:
        """`context` for the next fetch of a session, which names one partition as it was named before."""
        session.epoch = next_epoch(session.epoch)
        session.last_used = now
        session.news.look_at(asked)
        self.sessions.move_to_end(session.id)

    def _close(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.usual = None
            session.news.end()
            session.cache = None
            self.partition_count -= sum(map(_weight, session.partitions))

    def _try_add(self, request: FetchRequest, now: float, size: int | None) -> FetchSession | None:
        if not request.partitions:
            return None  # nothing to remember
        privileged = request.replica_id >= 0
        size = len(request.partitions) if size is None else size
        if not privileged and self._too_many(request, size):
            return None
        if len(self.sessions) >= self.slots and not self._evict(privileged, size, now):
            return None
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self.sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = FetchSession(session_id, privileged, request.version >= FIRST_WITH_TOPIC_ID, now, self)
        for asked in request.partitions:
            session.add(asked)
        self.sessions[session_id] = session
        return session

    def _evict(self, privileged: bool, size: int, now: float) -> bool:
        """Make a slot free, if some session is worth less than the newcomer."""
        if self.slots <= 0 or not self.sessions:
            return False
        oldest = next(iter(self.sessions.values()))
        if now - oldest.last_used > IDLE_BEFORE_EVICTION_SECONDS:
            victim = oldest
        else:
            old_enough = [s for s in self.sessions.values() if now - s.started > IDLE_BEFORE_EVICTION_SECONDS]
            candidates = old_enough
            if privileged:
                candidates = old_enough + [
                    s for s in self.sessions.values() if not s.privileged and s not in old_enough
                ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda s: (s.privileged, len(s.partitions), s.id))
            if (victim.privileged, len(victim.partitions)) > (privileged, size):
                return False
        self._close(victim.id)
        self.evictions += 1
        return True
