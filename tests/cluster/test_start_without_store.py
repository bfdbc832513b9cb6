"""A ZooKeeper that goes away while a broker starts delays it, but does not end it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.base.settings import Settings
from penstock.cluster import znodes
from penstock.cluster.image import Endpoint
from penstock.cluster.member import ClusterMember
from penstock.cluster.zookeeper_process import ZooKeeperProcess, ZooKeeperUnavailable
from penstock.store.interface import SessionState
from penstock.store.zookeeper import ZooKeeperStore
from penstock.testing.ports import free_port


async def eventually(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)


@pytest.mark.cluster
def test_a_broker_registers_when_zookeeper_is_back(tmp_path: Path) -> None:
    async def story(server: ZooKeeperProcess) -> None:
        settings = Settings.load(
            None,
            {"zookeeper.connect": server.connect, "zookeeper.session.timeout.ms": "30000", "broker.id": "7"},
        )
        store = ZooKeeperStore(settings)
        member = ClusterMember(settings, store)
        await member.join()
        server.stop(kill=True)
        await eventually(lambda: store.session_state is SessionState.SUSPENDED)
        registering = asyncio.create_task(member.register({"PLAINTEXT": Endpoint("127.0.0.1", 9092)}))
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(registering, 120)
        assert await store.exists(znodes.broker_path(7)) is not None
        assert 7 in member.image.brokers
        await member.leave()

    server = ZooKeeperProcess(tmp_path / "zookeeper", free_port(), tick_ms=500)
    try:
        server.start()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    try:
        asyncio.run(story(server))
    finally:
        server.stop()
