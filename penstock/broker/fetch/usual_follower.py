"""A follower's fetch that looks like its last one: the short way of `usual`, and what its offset acknowledges.

It has all of one leader epoch up to the offset that it asks for, so its log cannot have diverged. Checked before every
answer: that it still speaks for its broker, in that broker's present life, to the leader of that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.fetch.shape import FetchShape
from penstock.broker.fetch.usual import UsualFetch
from penstock.broker.network.connection import Connection
from penstock.replication.partition import Partition
from penstock.replication.roles import Bound

if TYPE_CHECKING:
    from penstock.broker.api.fetch import FetchHandler
    from penstock.broker.fetch.codec import FetchRequest
    from penstock.broker.fetch.sessions import FetchSession


class UsualFollowerFetch(UsualFetch):
    follows = True

    __slots__ = ("_log_start_offset", "_replica_epoch", "_replica_id")

    def __init__(
        self, handler: FetchHandler, connection: Connection, request: FetchRequest, shape: FetchShape,
        session: FetchSession, partition: Partition,
    ) -> None:  # fmt: skip
        super().__init__(handler, connection, request, shape, session, partition, Bound.LOG_END)
        self._replica_id = request.replica_id
        self._replica_epoch = request.replica_epoch
        self._log_start_offset = request.partitions[0].log_start_offset

    def _holds(self) -> bool:
        handler, partition, session = self._handler, self._partition, self._session
        return (
            handler.broker.replicas.image is self._image
            and partition.is_leader
            and self._leader_epoch == partition.leader_epoch
            and self._replica_id in partition.isr  # whoever is not may be throttled
            and session.usual is self
            and session.news.only_due(self.asked)
            and handler.dispatcher.speaks_for(self._connection, self._replica_id)
        )

    def _acknowledged(self, offset: int) -> bool:
        """As `reads.follower_fetch` takes it in; doing it twice changes nothing."""
        partition = self._partition
        if partition.dirty:
            partition.write_now()
            partition.written()
        follower = partition.followers.get(self._replica_id)
        log = partition.log
        if (
            follower is None
            or not log.log_start_offset <= offset <= log.log_end_offset
            or not partition.accepts_broker_epoch(self._replica_id, self._replica_epoch)
        ):
            return False
        news = self._session.news
        news.look_at(self.asked)  # what rested until now was caught up until the fetch before
        news.last_fetch_ms = self._handler.broker.replicas.clock.monotonic() * 1000
        partition.follower_fetched(follower, offset, self._log_start_offset, self._replica_epoch)
        return True

    def lost_access(self) -> bool:
        return False
