"""Fetch (key 1), versions 4–18: consumers and followers.

Sessions (KIP-227), then per partition the checks and the region of replication/reads. Nothing there: parked until an
append or the high watermark brings `min_bytes`, or `max_wait_ms` are over. Later requests of the connection wait, as
in Kafka. v7: sessions · v11: racks · v12: flexible, diverging epochs · v13: topic ids · v15: replica state
· v16: hints.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.fetch import sliced
from penstock.broker.fetch import usual as usual_fetch
from penstock.broker.fetch.codec import FIRST_WITH_TOPIC_ID, FetchPartition, FetchRequest, encode_fetch, parse_fetch
from penstock.broker.fetch.remembered import remember
from penstock.broker.fetch.sessions import FetchContext, FetchSessionCache
from penstock.broker.metadata.leader_hints import leader_hints
from penstock.broker.network.connection import Connection, Slot
from penstock.broker.network.wire import LARGEST_REQUEST_BYTES, UNREADABLE, MalformedFrame
from penstock.log import cold
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.partition import Bound
from penstock.replication.reads import Fetched
from penstock.replication.waits import FetchWait

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.routes import Route
    from penstock.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

API = ApiSpec(1, "Fetch", 4, 18)

_HINTED = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
_FORBIDDEN = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_FIRST_READING_FOLLOWERS = 11
SLICED_FROM = 5000  # partitions: more of them are read in slices

Results = list[tuple[FetchPartition, Fetched]]


def hot_handler(dispatcher: Dispatcher, route: Route) -> Any:
    return FetchHandler(dispatcher, route).handle_frame


@cache
def _refused(error: int, listed: bool = True) -> Fetched:
    """One for all partitions: whoever asks for a hundred thousand that are not there is answered by one object."""
    return Fetched(error, aborted=[] if listed else None)


class FetchHandler:
    def __init__(self, dispatcher: Dispatcher, route: Route) -> None:
        self.dispatcher = dispatcher
        self.broker = dispatcher.broker
        self.stats = dispatcher.stats
        self.route = route
        self.authorizer: Authorizer | None = self.broker.authorizer
        settings = self.broker.settings
        self.max_bytes: int = settings["fetch.max.bytes"]
        self.sessions = FetchSessionCache(settings["max.incremental.fetch.session.cache.slots"])
        self.broker.fetch_sessions = self.sessions
        self.shared: dict[tuple[int, int], usual_fetch.Shared] = {}  # by version and bound: what was read last

    def handle_frame(self, connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        usual = connection.usual_fetch
        if usual is not None and usual.take(version, correlation_id, position, end):
            return
        if end - position > sliced.LARGE_FETCH_BYTES:
            if end - position > LARGEST_REQUEST_BYTES:
                raise MalformedFrame(f"fetch of {end - position} bytes")
            sliced.start_large(self, connection, version, correlation_id, position, end)
            return
        try:
            request = parse_fetch(connection.buffer, version, position, end)
        except UNREADABLE as error:
            raise MalformedFrame(f"fetch v{version}: {error}") from error
        slot = self.dispatcher.new_slot(connection, self.route)
        if request.replica_id < 0:
            connection.client_id = self.dispatcher.client_id(connection)
        if not self.admit(connection, slot, correlation_id, request):
            connection.mark_dirty()
            return
        context = self.sessions.context(request, self.dispatcher.now)
        if context.error:
            self.refuse(slot, correlation_id, request, context.error)
            connection.mark_dirty()
            return
        self.look_around(connection, request, context, update=True)
        if context.due_count > SLICED_FROM:
            sliced.start(self, connection, slot, correlation_id, request, context)
            return
        cold.refuse_to_wait()
        try:
            results = self.read(connection, request, context, update=True)
        except cold.ColdPages:
            sliced.start(self, connection, slot, correlation_id, request, context)
            return
        finally:
            cold.wait_again()
        remember(self, connection, request, context, results, position, end)
        if self.answers_now(request, context, results):
            self.answer(connection, slot, correlation_id, request, context, results)
            connection.mark_dirty()
        else:
            self.park(connection, slot, correlation_id, request, context)

    def admit(self, connection: Connection, slot: Slot, correlation_id: int, request: FetchRequest) -> bool:
        """False: somebody who is no follower speaks as one, and has the answer to that."""
        if request.replica_id >= 0:
            if self._is_follower(connection, request):
                return True
            code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # as Kafka answers who may not act for the cluster
            results: Results = [(asked, _refused(code, listed=False)) for asked in request.partitions]
            slot.parts = encode_fetch(request.version, correlation_id, 0, 0, results)
            self.route.stats.error(code)
            return False
        quotas = self.broker.quotas
        if quotas is not None:
            most = quotas.fetch_limit_bytes(connection, connection.client_id)
            request.max_bytes = request.max_bytes if most is None else min(request.max_bytes, most)
        return True

    def refuse(self, slot: Slot, correlation_id: int, request: FetchRequest, error: int) -> None:
        slot.parts = encode_fetch(request.version, correlation_id, error, 0, [])
        self.route.stats.error(error)

    def _is_follower(self, connection: Connection, request: FetchRequest) -> bool:
        """A follower's fetch moves the high watermark: only of the broker itself, and of its present life."""
        return request.replica_epoch >= 0 and self.dispatcher.speaks_for(connection, request.replica_id)

    def answers_now(self, request: FetchRequest, context: FetchContext, results: Results) -> bool:
        if request.max_wait_ms <= 0 or not context.all_partitions:
            return True
        size = 0
        for _, fetched in results:
            if fetched.answers_at_once:
                return True
            size += fetched.size
        return size >= min(request.min_bytes, self.limit_bytes(request))

    def limit_bytes(self, request: FetchRequest) -> int:
        return request.max_bytes if request.replica_id >= 0 else min(request.max_bytes, self.max_bytes)

    def bound(self, request: FetchRequest) -> int:
        if request.replica_id >= 0:
            return Bound.LOG_END
        return Bound.LAST_STABLE if request.isolation_level == 1 else Bound.HIGH_WATERMARK

    def look_around(
        self, connection: Connection, request: FetchRequest, context: FetchContext, update: bool = False
    ) -> None:
        """Before a session's partitions are read: whether other things than these have changed."""
        session = context.session
        if session is not None:
            replicas = self.broker.replicas
            rights = None if self.authorizer is None else self.authorizer.rules
            session.seen_by(request, self.bound(request), (replicas.image, connection, connection.principal, rights))
            if update:
                session.news.last_fetch_ms = replicas.clock.monotonic() * 1000

    def read(
        self,
        connection: Connection,
        request: FetchRequest,
        context: FetchContext,
        update: bool,
        remaining: int = -1,
        nothing_yet: bool = True,
    ) -> Results:
        if remaining < 0:
            remaining = self.limit_bytes(request)
        bound = self.bound(request)
        follower = request.replica_id >= 0
        results: Results = []
        checked = self.authorizer is not None and not follower
        for asked in context.partitions():
            found = self.find(request, asked)
            if checked and not self.may_fetch(connection, request, asked):
                found = _refused(_FORBIDDEN)
            if type(found) is Fetched:
                asked.replica = None
                results.append((asked, found))
                continue
            asked.replica = found
            limit = asked.max_bytes if asked.max_bytes < remaining else remaining
            if follower:
                fetched = reads.follower_fetch(
                    found,
                    request.replica_id,
                    request.replica_epoch,
                    asked.offset,
                    asked.log_start_offset,
                    limit,
                    at_least_one=nothing_yet,
                    current_leader_epoch=asked.current_leader_epoch,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    update=update,
                )
            else:
                fetched = reads.fetch(
                    found,
                    asked.offset,
                    limit,
                    bound,
                    at_least_one=nothing_yet,
                    current_leader_epoch=asked.current_leader_epoch,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    leader_only=request.version < _FIRST_READING_FOLLOWERS,
                    client_rack=request.rack_id,
                )
            size = fetched.size
            if size:
                nothing_yet = False
                remaining = remaining - size if size < remaining else 0
            results.append((asked, fetched))
        return results

    def may_fetch(self, connection: Connection, request: FetchRequest, asked: FetchPartition) -> bool:
        """Whether a consumer may; one that names a topic by an id that is not there learns just that."""
        topic: str | None
        if request.version >= FIRST_WITH_TOPIC_ID:
            topic = self.broker.replicas.image.topic_names_by_bytes.get(asked.name)
        else:
            topic = str(asked.name, "utf-8", "replace")
        return topic is None or self.authorizer is None or self.authorizer.may_read(connection, topic)

    def find(self, request: FetchRequest, asked: FetchPartition) -> Any:
        """The replica, or the error that stands for it."""
        replicas = self.broker.replicas
        if request.version >= FIRST_WITH_TOPIC_ID:
            topic = replicas.image.topic_names_by_bytes.get(asked.name)
            if topic is None:
                return _refused(int(ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic = str(asked.name, "utf-8", "replace")
        partition = replicas.partitions.get((topic, asked.index))
        if partition is None:
            error = replicas.hosting_error(topic, asked.index)
            # Kafka's two places that make such answers differ in this: no list, or an empty one.
            return _refused(error, listed=error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def park(
        self, connection: Connection, slot: Slot, correlation_id: int, request: FetchRequest, context: FetchContext
    ) -> None:
        bound = self.bound(request)
        watched = [
            (found, asked.offset, bound)
            for asked in context.partitions()
            if type(found := self.find(request, asked)) is not Fetched
        ]
        connection.busy = True
        parked = ParkedFetch(self, connection, slot, correlation_id, request, context)
        connection.on_close = parked.cancel
        min_bytes = min(request.min_bytes, self.limit_bytes(request))
        news = None if context.session is None else context.session.news
        wait = self.broker.replicas.parking.until_readable(watched, min_bytes, request.max_wait_ms, parked.ready, news)
        if not wait.done:
            parked.wait = wait
            self.dispatcher.long_polls.add(parked)

    def answer_parked(
        self, connection: Connection, slot: Slot, correlation_id: int, request: FetchRequest, context: FetchContext
    ) -> None:
        """The end of a long poll: read again, and answer with what is there."""
        self.look_around(connection, request, context)
        try:
            results = self.read(connection, request, context, update=False)
        except cold.ColdPages:  # it was woken by a read that must not wait
            sliced.start(self, connection, slot, correlation_id, request, context, waited=True)
            return
        self.answer(connection, slot, correlation_id, request, context, results)
        connection.finish(slot, slot.parts)

    def answer(
        self,
        connection: Connection,
        slot: Slot,
        correlation_id: int,
        request: FetchRequest,
        context: FetchContext,
        results: Results,
    ) -> None:
        if self.pauses(connection, slot, correlation_id, request, context, results):
            return
        leaders = self.count(connection, request, results)
        if context.session is not None:
            changed = context.session.changed(results)
            if context.incremental:
                results = changed
        slot.parts = encode_fetch(request.version, correlation_id, 0, context.session_id, results, leaders)

    def pauses(
        self,
        connection: Connection,
        slot: Slot,
        correlation_id: int,
        request: FetchRequest,
        context: FetchContext,
        results: Results,
    ) -> bool:
        """Whether a quota is used up: then the answer is empty and tells for how long."""
        quotas = self.broker.quotas
        if quotas is None or request.replica_id >= 0:
            return False
        pause_ms = quotas.fetched(connection, connection.client_id, sum(fetched.size for _, fetched in results))
        if not pause_ms:
            return False
        slot.parts = encode_fetch(request.version, correlation_id, 0, context.session_id, [], None, pause_ms)
        connection.mute(pause_ms / 1000)
        return True

    def count(self, connection: Connection, request: FetchRequest, results: Results) -> Any:
        """Bytes and errors of an answer; the leaders that it should name."""
        leaders = None
        fetched_bytes = self.stats.replicated_bytes if request.replica_id >= 0 else self.stats.fetched_bytes
        for _, fetched in results:
            if fetched.region is not None:
                fetched_bytes.value += fetched.region.length
            if fetched.error:
                self.route.stats.error(fetched.error)
                if fetched.error in _HINTED and leaders is None and request.version >= 16:
                    leaders = self._hints(connection, request, results)
        return leaders

    def _hints(self, connection: Connection, request: FetchRequest, results: Results) -> Any:
        names = self.broker.image.topic_names_by_bytes
        return leader_hints(
            self.broker,
            connection,
            [(asked.name, names.get(asked.name), asked.index) for asked, got in results if got.error in _HINTED],
        )


class ParkedFetch:
    """A long poll: what is needed to answer it, and nothing of the request's bytes."""

    __slots__ = ("connection", "context", "correlation_id", "handler", "request", "slot", "wait")

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        slot: Slot,
        correlation_id: int,
        request: FetchRequest,
        context: FetchContext,
    ) -> None:
        self.handler = handler
        self.connection = connection
        self.slot = slot
        self.correlation_id = correlation_id
        self.request = request
        self.context = context
        self.wait: FetchWait | None = None

    def ready(self) -> None:
        """Something came, or time is up: read again and answer with what is there."""
        self._forget()
        connection = self.connection
        connection.on_close = None
        if connection.closed:
            return
        try:
            self.handler.answer_parked(connection, self.slot, self.correlation_id, self.request, self.context)
        except Exception:
            # A client that never hears of it would wait for ever; one whose connection closes asks again.
            logger.exception("closing client=%s: a long poll could not be answered", connection.client_host)
            self.handler.stats.ran_into_bug("Fetch", "closed")
            connection.close()

    def finish(self) -> None:
        """Answer now."""
        if self.wait is not None:
            self.wait.finish()

    def lost_access(self) -> bool:
        """Whether the ACLs as they are now forbid a part of it."""
        return self.request.replica_id < 0 and not all(
            self.handler.may_fetch(self.connection, self.request, asked) for asked in self.context.all_partitions
        )

    def cancel(self) -> None:
        """The client is gone."""
        if self.wait is not None:
            self.handler.broker.replicas.parking.cancel(self.wait)
        self._forget()

    def _forget(self) -> None:
        if self.wait is not None:
            self.handler.dispatcher.long_polls.discard(self)
            self.wait = None
