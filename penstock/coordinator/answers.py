"""Answers of a coordinator: parked until the high watermark has passed the records behind them, given then, or given
up when that takes too long. Whatever a callback does wrong stays with its own request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.coordinator.shard_log import ShardLog, coordinator_error
from penstock.coordinator.shards import Command, Done, M, Parked, Shard, Write
from penstock.coordinator.timer_driver import TimerDriver
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_EXPIRY = ("runtime", "expiry of parked answers")


class Answers:
    """Of all shards of one runtime."""

    def __init__(self, name: str, log: ShardLog, timers: TimerDriver, write_timeout_ms: int) -> None:
        self._name = name
        self._log = log
        self._timers = timers
        self._write_timeout_ms = write_timeout_ms

    def park(self, shard: Shard[M], last_offset: int, write: Write, done: Done) -> None:
        """Answer when this offset is committed."""
        deadline_ms = self._timers.now_ms() + self._write_timeout_ms
        if not shard.expires:
            shard.expires = True
            shard.timers.schedule(_EXPIRY, deadline_ms, None, self._expire(shard))
            self._timers.arm_for(deadline_ms)
        shard.parked.append(Parked(last_offset, deadline_ms, write, done))

    def advance(self, shard: Shard[M]) -> None:
        """The high watermark moved: answer whom it passed."""
        if not (shard.parked or shard.overdue) or shard.flushing:
            return
        committed = self._log.committed_offset(shard.partition)
        while shard.overdue and shard.overdue[0][0] < committed:
            self.guarded(shard.overdue.popleft()[1])
        while shard.parked and shard.parked[0].last_offset < committed:
            parked = shard.parked.popleft()
            self.succeed(parked.write, parked.done)

    def _expire(self, shard: Shard[M]) -> Command:
        def expire(_machine: M, _now_ms: int) -> Write:
            now_ms = self._timers.now_ms()
            while shard.parked and shard.parked[0].deadline_ms <= now_ms:
                parked = shard.parked.popleft()
                self.fail(parked.write, parked.done, coordinator_error(ErrorCode.REQUEST_TIMED_OUT))
                if parked.write.on_failed is None and parked.write.on_committed is not None:
                    shard.overdue.append((parked.last_offset, parked.write.on_committed))
            shard.expires = bool(shard.parked)
            if shard.parked:
                shard.timers.schedule(_EXPIRY, shard.parked[0].deadline_ms, None, expire)
            return Write()

        return expire

    def succeed(self, write: Write, done: Done) -> None:
        if write.on_committed is None or self.guarded(write.on_committed):
            self.guarded(lambda: done(ErrorCode.NONE, write.response))
        else:
            self.guarded(lambda: done(ErrorCode.UNKNOWN_SERVER_ERROR, None))

    def refuse(self, write: Write, done: Done, error: ErrorCode) -> None:
        """Nothing of the write got into the log."""
        on_refused = write.on_refused
        if on_refused is not None:
            self.guarded(lambda: on_refused(error))
        self.fail(write, done, error)

    def fail(self, write: Write, done: Done, error: ErrorCode) -> None:
        on_failed = write.on_failed
        if on_failed is not None:
            self.guarded(lambda: on_failed(error))
        self.guarded(lambda: done(error, None))

    def guarded(self, callback: Callable[[], Any]) -> bool:
        """Call back on behalf of one request: whatever goes wrong there, the others are answered."""
        try:
            callback()
        except Exception:
            logger.exception("a callback failed on %s", self._name)
            return False
        return True
