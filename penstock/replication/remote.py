"""Replication with other brokers: the fetchers, the sender of ISR changes, the shrink timer and the throttles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock.base.clock import Clock
from penstock.client.connection import Connection
from penstock.log.results import LogWriteError
from penstock.replication.fetch_wire import FetchLimits
from penstock.replication.fetcher import FetcherContext, Fetchers
from penstock.replication.hosted_replicas import Replication
from penstock.replication.isr_sender import AlterPartitionCall, IsrSender
from penstock.replication.partition import IsrProposal, Partition
from penstock.replication.throttle import UNLIMITED, ReplicationQuota, throttled_partitions

logger = logging.getLogger(__name__)


class RemoteReplication(Replication):
    """In a cluster. Connections and the way to the controller are handed in by the broker."""

    def __init__(
        self,
        node_id: int,
        settings: Any,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
        connect: Callable[[int], Awaitable[Connection]],
        alter_partition: AlterPartitionCall,
        hosted: Callable[[], list[Partition]],
        on_failed: Callable[[Partition, LogWriteError], None],
    ) -> None:
        self.node_id = node_id
        self._settings = settings
        self._hosted = hosted
        samples = settings["replication.quota.window.num"], settings["replication.quota.window.size.seconds"]
        self.leader_quota: ReplicationQuota = ReplicationQuota(*samples)
        self.follower_quota = ReplicationQuota(*samples)
        self._on_failed = on_failed
        self.isr_sender = IsrSender(node_id, broker_epoch, alter_partition)
        self.fetchers = Fetchers(
            FetcherContext(
                node_id,
                broker_epoch,
                clock,
                FetchLimits(
                    settings["replica.fetch.wait.max.ms"],
                    settings["replica.fetch.min.bytes"],
                    settings["replica.fetch.response.max.bytes"],
                    settings["replica.fetch.max.bytes"],
                ),
                self.follower_quota,
                connect,
                self._disk_failed,
                settings["replica.fetch.backoff.ms"],
                settings["replica.socket.timeout.ms"] / 1000,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.isr_sender.run(), name="isr-sender"),
            loop.create_task(self._shrink_isrs(), name="isr-shrink"),
        ]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.fetchers.stop()

    @property
    def controller_out_of_reach_s(self) -> float:  # type: ignore[override]
        return self.isr_sender.failing_s

    def follow(self, partition: Partition) -> None:
        self.fetchers.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        self.fetchers.unfollow(partition)

    def broker_moved(self, broker_id: int) -> None:
        self.fetchers.broker_moved(broker_id)

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        logger.info("%r: asking for ISR %s", partition, list(proposal.isr))
        self.isr_sender.propose(partition, proposal)

    def topic_config_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        for quota, side in ((self.leader_quota, "leader"), (self.follower_quota, "follower")):
            value = overrides.get(f"{side}.replication.throttled.replicas", "")
            quota.set_topic(topic, throttled_partitions(value, self.node_id))

    def broker_config_changed(self, overrides: Mapping[str, str]) -> None:
        """The dynamic settings of this broker: the rates of the throttles."""
        for quota, side in ((self.leader_quota, "leader"), (self.follower_quota, "follower")):
            quota.bytes_per_second = int(overrides.get(f"{side}.replication.throttled.rate", UNLIMITED))

    def _disk_failed(self, partition: Partition) -> None:
        error = partition.write_error
        partition.write_error = None
        if error is not None:
            self._on_failed(partition, error)

    async def _shrink_isrs(self) -> None:
        """Twice per lag time, as Kafka does: a dead follower leaves the ISR within 1.5 times the lag time."""
        while True:
            await asyncio.sleep(self._settings["replica.lag.time.max.ms"] / 2000)
            for partition in self._hosted():
                if partition.is_leader and partition.followers:
                    partition.shrink_isr()
