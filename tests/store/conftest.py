"""Stores for the contract: in memory, in a SQLite file, and on a real ZooKeeper server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.settings import Settings
from penstock.cluster.zookeeper_process import ZooKeeperProcess, ZooKeeperUnavailable
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import TreeStore
from penstock.testing.ports import free_port

StoreMaker = Callable[[], TreeStore]
_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), free_port(), tick_ms=500)
    try:
        server.start()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


def zookeeper_settings(server: ZooKeeperProcess, chroot: str = "", **more: str) -> Settings:
    given = {"zookeeper.connect": server.connect + chroot, "zookeeper.session.timeout.ms": "4000"}
    return Settings.load(None, {**given, **more})


@pytest.fixture(params=["memory", "file", "zookeeper"])
def new_session(request: pytest.FixtureRequest, tmp_path: Path) -> StoreMaker:
    """A function that makes one more session with the same, at first empty tree."""
    if request.param == "zookeeper":
        from penstock.store.zookeeper import ZooKeeperStore

        settings = zookeeper_settings(request.getfixturevalue("zookeeper"), f"/contract{next(_chroots)}")
        return lambda: ZooKeeperStore(settings)
    database = EmbeddedDatabase(tmp_path / "store.db" if request.param == "file" else None)
    return lambda: EmbeddedStore(database)
