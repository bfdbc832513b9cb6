"""What only the ZooKeeper store must deal with: servers that vanish, sessions that expire, chroots, passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.settings import Settings
from penstock.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess
from penstock.store.interface import ConnectionLost, NoNode, SessionExpired, SessionState, WatchEvent
from penstock.store.zookeeper import ZooKeeperStore
from penstock.testing.ports import free_port
from tests.store.conftest import zookeeper_settings

WAIT_SECONDS = 120  # only ends a story that hangs


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def test_nobody_answers(tmp_path: Path) -> None:
    settings = Settings.load(
        None, {"zookeeper.connect": f"127.0.0.1:{free_port()}", "zookeeper.connection.timeout.ms": "500"}
    )
    with pytest.raises(ConnectionLost, match="no ZooKeeper answers"):
        asyncio.run(ZooKeeperStore(settings).start())


def test_a_chroot_is_made_and_hides_the_rest(zookeeper: ZooKeeperProcess) -> None:
    async def story() -> None:
        inside = ZooKeeperStore(zookeeper_settings(zookeeper, "/deep/down"))
        outside = ZooKeeperStore(zookeeper_settings(zookeeper))
        await inside.start()
        await outside.start()
        assert await inside.create("/n_", b"x", sequential=True) == "/n_0000000000"
        assert (await outside.get("/deep/down/n_0000000000")).data == b"x"
        fired: list[WatchEvent] = []
        await inside.get("/n_0000000000", fired.append)
        await outside.set("/deep/down/n_0000000000", b"y")
        await eventually(lambda: bool(fired))
        assert fired[0].path == "/n_0000000000"
        await inside.close()
        await outside.close()

    asyncio.run(story())


def test_a_server_that_comes_back_in_time_keeps_session_and_ephemerals(tmp_path: Path) -> None:
    async def story() -> None:
        server = ZooKeeperProcess(tmp_path / "zk", free_port(), tick_ms=500)
        server.start()
        store = ZooKeeperStore(zookeeper_settings(server, **{"zookeeper.session.timeout.ms": "30000"}))
        try:
            await store.start()
            states: list[SessionState] = []
            store.listen(states.append)
            await store.create("/mine", ephemeral=True)
            fired: list[WatchEvent] = []
            await store.get("/mine", fired.append)
            session = store.session_id
            server.stop(kill=True)
            await eventually(lambda: store.session_state is SessionState.SUSPENDED)
            with pytest.raises(ConnectionLost):
                await store.get("/mine")
            server.start()
            await eventually(lambda: store.session_state is SessionState.CONNECTED)
            assert store.session_id == session
            stat = await store.exists("/mine")
            assert stat is not None and stat.ephemeral_owner == session
            assert len(fired) == 1, "a watch that may have missed something fires after the reconnect"
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        finally:
            await store.close()
            server.stop()

    asyncio.run(story())


def test_a_session_that_expired_is_told_and_begun_anew(zookeeper: ZooKeeperProcess) -> None:
    async def story() -> None:
        store = ZooKeeperStore(zookeeper_settings(zookeeper, "/expiry"))
        await store.start()
        states: list[SessionState] = []
        store.listen(states.append)
        await store.create("/mine", ephemeral=True)
        first = store.session_id
        await _end_session_elsewhere(zookeeper, store)
        await eventually(lambda: store.session_state is SessionState.EXPIRED)
        with pytest.raises(SessionExpired):
            await store.get("/mine")
        await store.restart_session()
        assert store.session_id not in (0, first)
        with pytest.raises(NoNode):
            await store.get("/mine")
        assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        await store.close()

    asyncio.run(story())


async def _end_session_elsewhere(server: ZooKeeperProcess, store: ZooKeeperStore) -> None:
    """Another client takes the session over by its password and closes it: what an expiry looks like from inside."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=server.connect, client_id=store._client.client_id)

    def take_over_and_close() -> None:
        client.start(timeout=10)
        client.stop()
        client.close()

    await asyncio.get_running_loop().run_in_executor(None, take_over_and_close)


def test_nodes_are_protected_by_a_digest(zookeeper: ZooKeeperProcess) -> None:
    async def story() -> None:
        secret = {"penstock.zookeeper.auth": "digest:broker:secret", "zookeeper.set.acl": "true"}
        owner = ZooKeeperStore(zookeeper_settings(zookeeper, "/guarded", **secret))
        friend = ZooKeeperStore(zookeeper_settings(zookeeper, "/guarded", **secret))
        stranger = ZooKeeperStore(zookeeper_settings(zookeeper, "/guarded"))
        for store in (owner, friend, stranger):
            await store.start()
        await owner.create("/n", b"1")
        await friend.set("/n", b"2")
        assert (await stranger.get("/n")).data == b"2"
        with pytest.raises(ConnectionLost, match="NoAuth"):
            await stranger.set("/n", b"3")
        for store in (owner, friend, stranger):
            await store.close()

    asyncio.run(story())


def test_an_unknown_way_to_log_in(zookeeper: ZooKeeperProcess) -> None:
    settings = zookeeper_settings(zookeeper, **{"penstock.zookeeper.auth": "magic:word"})
    with pytest.raises(ConnectionLost, match="must begin with"):
        asyncio.run(ZooKeeperStore(settings).start())


@pytest.mark.slow
def test_an_ensemble_survives_the_loss_of_a_server(tmp_path: Path) -> None:
    members = [EnsembleMember(n, "127.0.0.1", free_port(), free_port()) for n in (1, 2, 3)]
    servers = [
        ZooKeeperProcess(
            tmp_path / f"zk{m.server_id}", free_port(), server_id=m.server_id, ensemble=members, tick_ms=500
        )
        for m in members
    ]

    async def story() -> None:
        settings = Settings.load(
            None,
            {
                "zookeeper.connect": ",".join(s.connect for s in servers),
                "zookeeper.session.timeout.ms": "20000",
            },
        )
        store = ZooKeeperStore(settings)
        await store.start()
        await store.create("/n", b"before")
        servers[2].stop(kill=True)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    await store.set("/n", b"after")
                    break
                except ConnectionLost:
                    await asyncio.sleep(0.05)
        assert (await store.get("/n")).data == b"after"
        await store.close()

    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait_until_ready()
        asyncio.run(story())
    finally:
        for server in servers:
            server.stop()


def test_ensemble_members_are_written_as_text() -> None:
    assert EnsembleMember.parse("2=host:2888:3888") == EnsembleMember(2, "host", 2888, 3888)
    with pytest.raises(ValueError, match="is not ID=HOST"):
        EnsembleMember.parse("host:2888")
