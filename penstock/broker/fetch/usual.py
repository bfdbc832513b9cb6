"""A consumer's fetch that looks like its last one takes a short way (as decision 0004 does for produces).

One partition is named, nothing but the offset differs, and of its session nothing else has news. Then there is nothing
to parse, and answering is: a look at the log, a small read, one `pack`. Whoever waits at the same offset with the same
limits shares what was read. Everything unusual goes the general way (`api/fetch`), now or when its long poll ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.broker.fetch.sessions import CLOSE_EPOCH, FetchContext
from penstock.broker.fetch.shape import FetchShape
from penstock.broker.network.connection import Connection, Slot
from penstock.broker.network.outbox import SMALL_REGION_BYTES, read_if_warm
from penstock.log import cold
from penstock.log.damage import UNREADABLE
from penstock.log.results import Region
from penstock.replication.partition import NO_EPOCH, Bound, Partition

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.api.fetch import FetchHandler
    from penstock.broker.fetch.codec import FetchRequest
    from penstock.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

TIMER_KEPT_SECONDS = 5.0  # a timer of a longer poll is not left behind for the next one

Shared = tuple[tuple[Any, ...], bytes, int]
"""What it depends on; the answer from its topics on; bytes of records in it."""

_UNUSUAL: Shared = ((), b"", -1)


class UsualFetch:
    """The usual fetch of one connection, and its long poll while it waits (see `replication.waits.Poll`)."""

    follows = False  # whether it is a follower's: then its offset is an acknowledgement

    __slots__ = ("_also", "_bound", "_bytes", "_connection", "_correlation_id", "_deadline", "_handler", "_image",
                 "_kind", "_leader_epoch", "_limit", "_max_wait_seconds", "_offset", "_partition", "_request", "_rules",
                 "_session", "_shape", "_slot", "_timer", "_topic", "asked", "done", "min_bytes")  # fmt: skip

    def __init__(
        self, handler: FetchHandler, connection: Connection, request: FetchRequest, shape: FetchShape, session: Any,
        partition: Partition, bound: int,
    ) -> None:  # fmt: skip
        self._handler = handler
        self._connection = connection
        self._request = request
        self._shape = shape
        self._session = session
        named = request.partitions[0]
        self.asked = named if session is None else session.partitions[(named.name, named.index)]
        self._partition = partition
        self._image = handler.broker.replicas.image
        self._rules = None if handler.authorizer is None else handler.authorizer.rules
        self._topic = partition.topic
        self._leader_epoch = named.current_leader_epoch
        self._bound = bound
        self._bytes = handler.stats.replicated_bytes if self.follows else handler.stats.fetched_bytes
        self._kind = (request.version, bound)
        self._limit = min(named.max_bytes, handler.limit_bytes(request))
        waits = min(request.min_bytes, handler.limit_bytes(request)) > 0
        self._max_wait_seconds = request.max_wait_ms / 1000 if waits else 0.0
        self._offset = -1
        self._correlation_id = 0
        self._slot: Slot | None = None
        self._also: list[Partition] = []  # others of the session that moved while it waits
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.min_bytes = 1
        self.done = True  # whether nothing waits here

    def take(self, version: int, correlation_id: int, position: int, end: int) -> bool:
        """Answer or park a request; False if it must go the general way (nothing has happened then)."""
        connection = self._connection
        buffer = connection.buffer
        offset = self._shape.offset_in(buffer, version, position, end)
        if offset < 0 or not self._holds():
            return False
        session = self._session
        if (CLOSE_EPOCH if session is None else session.epoch) != self._shape.epoch_in(buffer, position):
            return False
        if self.follows and not self._acknowledged(offset):
            return False
        found = self._read(offset)
        handler = self._handler
        if found is _UNUSUAL or (found is None and not self._may_wait()):
            return False
        dispatcher = handler.dispatcher
        self.asked.offset = offset
        if session is not None:
            handler.sessions.goes_on(session, self.asked, dispatcher.now)
        if found is None:
            self._park(offset, correlation_id)
            return True
        _, part, size = found
        if session is not None:
            session.sent(self.asked, self._partition.log)
        self._bytes.value += size
        answer = self._shape.answer(correlation_id, 0 if session is None else session.id, part)
        connection.answer(answer, dispatcher.now, handler.route.stats)
        return True

    def _acknowledged(self, offset: int) -> bool:
        """What a follower says by its offset (`usual_follower`): a consumer's says nothing."""
        return True

    def _holds(self) -> bool:
        """Whether everything that its last general fetch found is as it was."""
        handler, partition, session = self._handler, self._partition, self._session
        return (
            handler.broker.replicas.image is self._image
            and partition.is_leader
            and (self._leader_epoch == NO_EPOCH or self._leader_epoch == partition.leader_epoch)
            and partition.rack_of is None
            and handler.broker.quotas is None
            and (session is None or (session.usual is self and session.news.only_due(self.asked)))
            and (handler.authorizer is None or self._may_read(handler.authorizer))
        )

    def _may_read(self, authorizer: Authorizer) -> bool:
        """Other rules may forbid other partitions of the session, which only the general way tells."""
        return authorizer.rules is self._rules and authorizer.may_read(self._connection, self._topic)

    def _read(self, offset: int) -> Shared | None:
        """What there is for this offset: None if nothing yet, _UNUSUAL if the general way has to say it."""
        partition = self._partition
        if partition.dirty:
            partition.write_now()
            partition.written()
        log = partition.log
        high_watermark, last_stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        log_end = log.log_end_offset
        upper = high_watermark if self._bound == Bound.HIGH_WATERMARK else last_stable
        if self.follows:
            upper = log_end
        if not start <= offset <= log_end:
            return _UNUSUAL
        if offset >= upper:
            return None
        key = (partition, offset, self._limit, high_watermark, last_stable, start, upper, partition.changes, log)
        shared = self._handler.shared.get(self._kind)
        if shared is not None and shared[0] == key:
            return shared
        willing = not cold.must_not_wait()
        cold.refuse_to_wait()
        try:
            region = log.read(offset, self._limit, upper)
            if not isinstance(region, Region) or region.file is None or region.length > SMALL_REGION_BYTES:
                return _UNUSUAL
            if self._bound == Bound.LAST_STABLE and log.aborted_transactions(offset, region.next_offset):
                return _UNUSUAL
        except (*UNREADABLE, cold.ColdPages):
            return _UNUSUAL
        finally:
            if willing:
                cold.wait_again()
        records = read_if_warm(region.file.fd, region.position, region.length)
        if records is None:
            return _UNUSUAL
        found = key, self._shape.part(high_watermark, last_stable, start, records), region.length
        self._handler.shared[self._kind] = found
        return found

    # A long poll -------------------------------------------------------------------------------------------------

    def _may_wait(self) -> bool:
        return self._max_wait_seconds > 0 and not self._handler.broker.replicas.parking.full

    def _park(self, offset: int, correlation_id: int) -> None:
        handler, connection = self._handler, self._connection
        dispatcher = handler.dispatcher
        self.done = False
        self._offset = offset
        self._correlation_id = correlation_id
        self._slot = dispatcher.new_slot(connection, handler.route)
        connection.busy = True
        connection.on_close = self.cancel
        self._partition.fetch_waits[self] = (offset, self._bound)
        if self._session is not None:
            self._session.news.waits.add(self)
        dispatcher.long_polls.add(self)
        handler.broker.replicas.parking.fetch_waits += 1
        self._deadline = dispatcher.now + self._max_wait_seconds
        if self._timer is None:
            self._timer = dispatcher.loop.call_later(self._max_wait_seconds, self._time_up)

    def _unpark(self) -> None:
        self.done = True
        self._connection.on_close = None
        self._partition.fetch_waits.pop(self, None)
        for partition in self._also:
            partition.fetch_waits.pop(self, None)
        if self._session is not None:
            self._session.news.waits.discard(self)
        handler = self._handler
        handler.dispatcher.long_polls.discard(self)
        handler.broker.replicas.parking.fetch_waits -= 1
        if self._timer is not None and self._max_wait_seconds > TIMER_KEPT_SECONDS:
            self._timer.cancel()
            self._timer = None

    def _time_up(self) -> None:
        """One timer serves poll after poll: it looks when the present one ends."""
        self._timer = None
        if self.done:
            return
        left = self._deadline - self._handler.broker.replicas.clock.monotonic()
        if left > 0:
            self._timer = self._handler.dispatcher.loop.call_later(left, self._time_up)
        else:
            self.finish()

    def watch(self, partition: Partition, fetch_offset: int) -> None:
        """Another partition of the session was stirred."""
        if self not in partition.fetch_waits:
            self._also.append(partition)
            partition.fetch_waits[self] = (fetch_offset, self._bound)

    def enough(self) -> bool:
        return True

    def finish(self) -> None:
        """Answer now, with whatever is there."""
        if self.done:
            return
        self._unpark()
        if self._connection.closed:
            return
        try:
            if not self._answer_usually():
                self._answer_generally()
        except Exception:
            logger.exception("closing client=%s: a long poll could not be answered", self._connection.client_host)
            self._handler.stats.ran_into_bug("Fetch", "closed")
            self._connection.close()

    def _answer_usually(self) -> bool:
        if self._also:
            self._also = []
            return False
        found = self._read(self._offset) if self._holds() else _UNUSUAL
        if found is None or found is _UNUSUAL:
            return False
        _, part, size = found
        connection, session, slot = self._connection, self._session, self._slot
        assert slot is not None
        if session is not None:
            session.sent(self.asked, self._partition.log)
        self._bytes.value += size
        slot.parts = (self._shape.answer(self._correlation_id, 0 if session is None else session.id, part),)
        connection.waited()
        return True

    def _answer_generally(self) -> None:
        handler, connection, slot = self._handler, self._connection, self._slot
        assert slot is not None
        handler.answer_parked(connection, slot, self._correlation_id, self._request, self._context())

    def _context(self) -> FetchContext:
        session = self._session
        if session is None:
            return FetchContext(self._request.partitions)
        return FetchContext(session.partitions.values(), session, incremental=True, session_id=session.id)

    def lost_access(self) -> bool:
        """Whether the ACLs as they are now forbid a part of it."""
        return not all(
            self._handler.may_fetch(self._connection, self._request, asked) for asked in self._context().all_partitions
        )

    def cancel(self) -> None:
        """The client is gone, and does not wait any longer."""
        self._unpark()

    def end(self) -> None:
        """The client is gone: nobody may hold its connection."""
        if self._session is not None and self._session.usual is self:
            self._session.usual = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
