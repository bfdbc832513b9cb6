"""What only the embedded store promises: durability, one owner, sessions that end with the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.store.embedded import SCHEMA_VERSION, EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import Check, ConnectionLost, Create, NoNode, SessionExpired, SessionState, SetData
from penstock.store.subscriptions import wait_until_deleted


def test_everything_but_ephemerals_survives(tmp_path: Path) -> None:
    async def life(number: int) -> None:
        store = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db", ManualClock(1000 + number)))
        await store.start()
        if number == 0:
            await store.create("/kept", b"data")
            await store.set("/kept", b"newer")
            await store.create("/kept/n_", sequential=True)
            await store.create("/mine", ephemeral=True)
        else:
            node = await store.get("/kept")
            assert (node.data, node.stat.version, node.stat.ctime_ms) == (b"newer", 1, 1000)
            assert await store.exists("/mine") is None
            assert await store.children("/") == ["kept"]
            assert await store.create("/kept/n_", sequential=True) == "/kept/n_0000000001"
        await store.close()

    asyncio.run(life(0))
    asyncio.run(life(1))


def test_zxids_and_sessions_never_repeat_across_lives(tmp_path: Path) -> None:
    async def life() -> tuple[int, int]:
        store = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        await store.start()
        await store.create("/broker", ephemeral=True)
        stat = await store.exists("/broker")
        assert stat is not None
        epoch, session = stat.czxid, store.session_id
        await store.close()
        return epoch, session

    lives = [asyncio.run(life()) for _ in range(3)]
    assert [e for e, _ in lives] == sorted({e for e, _ in lives})
    assert len({s for _, s in lives}) == 3


def test_a_process_that_is_killed_loses_nothing_it_was_told_is_written(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, pathlib
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
async def main():
    store = EmbeddedStore(EmbeddedDatabase(pathlib.Path({str(tmp_path / "store.db")!r})))
    await store.start()
    for number in range(50):
        await store.create(f"/n{{number:02d}}", b"x" * number)
        print(number, flush=True)
    await store.create("/session", ephemeral=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == -9 and len(told.stdout.split()) == 50

    async def after() -> None:
        store = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        await store.start()
        assert await store.children("/") == [f"n{number:02d}" for number in range(50)]
        await store.close()

    asyncio.run(after())


def test_a_second_process_is_turned_away(tmp_path: Path) -> None:
    async def story() -> None:
        owner = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        await owner.start()
        intruder = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        with pytest.raises(ConnectionLost, match="another broker"):
            await intruder.start()
        await owner.create("/still-works")
        await owner.close()
        await intruder.start()
        assert await intruder.exists("/still-works") is not None
        await intruder.close()

    asyncio.run(story())


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(ConnectionLost, match=r"store\.db"):
        asyncio.run(EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db")).start())


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(ConnectionLost, match="newer release"):
        asyncio.run(EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db")).start())


def test_an_expired_session_is_over_until_a_new_one_begins() -> None:
    async def story() -> None:
        database = EmbeddedDatabase()
        store, witness = EmbeddedStore(database), EmbeddedStore(database)
        await store.start()
        await witness.start()
        states: list[SessionState] = []
        store.listen(states.append)
        first = store.session_id
        fired: list[object] = []
        await store.create("/mine", ephemeral=True)
        await store.get("/mine", fired.append)
        await store.expire()
        assert await witness.exists("/mine") is None
        with pytest.raises(SessionExpired):
            await store.get("/")
        await store.restart_session()
        assert store.session_id != first
        with pytest.raises(NoNode):
            await store.get("/mine")
        assert states == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert fired == [], "watches of a dead session never fire"

    asyncio.run(story())


def test_a_caller_that_gives_up_does_not_tear_a_write(tmp_path: Path) -> None:
    async def story() -> None:
        database = EmbeddedDatabase(tmp_path / "store.db")
        store = EmbeddedStore(database)
        await store.start()
        for number in range(20):
            task = asyncio.ensure_future(store.multi([Create(f"/a{number}"), Create(f"/b{number}")]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.create("/last")
        names = await store.children("/")
        await store.close()
        again = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        await again.start()
        assert await again.children("/") == names
        assert {n[1:] for n in names if n[0] == "a"} == {n[1:] for n in names if n[0] == "b"}
        await again.close()

    asyncio.run(story())


def test_a_transaction_sees_its_own_steps() -> None:
    async def story() -> None:
        store = EmbeddedStore(EmbeddedDatabase())
        await store.start()
        await store.multi([Create("/a"), Create("/a/b", b"1"), SetData("/a/b", b"2", 0), Check("/a/b", 1)])
        assert (await store.get("/a/b")).data == b"2"
        await store.close()

    asyncio.run(story())


def test_who_waited_for_a_node_to_go_leaves_no_watch_behind() -> None:
    """Each deleted topic is waited for: what stayed here would be there for as long as the broker lives."""

    async def story() -> None:
        store = EmbeddedStore(EmbeddedDatabase())
        await store.start()
        await store.create("/going")
        waiting = asyncio.ensure_future(wait_until_deleted(store, "/going", 60))
        await asyncio.sleep(0)
        await store.delete("/going")
        assert await waiting
        assert await wait_until_deleted(store, "/never/was", 60)
        assert vars(store._watches) == {"_node": {}, "_children": {}}
        await store.close()

    asyncio.run(story())
