"""What must wait: produces with acks=all until the high watermark passes them, long polls until there is data,
delete-records until the low watermark follows.

A wait holds offsets and one callback, never a view into a connection's buffer. It ends exactly once: by the event it
waits for, by its deadline, or by `cancel` when the connection goes away. Nothing here polls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.replication.news import News
    from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

_NONE = int(ErrorCode.NONE)
_PENDING = -2


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of an event loop that waits need; the simulation hands in a virtual one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...


class OffsetWait:
    """Waits until each of several partitions has reached an offset; serves acks=all and delete-records.

    `on_done(errors)` gets one error code per target, in the order of the targets.
    """

    __slots__ = ("_on_done", "errors", "remaining", "timer")

    def __init__(self, count: int, on_done: Callable[[list[int]], None]) -> None:
        self.errors = [_PENDING] * count
        self.remaining = count
        self.timer: TimerHandle | None = None
        self._on_done: Callable[[list[int]], None] | None = on_done

    @property
    def done(self) -> bool:
        return self._on_done is None

    def settle(self, slot: int, error: int) -> None:
        if self._on_done is None or self.errors[slot] != _PENDING:
            return
        self.errors[slot] = error
        self.remaining -= 1
        if self.remaining == 0:
            self._finish()

    def expire(self) -> None:
        timed_out = int(ErrorCode.REQUEST_TIMED_OUT)
        if self._on_done is not None:
            self.errors = [timed_out if error == _PENDING else error for error in self.errors]
            self._finish()

    def cancel(self) -> None:
        """Forget the wait without an answer: its connection is gone."""
        self._on_done = None
        if self.timer is not None:
            self.timer.cancel()

    def _finish(self) -> None:
        on_done, self._on_done = self._on_done, None
        if self.timer is not None:
            self.timer.cancel()
        if on_done is not None:
            try:
                on_done(self.errors)
            except Exception:  # one waiter's fault must not keep the others waiting
                logger.exception("answering a parked request failed")


class Poll(Protocol):
    """A long poll as its partitions see it."""

    @property
    def done(self) -> bool: ...
    @property
    def min_bytes(self) -> int: ...
    def watch(self, partition: Partition, fetch_offset: int) -> None: ...
    def enough(self) -> bool: ...
    def finish(self) -> None: ...


class FetchWait:
    """A long poll: ends when `min_bytes` are readable over its partitions, something changed, or time is up.

    `on_ready()` re-reads the partitions; the wait itself holds no data. With a session, `watched` are the partitions
    that are due; one that rests is watched as soon as it is stirred.
    """

    __slots__ = ("_news", "_on_ready", "min_bytes", "timer", "watched")

    def __init__(
        self,
        watched: list[tuple[Partition, int, int]],
        min_bytes: int,
        on_ready: Callable[[], None],
        news: News[Any] | None = None,
    ) -> None:
        self.watched = watched  # (partition, fetch offset, read bound: a value of partition.Bound)
        self.min_bytes = min_bytes
        self.timer: TimerHandle | None = None
        self._on_ready: Callable[[], None] | None = on_ready
        for partition, fetch_offset, bound in watched:
            partition.fetch_waits[self] = (fetch_offset, bound)
        self._news = news
        if news is not None:
            news.waits.add(self)

    @property
    def done(self) -> bool:
        return self._on_ready is None

    def watch(self, partition: Partition, fetch_offset: int) -> None:
        """A partition of the session was stirred: whether that is worth an answer is seen when it wakes its waits."""
        if self._news is not None and self not in partition.fetch_waits:
            self.watched.append((partition, fetch_offset, self._news.bound))
            partition.fetch_waits[self] = (fetch_offset, self._news.bound)

    def enough(self) -> bool:
        """Whether the bytes readable now reach `min_bytes` (asked only when that is more than one)."""
        available = 0
        for partition, fetch_offset, bound in self.watched:
            available += partition.readable_bytes(fetch_offset, bound, self.min_bytes - available)
            if available >= self.min_bytes:
                return True
        return False

    def finish(self) -> None:
        """Answer now, with whatever is there."""
        on_ready = self._on_ready
        self.cancel()
        if on_ready is not None:
            try:
                on_ready()
            except Exception:
                logger.exception("answering a long poll failed")

    def cancel(self) -> None:
        if self._on_ready is None:
            return
        self._on_ready = None
        if self.timer is not None:
            self.timer.cancel()
        for partition, _, _ in self.watched:
            partition.fetch_waits.pop(self, None)
        if self._news is not None:
            self._news.waits.discard(self)


class Parking:
    """The bound on all waits of a broker, and their deadlines."""

    def __init__(self, timers: Timers, max_parked: int = 100_000) -> None:
        self._timers = timers
        self.max_parked = max_parked
        self._offset_waits = 0
        self.fetch_waits = 0  # whoever parks by itself counts itself here

    @property
    def parked(self) -> int:
        return self._offset_waits + self.fetch_waits

    @property
    def full(self) -> bool:
        return self.parked >= self.max_parked

    def until_committed(
        self, targets: Iterable[tuple[Partition, int]], timeout_ms: int, on_done: Callable[[list[int]], None]
    ) -> OffsetWait:
        """Park until the high watermark of each partition is at least its offset (acks=all: last offset + 1)."""
        listed = list(targets)
        wait = OffsetWait(len(listed), self._counted_offset(on_done))
        self._offset_waits += 1
        for slot, (partition, offset) in enumerate(listed):
            partition.wait_committed(offset, wait, slot)
        self._arm(wait, timeout_ms, empty=not listed)
        return wait

    def until_low_watermark(
        self, targets: Iterable[tuple[Partition, int]], timeout_ms: int, on_done: Callable[[list[int]], None]
    ) -> OffsetWait:
        """Park until all live replicas of each partition start at or after its offset (DeleteRecords)."""
        listed = list(targets)
        wait = OffsetWait(len(listed), self._counted_offset(on_done))
        self._offset_waits += 1
        for slot, (partition, offset) in enumerate(listed):
            partition.wait_low_watermark(offset, wait, slot)
        self._arm(wait, timeout_ms, empty=not listed)
        return wait

    def until_readable(
        self,
        watched: list[tuple[Partition, int, int]],
        min_bytes: int,
        max_wait_ms: int,
        on_ready: Callable[[], None],
        news: News[Any] | None = None,
    ) -> FetchWait:
        """Park a long poll. At the bound it is answered at once, empty, which is what a time-out would give."""

        def counted() -> None:
            self.fetch_waits -= 1
            on_ready()

        self.fetch_waits += 1
        wait = FetchWait(watched, min_bytes, counted, news)
        if self.parked > self.max_parked:
            wait.finish()
        else:
            wait.timer = self._timers.call_later(max_wait_ms / 1000, wait.finish)
        return wait

    def cancel(self, wait: OffsetWait | FetchWait) -> None:
        """Forget a wait whose connection closed."""
        if wait.done:
            return
        if isinstance(wait, FetchWait):
            self.fetch_waits -= 1
        else:
            self._offset_waits -= 1
        wait.cancel()

    def _counted_offset(self, on_done: Callable[[list[int]], None]) -> Callable[[list[int]], None]:
        def counted(errors: list[int]) -> None:
            self._offset_waits -= 1
            on_done(errors)

        return counted

    def _arm(self, wait: OffsetWait, timeout_ms: int, empty: bool) -> None:
        if wait.done:
            return
        if empty or self.parked > self.max_parked:
            wait.expire()
        else:
            wait.timer = self._timers.call_later(max(timeout_ms, 0) / 1000, wait.expire)
