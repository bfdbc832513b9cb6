"""One sequence on one of the two sides: its ids and epochs, and the questions that all kinds of sequences share."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from penstock.client.connection import Connection
from penstock.protocol.errors import ErrorCode

TOPIC = "lockstep"
PARTITIONS = 60  # which every number of members divides: who gets one more is the assignor's own affair
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.partition.verification.enable": "true",
}
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
Answer = tuple[Any, ...]


class Difference(Exception):
    """The two sides do not say the same."""


class Ids:
    """Ids of one side by the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers)) if value not in (-1, "", None) else -1


class Epochs:
    """Group and member epochs of one side: compared by their order, for Kafka begins at another one."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    def of(self, epoch: int) -> int:
        if epoch <= 0:
            return epoch
        if epoch not in self._seen:
            self._seen.append(epoch)
            self._seen.sort()
        return self._seen.index(epoch) + 1


class Side(ABC):
    """What all kinds share. `way_of` is a connection of a member's own: a request that waits holds up no others."""

    def __init__(
        self, connection: Connection, name: str, topic_id: UUID, open_more: Callable[[], Awaitable[Connection]]
    ) -> None:
        self.connection = connection
        self.name = name
        self.topic_id = topic_id
        self.ids = Ids()
        self.epochs = Epochs()
        self._open_more = open_more
        self._ways: dict[str, Connection] = {}

    async def prepare(self) -> None:  # noqa: B027 - most need nothing
        """What a sequence needs before its first step."""

    @abstractmethod
    async def state(self) -> Answer:
        """What administrators see after each step."""

    async def choices(self) -> Any:
        """What this side was free to choose (which partition goes to whom); None where there is no such freedom."""
        return None

    async def settled(self) -> Answer:
        """Where it comes to rest when everybody does as he is told, whatever was chosen."""
        return ()

    async def way_of(self, member: str) -> Connection:
        if member not in self._ways:
            self._ways[member] = await self._open_more()
        return self._ways[member]

    def close(self) -> None:
        for connection in (self.connection, *self._ways.values()):
            connection.close()

    async def ask(
        self, api: str, request: Any, version: int, code: Callable[[Any], int], over: Connection | None = None
    ) -> Any:
        """The answer, once it is none of those that only say "come again"."""
        deadline = time.monotonic() + 60
        while True:
            answer = await (over or self.connection).request(api, request, version)
            if ErrorCode(code(answer)) not in AGAIN or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.01)


Step = tuple[str, Callable[[Any], Awaitable[Answer]]]
MakeStep = Callable[[random.Random], Step]
