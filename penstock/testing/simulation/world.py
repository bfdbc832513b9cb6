"""One random source, the state of the network, and the trace of what happened."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.client.errors import ConnectionLost, RequestTimedOut

if TYPE_CHECKING:
    from penstock.testing.simulation.virtual_loop import VirtualLoop

TRACE_LINES = 600
STORE = "store"
EPOCH_MS = 1_700_000_000_000
T = TypeVar("T")
Party = int | str


class Process(Protocol):
    """One life of a node or a client: ends with a crash, may be paused."""

    name: Party

    @property
    def alive(self) -> bool: ...

    async def gate(self) -> None:
        """Returns when this process may run: at once, after a pause, or never once it is dead."""


class World:
    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = loop
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.drop_probability = 0.0
        self.late_probability = 0.0
        self.max_delay = 0.004
        self.messages = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self._cut: set[tuple[Party, Party]] = set()

    @property
    def now(self) -> float:
        return self.loop.time()

    def log(self, line: str) -> None:
        self.trace.append(f"{self.now:9.4f} {line}")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # -- network -------------------------------------------------------------------------------------------------

    def cut(self, one: Party, other: Party) -> None:
        self._cut.add((one, other))
        self._cut.add((other, one))

    def cut_one_way(self, source: Party, target: Party) -> None:
        self._cut.add((source, target))

    def heal(self) -> None:
        self._cut.clear()

    def connected(self, source: Party, target: Party) -> bool:
        return (source, target) not in self._cut

    def delay(self) -> float:
        """Mostly quick, at times slow: messages overtake each other."""
        if self.random.random() < 0.03:
            return self.random.uniform(0.0, self.max_delay * 30)
        return self.random.uniform(0.0001, self.max_delay)

    def arrives(self, source: Party, target: Party) -> bool:
        if source == target:
            return True
        return self.connected(source, target) and self.random.random() >= self.drop_probability

    async def call(
        self,
        source: Process,
        target: Process | None,
        handler: Callable[[], Awaitable[T]],
        timeout_s: float,
    ) -> T:
        """Ask a process and wait for its answer. Both ways may be slow or lost; a dead target refuses quickly.

        A request that is given up may still arrive and be handled: that is what makes zombies dangerous.
        """
        self.messages += 1
        await source.gate()
        await asyncio.sleep(self.delay())
        if target is None or not target.alive:
            await source.gate()
            raise ConnectionLost("nobody listens there")
        if not self.arrives(source.name, target.name):
            if self.random.random() < self.late_probability:
                self.spawn(self._late(target, handler))
            await asyncio.sleep(timeout_s)
            await source.gate()
            raise RequestTimedOut("no answer: the request was lost")
        work = self.spawn(self._handle(target, handler))
        done, _ = await asyncio.wait([work], timeout=timeout_s)
        if not done:
            await source.gate()
            raise RequestTimedOut("no answer in time")
        await asyncio.sleep(self.delay())
        if not self.arrives(target.name, source.name):
            await asyncio.sleep(timeout_s)
            await source.gate()
            raise RequestTimedOut("no answer: it was lost")
        await source.gate()
        answer: T = work.result()
        return answer

    async def _handle(self, target: Process, handler: Callable[[], Awaitable[T]]) -> T:
        await target.gate()
        answer = await handler()
        await target.gate()
        return answer

    async def _late(self, target: Process, handler: Callable[[], Awaitable[T]]) -> None:
        await asyncio.sleep(self.random.uniform(0.1, 5.0))
        try:
            await self._handle(target, handler)
        except (ConnectionLost, RequestTimedOut):
            return


class WorldClock:
    """A `Clock` on virtual time; nodes differ in their wall clocks, which may also be stepped."""

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return int(self._world.now * 1000) + EPOCH_MS + self.skew_ms

    def monotonic(self) -> float:
        return self._world.now
