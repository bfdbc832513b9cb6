"""The bound on memory that unfinished requests may hold together (`queued.max.request.bytes`).

As in Kafka, a claim succeeds while anything is left, so the bound may be passed by one request: no two half-received
requests can wait for each other's memory for ever.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.connection import Connection


class RequestMemory:
    __slots__ = ("_waiting", "claimed_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # ≤ 0: no bound
        self.claimed_bytes = 0
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
