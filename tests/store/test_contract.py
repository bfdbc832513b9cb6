"""What every tree store promises, told as small stories and run against each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.store.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    InvalidPath,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    SetData,
    TreeStore,
    WatchEvent,
)
from penstock.store.subscriptions import ChildrenSubscription, wait_until_deleted

StoreMaker = Callable[[], TreeStore]


@asynccontextmanager
async def opened(new_session: StoreMaker) -> AsyncIterator[TreeStore]:
    store = new_session()
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_node_is_created_read_changed_and_deleted(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            assert await store.create("/a", b"one") == "/a"
            node = await store.get("/a")
            assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"one", 0, 0)
            stat = await store.set("/a", b"two", version=0)
            assert stat.version == 1
            assert (await store.get("/a")).data == b"two"
            await store.delete("/a", version=1)
            assert await store.exists("/a") is None
            with pytest.raises(NoNode):
                await store.get("/a")

    asyncio.run(story())


def test_after_a_sync_the_newest_is_read(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as writer, opened(new_session) as reader:
            await writer.create("/a", b"one")
            await writer.set("/a", b"two")
            await reader.sync()
            assert (await reader.get("/a")).data == b"two"

    asyncio.run(story())


def test_versions_guard_changes(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/a", b"0")
            await store.set("/a", b"1")
            with pytest.raises(BadVersion):
                await store.set("/a", b"lost", version=0)
            with pytest.raises(BadVersion):
                await store.delete("/a", version=7)
            assert (await store.get("/a")).data == b"1"

    asyncio.run(story())


def test_errors_say_what_stood_in_the_way(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/a")
            with pytest.raises(NodeExists):
                await store.create("/a")
            with pytest.raises(NoNode):
                await store.create("/missing/child")
            with pytest.raises(NoNode):
                await store.children("/missing")
            with pytest.raises(NoNode):
                await store.set("/missing", b"")
            await store.create("/a/b")
            with pytest.raises(NotEmpty):
                await store.delete("/a")
            for path in ("relative", "/trailing/", "/double//slash", "/../up"):
                with pytest.raises(InvalidPath):
                    await store.create(path)

    asyncio.run(story())


def test_children_are_listed_in_order(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.ensure_path("/x/y")
            for name in ("b", "c", "a"):
                await store.create(f"/x/y/{name}")
            assert await store.children("/x/y") == ["a", "b", "c"]
            await store.delete_tree("/x")
            assert await store.exists("/x") is None

    asyncio.run(story())


def test_sequential_names_never_repeat(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/q")
            first = await store.create("/q/n_", sequential=True)
            second = await store.create("/q/n_", sequential=True)
            assert (first, second) == ("/q/n_0000000000", "/q/n_0000000001")
            await store.delete(second)
            assert await store.create("/q/n_", sequential=True) == "/q/n_0000000002"
            stat = await store.exists("/q")
            assert stat is not None and (stat.cversion, stat.children_count) == (4, 2)

    asyncio.run(story())


def test_ephemeral_nodes_die_with_their_session(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as witness:
            async with opened(new_session) as owner:
                await owner.create("/mine", b"", ephemeral=True)
                stat = await witness.exists("/mine")
                assert stat is not None and stat.ephemeral_owner == owner.session_id
                with pytest.raises(NoChildrenForEphemerals):
                    await owner.create("/mine/child")
            assert await wait_until_deleted(witness, "/mine", 20)

    asyncio.run(story())


def test_a_new_life_of_a_node_has_a_larger_czxid(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/a")
            first = await store.exists("/a")
            await store.delete("/a")
            await store.create("/a")
            second = await store.exists("/a")
            assert first is not None and second is not None and second.czxid > first.czxid
            assert second.ctime_ms > 0

    asyncio.run(story())


def test_multi_happens_together(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/epoch", b"1")
            results = await store.multi(
                [Check("/epoch", 0), Create("/t"), Create("/t/s_", b"x", sequential=True), SetData("/epoch", b"2", 0)]
            )
            assert results[:3] == [None, "/t", "/t/s_0000000000"]
            assert (await store.get("/epoch")).data == b"2"

    asyncio.run(story())


def test_multi_that_fails_does_nothing_and_names_the_culprit(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/epoch", b"1")
            with pytest.raises(MultiFailed) as failed:
                await store.multi([Create("/t"), Check("/epoch", 5), Delete("/epoch")])
            assert failed.value.index == 1
            assert isinstance(failed.value.error, BadVersion)
            assert await store.exists("/t") is None
            with pytest.raises(MultiFailed) as failed:
                await store.multi([Check("/epoch", 0), Create("/t"), Create("/epoch")])
            assert failed.value.index == 2 and isinstance(failed.value.error, NodeExists)
            assert await store.exists("/t") is None

    asyncio.run(story())


def test_watches_fire_once_for_what_they_watch(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as watcher, opened(new_session) as writer:
            seen: list[tuple[str, WatchEvent]] = []
            await watcher.create("/w")
            assert await watcher.exists("/w/later", lambda e: seen.append(("exists", e))) is None
            await watcher.children("/w", lambda e: seen.append(("children", e)))
            await watcher.get("/w", lambda e: seen.append(("data", e)))
            await writer.create("/w/later")
            await eventually(lambda: len(seen) == 2)
            assert {(who, e.kind, e.path) for who, e in seen} == {
                ("exists", EventKind.CREATED, "/w/later"),
                ("children", EventKind.CHILDREN, "/w"),
            }
            await writer.create("/w/another")
            await writer.set("/w", b"changed")
            await eventually(lambda: len(seen) == 3)
            assert seen[2] == ("data", WatchEvent(EventKind.CHANGED, "/w"))
            await writer.set("/w", b"again")
            await watcher.get("/w")
            assert len(seen) == 3

    asyncio.run(story())


def test_deletion_fires_watches_on_node_and_children(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            seen: list[tuple[str, EventKind]] = []
            await store.create("/w")
            await store.get("/w", lambda e: seen.append(("data", e.kind)))
            await store.children("/w", lambda e: seen.append(("children", e.kind)))
            await store.delete("/w")
            await eventually(lambda: len(seen) == 2)
            assert sorted(seen) == [("children", EventKind.DELETED), ("data", EventKind.DELETED)]

    asyncio.run(story())


def test_a_watch_reports_what_is_already_visible(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as watcher, opened(new_session) as writer:
            await writer.create("/w", b"old")
            fired = asyncio.Event()
            await watcher.get("/w", lambda _: fired.set())
            await writer.set("/w", b"new")
            async with asyncio.timeout(20):
                await fired.wait()
            assert (await watcher.get("/w")).data == b"new"

    asyncio.run(story())


def test_subscriptions_follow_many_changes(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store, opened(new_session) as writer:
            await store.create("/list")
            seen: list[list[str]] = []
            subscription = ChildrenSubscription(store, "/list", seen.append)
            await subscription.start()
            for name in "abcde":
                await writer.create(f"/list/{name}")
            await eventually(lambda: seen[-1] == ["a", "b", "c", "d", "e"])
            await subscription.stop()
            assert seen[0] == []

    asyncio.run(story())


def test_concurrent_compare_and_set_loses_no_increment(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as one, opened(new_session) as two:
            await one.create("/counter", b"0")

            async def add(store: TreeStore, times: int) -> None:
                for _ in range(times):
                    while True:
                        node = await store.get("/counter")
                        try:
                            await store.set("/counter", str(int(node.data) + 1).encode(), node.stat.version)
                            break
                        except BadVersion:
                            continue

            await asyncio.gather(add(one, 20), add(two, 20), add(one, 20))
            assert (await one.get("/counter")).data == b"60"

    asyncio.run(story())


def test_session_state_is_told(new_session: StoreMaker) -> None:
    async def story() -> None:
        store = new_session()
        states: list[SessionState] = []
        stop_listening = store.listen(states.append)
        await store.start()
        assert store.session_state is SessionState.CONNECTED and store.session_id != 0
        await store.close()
        await store.close()
        assert states == [SessionState.CONNECTED, SessionState.CLOSED]
        stop_listening()

    asyncio.run(story())


def test_data_may_be_empty_or_large(new_session: StoreMaker) -> None:
    async def story() -> None:
        async with opened(new_session) as store:
            await store.create("/empty")
            assert (await store.get("/empty")).data == b""
            await store.create("/large", b"x" * 500_000)
            assert (await store.get("/large")).stat.data_length == 500_000

    asyncio.run(story())
