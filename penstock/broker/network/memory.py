"""The bound on memory that unfinished requests and unread answers may hold together (`queued.max.request.bytes`).

As in Kafka, a claim succeeds while anything is left, so the bound may be passed by one request: no two half-received
requests can wait for each other's memory for ever. Answers that nobody reads have a bound of their own where that
setting has none: at it the connections that hold most are closed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.network.connection import Connection


logger = logging.getLogger(__name__)

UNREAD_MAX_BYTES = 256 * 1024 * 1024
PATIENCE_SECONDS = 5.0


class RequestMemory:
    __slots__ = ("_waiting", "claimed_bytes", "limit_bytes", "unread_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # ≤ 0: no bound
        self.claimed_bytes = 0
        self.unread_bytes = 0  # of the claimed ones: answers that clients do not take
        self._waiting: deque[Connection] = deque()

    def claim(self, connection: Connection, size: int) -> bool:
        """Whether `connection` may hold `size` bytes more; if not, it is resumed when memory comes back."""
        if self.limit_bytes > 0 and self.claimed_bytes >= self.limit_bytes:
            if connection not in self._waiting:
                self._waiting.append(connection)
            return False
        self.claimed_bytes += size
        return True

    def release(self, size: int) -> None:
        self.claimed_bytes -= size
        while self._waiting and self.claimed_bytes < self.limit_bytes:
            connection = self._waiting.popleft()
            if not connection.closed:
                connection.loop.call_soon(connection.start_reading)
                return

    def hold_unread(self, connection: Connection, size: int) -> None:
        """What a connection's client has not taken is `size` bytes now."""
        change = size - connection.unread_bytes
        connection.unread_bytes = size
        self.unread_bytes += change
        if change < 0:
            self.release(-change)
        else:
            self.claimed_bytes += change

    @property
    def crowded(self) -> bool:
        """Whether unread answers take all there is."""
        return self.unread_bytes > (self.limit_bytes if self.limit_bytes > 0 else UNREAD_MAX_BYTES)

    def shed(self, stalled: Iterable[Connection], now: float) -> int:
        """Close connections whose clients do not read: those that hold most while all hold too much, those that have
        stood still for a while where others wait for memory. How many that were."""
        closed = 0
        for connection in sorted(stalled, key=lambda one: -one.unread_bytes - one.claimed_bytes):
            waited_for = bool(self._waiting) and now - connection.last_active > PATIENCE_SECONDS
            if not self.crowded and not waited_for:
                continue
            logger.warning("closing client=%s: %d bytes unread", connection.client_host, connection.unread_bytes)
            connection.close()
            closed += 1
        return closed
