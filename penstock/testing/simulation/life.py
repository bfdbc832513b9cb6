"""The life of a simulated process: it stands still, goes on, and dies with its timers. And the settings it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Life:
    """One process of a node, from its start to its crash."""

    def __init__(self, name: int | str) -> None:
        self.name = name
        self.alive = True
        self._running = asyncio.Event()
        self._running.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    async def gate(self) -> None:
        while self.alive:
            if self._running.is_set():
                return
            await self._running.wait()
        await asyncio.get_running_loop().create_future()  # the dead do nothing


class LifeTimers:
    """Timers that do not outlive their process."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay, self._fire, callback, args)

    def _fire(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._life.alive:
            callback(*args)


class SimSettings:
    """The settings that replication reads."""

    def __init__(self, min_insync_replicas: int, log_config: Callable[[int], Any]) -> None:
        self._log_config = log_config
        self._min_insync_replicas = min_insync_replicas
        self._values: dict[str, Any] = {
            "replica.lag.time.max.ms": 2000,
            "replica.fetch.wait.max.ms": 500,
            "replica.fetch.min.bytes": 1,
            "replica.fetch.response.max.bytes": 2000,
            "replica.fetch.max.bytes": 400,
            "replica.fetch.backoff.ms": 200,
            "replica.socket.timeout.ms": 1500,
            "replication.quota.window.num": 11,
            "replication.quota.window.size.seconds": 1,
            "broker.rack": None,
            "penstock.machine": None,
            "replica.selector.class": None,
            "zookeeper.session.timeout.ms": 3000,
            "auto.leader.rebalance.enable": True,
            "leader.imbalance.check.interval.seconds": 7,
            "leader.imbalance.per.broker.percentage": 10,
            "unclean.leader.election.enable": False,
            "delete.topic.enable": True,
            "min.insync.replicas": min_insync_replicas,
            "broker.heartbeat.interval.ms": 400,
            "broker.session.timeout.ms": 2500,
            "transaction.partition.verification.enable": True,
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    node_id = -1
    inter_broker_listener = "PLAINTEXT"

    def apply_dynamic(self, *overrides: Any) -> set[str]:
        return set()

    def log_config(self, overrides: dict[str, str]) -> Any:
        return self._log_config(int(overrides.get("min.insync.replicas", self._min_insync_replicas)))
