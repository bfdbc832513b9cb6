"""Nodes that cannot be read, and disks that fail while the store is away: nothing is deleted, nothing is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cluster import member as member_module
from penstock.cluster import znodes
from penstock.cluster.controller_watches import TOMBSTONE_LIFETIME_MS
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import ConnectionLost
from tests.cluster.members import Member, agree, cluster
from tests.cluster.test_membership import create

NODES = [
    pytest.param(lambda: znodes.topic_path("t"), id="topic"),
    pytest.param(lambda: znodes.state_path("t", 0), id="state"),
]


def on_one_database() -> Callable[[], EmbeddedStore]:
    database = EmbeddedDatabase()
    return lambda: EmbeddedStore(database)


async def next_controller(members: list[Member]) -> None:
    epoch = members[0].image.controller_epoch
    await members[0].store.delete(znodes.CONTROLLER)
    await agree(members, lambda m: m.image.controller_epoch > epoch)


@pytest.mark.parametrize("path", NODES)
def test_brokers_keep_a_topic_whose_node_nobody_can_read(path: Callable[[], str]) -> None:
    async def story() -> None:
        async with cluster(on_one_database(), 2) as (_, members):
            await create(members[0], "t", 1, 2)
            await create(members[0], "other", 1, 2)
            await agree(members, lambda m: m.image.topics.keys() == {"t", "other"})
            removed: list[str] = []
            for one in members:
                one.images.subscribe(lambda delta, image: removed.extend(delta.topics_removed))
            known = members[0].image.topics["t"]
            whole = (await members[0].store.get(path())).data
            await members[0].store.set(path(), whole[:-9])
            await next_controller(members)
            await agree(members, lambda m: m.image.unreadable.keys() == {"t"})
            assert all(m.image.topics["t"] == known for m in members), "it is served as before"
            await create(members[1], "third", 1, 2)
            await agree(members, lambda m: m.image.topics.keys() == {"t", "other", "third"})
            await members[0].store.set(path(), whole)
            await agree(members, lambda m: not m.image.unreadable and m.image.topics["t"].topic_id == known.topic_id)
            assert removed == []
            await members[1].topics.delete(["t"], 60_000)
            await agree(members, lambda m: "t" not in m.image.topics)
            assert set(removed) == {"t"}

    asyncio.run(story())


def test_a_disk_that_fails_while_the_store_is_away_is_reported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "RETRY_SECONDS", 0.01)
    refused: list[str] = []

    class AwayForAWhile(EmbeddedStore):
        away = False

        async def create(self, path: str, *args: Any, **options: Any) -> Any:
            if self.away and path.startswith(znodes.LOG_DIR_EVENTS):
                refused.append(path)
                self.away = len(refused) < 3
                raise ConnectionLost(path)
            return await super().create(path, *args, **options)

    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: AwayForAWhile(database), 2) as (_, members):
            await create(members[0], "t", 1, 2)
            failing = members[0].image.topics["t"].partitions[0].leader
            broken = members[failing - 1]
            assert isinstance(broken.store, AwayForAWhile)
            broken.store.away = True
            await broken.report_failed_replicas([("t", 0)])
            assert len(refused) == 3
            await agree(members, lambda m: m.image.topics["t"].partitions[0].leader == 3 - failing)

    asyncio.run(story())


def test_a_broken_replica_is_not_elected_when_its_broker_registers_again() -> None:
    async def story() -> None:
        async with cluster(on_one_database(), 2) as (_, members):
            await create(members[0], "t", 1, 1)
            holder = members[members[0].image.topics["t"].partitions[0].leader - 1]
            await holder.report_failed_replicas([("t", 0)])
            await agree(members, lambda m: m.image.topics["t"].partitions[0].leader == -1)
            led: list[int] = []
            members[0].images.subscribe(lambda delta, image: led.append(image.topics["t"].partitions[0].leader))
            epoch = holder.broker_epoch
            assert isinstance(holder.store, EmbeddedStore)
            await holder.store.expire()
            await agree(members, lambda m: holder.broker_epoch > epoch and m.image.brokers.keys() == {1, 2})
            await agree(members, lambda m: m.image.brokers[holder.node_id].epoch == holder.broker_epoch)
            await next_controller(members)
            assert set(led) == {-1}

    asyncio.run(story())


def test_a_tombstone_does_not_wait_for_ever() -> None:
    async def story() -> None:
        async with cluster(on_one_database(), 2) as (_, members):
            await create(members[0], "t", 1, 2)
            await members[1].leave()
            await agree(members[:1], lambda m: 2 not in m.image.brokers)
            await members[0].topics.delete(["t"], 60_000)
            assert await members[0].store.children(znodes.TOMBSTONES)
            controller = members[0].controller
            controller._watcher._now_ms = lambda: controller._clock.now_ms() + TOMBSTONE_LIFETIME_MS + 1000
            await next_controller(members[:1])
            assert not await members[0].store.children(znodes.TOMBSTONES)

    asyncio.run(story())
