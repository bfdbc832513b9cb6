"""Timers of a broker: the log's chores, idle connections, and a watch on how late the loop runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger(__name__)

LAG_PROBE_SECONDS = 0.25
LAG_WORTH_A_WARNING_SECONDS = 0.5
IDLE_SWEEP_SECONDS = 2.0
CERTIFICATE_SWEEP_SECONDS = 1.0


class Background:
    """Runs plain functions every so often on the loop; one that fails is logged and runs again next time."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def start(self) -> None:
        for task in self._broker.log_manager.background_tasks():
            self.every(task.name, task.interval_ms / 1000, task.run)
        self.every("idle-connections", IDLE_SWEEP_SECONDS, self._expire_idle_connections)
        self.every("certificate-files", CERTIFICATE_SWEEP_SECONDS, self._refresh_certificates)
        self._probe_at = time.monotonic() + LAG_PROBE_SECONDS
        self.every("loop-lag", LAG_PROBE_SECONDS, self._measure_lag)

    def every(self, name: str, seconds: float, run: Callable[[], object]) -> None:
        def tick() -> None:
            if self._stopped:
                return
            try:
                run()
            except Exception:
                logger.exception("background task=%s failed", name)
            if not self._stopped:
                self._handles[name] = self._loop.call_later(seconds, tick)

        self._handles[name] = self._loop.call_later(seconds, tick)

    def stop(self) -> None:
        self._stopped = True
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _expire_idle_connections(self) -> None:
        broker = self._broker
        now = broker.dispatcher.wake_up()
        max_idle_seconds = broker.settings["connections.max.idle.ms"] / 1000
        for listener in broker.listeners:
            listener.expire_idle(now, max_idle_seconds)
        broker.dispatcher.shed_unread()

    def _refresh_certificates(self) -> None:
        for listener in self._broker.listeners:
            if listener.tls is not None:
                listener.tls.refresh()
                listener.tls.warn_of_end(self._broker.clock.now_ms() / 1000)

    def _measure_lag(self) -> None:
        """How much later than asked this timer runs is how long something else held the loop."""
        now = time.monotonic()
        lag = max(now - self._probe_at, 0.0)
        self._probe_at = now + LAG_PROBE_SECONDS
        stats = self._broker.stats
        stats.loop_lag.observe(lag)
        stats.loop_lag_max.value = max(lag, stats.loop_lag_max.value)
        if lag > LAG_WORTH_A_WARNING_SECONDS:
            logger.warning("the event loop stood still for %d ms", round(lag * 1000))
