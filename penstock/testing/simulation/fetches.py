"""Followers' fetches at a broker of the simulation, in incremental sessions as the real ones.

Each looks at what has news only; the full look beside it must find nothing more.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.partition import Bound, Partition
from penstock.testing.simulation.fetch_session import SimAsked, SimFetchSession
from penstock.testing.simulation.life import Life

if TYPE_CHECKING:
    from penstock.testing.simulation.node import SimNode

MAX_FETCH_SESSIONS = 100


class SimFetches:
    """One node's; sessions end with its life, their numbers do not begin anew."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._numbers = itertools.count(1)
        self._sessions: dict[int, SimFetchSession] = {}

    def begin_life(self) -> None:
        self._sessions = {}

    async def handle(self, life: Life, request: Any) -> Any:
        """A follower's fetch, with incremental sessions. It looks at what has news only, and the full look beside it
        must find nothing more."""
        api = messages.api("fetch")
        session_id, session = self._session(request)
        if session is None:
            return api.Response(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        news = session.news
        news.last_fetch_ms = self._node.clock.monotonic() * 1000
        results = self._read(request, session, update=True)
        if session.asked and not any(f.answers_at_once or f.size for _, f in results):
            watched = [
                (partition, asked.offset, int(Bound.LOG_END))
                for asked in news.due()
                if (partition := self._partition(asked.key)) is not None
            ]
            ready = asyncio.Event()
            self._node.manager.parking.until_readable(watched, request.min_bytes, request.max_wait_ms, ready.set, news)
            await ready.wait()
            await life.gate()
            results = self._read(request, session, update=False)
        for asked, fetched in results:
            partition = self._partition(asked.key)
            if partition is not None:
                asked.told = (fetched.high_watermark, fetched.log_start_offset)
                news.answered(asked, partition, fetched)
        await asyncio.sleep(self._node.world.delay())  # the bytes leave later than they were looked up
        await life.gate()
        topics: dict[Any, Any] = {}
        for asked, fetched in results:
            topic_id, index = asked.key
            topic = topics.setdefault(topic_id, api.FetchableTopicResponse(topic_id=topic_id))
            topic.partitions.append(
                _fetch_answer(api, index, fetched, self._node.cluster.storage.bytes_of(fetched.region))
            )
        return api.Response(session_id=session_id, responses=list(topics.values()))

    def _session(self, request: Any) -> tuple[int, SimFetchSession | None]:
        if request.session_epoch <= 0:
            session_id = next(self._numbers)
            self._sessions[session_id] = SimFetchSession()
            while len(self._sessions) > MAX_FETCH_SESSIONS:
                self._sessions.pop(next(iter(self._sessions))).news.end()
        else:
            session_id = request.session_id
        session = self._sessions.get(session_id)
        if session is None:
            return -1, None
        session.news.replica_id = request.replica_state.replica_id
        for topic in request.topics:
            for item in topic.partitions:
                session.name((topic.topic_id, item.partition), item)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.forget((topic.topic_id, index))
        return session_id, session

    def _partition(self, key: tuple[Any, int]) -> Partition | None:
        name = self._node.manager.image.topic_name(key[0])
        return None if name is None else self._node.manager.find(name, key[1])

    def _read(self, request: Any, session: SimFetchSession, update: bool) -> list[tuple[SimAsked, reads.Fetched]]:
        if session.image is not self._node.manager.image:
            session.image = self._node.manager.image
            session.news.look_at_all()
        results = [(asked, self._read_one(request, asked, update)) for asked in session.news.due()]
        for asked, partition in session.news.resting.items():
            if not partition.dirty:
                fetched = self._read_one(request, asked, update=False)
                silent = not fetched.answers_at_once and not fetched.size
                told = (fetched.high_watermark, fetched.log_start_offset) == asked.told
                current = self._partition(asked.key) is partition
                self._node.cluster.checker.demand(
                    silent and told and current, f"node {self._node.id}: {partition!r} has news that nobody looks at"
                )
        return results

    def _read_one(self, request: Any, asked: SimAsked, update: bool) -> reads.Fetched:
        item, state = asked.item, request.replica_state
        partition = self._partition(asked.key)
        if partition is None:
            return reads.Fetched(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return reads.follower_fetch(
            partition,
            state.replica_id,
            state.replica_epoch,
            item.fetch_offset,
            item.log_start_offset,
            item.partition_max_bytes,
            current_leader_epoch=item.current_leader_epoch,
            last_fetched_epoch=item.last_fetched_epoch,
            update=update,
        )


def _fetch_answer(api: Any, index: int, fetched: Any, records: bytes) -> Any:
    answer = api.PartitionData(
        partition_index=index,
        error_code=fetched.error,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        records=records,
    )
    if fetched.diverging_epoch is not None:
        epoch, end_offset = fetched.diverging_epoch
        answer.diverging_epoch = api.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer
