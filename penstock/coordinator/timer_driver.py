"""Runs the timers of a coordinator's shards when they are due, and again if what they decided could not be stored.

Nobody repeats the request of a timer: without a second try a member whose session expired while the log refused would
keep its partitions for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from penstock.base.clock import Clock
from penstock.coordinator.shards import Command, Done, Shard, ShardState, Write
from penstock.coordinator.timers import Timer
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

FIRST_RETRY_MS = 500.0
LONGEST_RETRY_MS = 16_000.0


class TimerDriver:
    """`write(partition, key, command, done)` runs a command on a shard."""

    def __init__(
        self,
        name: str,
        shards: Mapping[int, Shard[Any]],
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], Any],
        write: Callable[[int, Hashable, Command, Done], None],
    ) -> None:
        self._name = name
        self._shards = shards
        self._clock = clock
        self._call_later = call_later
        self._write = write
        self._armed_ms: float | None = None
        self._armed: Any = None

    def now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def arm(self) -> None:
        """Wake up for the earliest timer of all shards."""
        deadlines = [at_ms for shard in self._shards.values() if (at_ms := shard.timers.next_deadline_ms()) is not None]
        if deadlines:
            self.arm_for(min(deadlines))

    def arm_for(self, earliest_ms: float) -> None:
        if self._armed_ms is not None and self._armed_ms <= earliest_ms:
            return
        if self._armed is not None:
            self._armed.cancel()
        self._armed_ms = earliest_ms
        self._armed = self._call_later(max(0.0, earliest_ms - self.now_ms()) / 1000, self._wake)

    def _wake(self) -> None:
        self._armed = self._armed_ms = None
        self.run_due()
        self.arm()

    def run_due(self) -> None:
        now_ms = self.now_ms()
        for shard in list(self._shards.values()):
            if shard.state is ShardState.ACTIVE:
                for timer in shard.timers.pop_due(now_ms):
                    self._run(shard, timer)

    def _run(self, shard: Shard[Any], timer: Timer) -> None:
        def command(machine: Any, now_ms: int) -> Write:
            write: Write = timer.command(machine, now_ms) if timer.is_wanted else Write()
            return write

        def done(error: ErrorCode, _response: Any) -> None:
            shard.timers.done(timer)
            retry_ms = shard.timer_retries_ms.pop(timer.name, FIRST_RETRY_MS)
            if error is ErrorCode.NONE or not timer.is_wanted or self._shards.get(shard.partition) is not shard:
                return
            logger.warning(
                "%s-%d: what timer %s decided is not stored (%s), trying again in %d ms",
                self._name, shard.partition, timer.name, error.name, retry_ms,
            )  # fmt: skip
            shard.timer_retries_ms[timer.name] = min(retry_ms * 2, LONGEST_RETRY_MS)
            deadline_ms = self.now_ms() + retry_ms
            shard.timers.schedule(timer.name, deadline_ms, timer.key, timer.command)
            self.arm_for(deadline_ms)

        self._write(shard.partition, timer.key, command, done)
