"""ACLs in the store: Kafka's nodes, word for word, and every broker learns of a change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.clock import SystemClock
from penstock.security.acl_model import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from penstock.security.acl_store import AclStore, name_to_node, node_to_name
from penstock.security.acls import AclSet
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore

READ = AclBinding(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:anna", "*", Operation.READ, Permission.ALLOW)
OWN = AclBinding(
    ResourceType.TRANSACTIONAL_ID, "shop-", PatternType.PREFIXED, "User:bob", "10.0.0.1", Operation.ALL, Permission.DENY
)


class Follower:
    """One broker's view."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self.tree = EmbeddedStore(database)
        self.changed = asyncio.Event()
        self.acls = AclStore(self.tree, SystemClock(), self._take)

    def _take(self, _: AclSet) -> None:
        self.changed.set()

    async def __aenter__(self) -> Follower:
        await self.tree.start()
        await self.acls.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.acls.stop()
        await self.tree.close()

    async def until(self, holds: Callable[[AclSet], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds(self.acls.acls):
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def database(tmp_path: Path) -> EmbeddedDatabase:
    return EmbeddedDatabase(tmp_path / "store.db")


def test_the_nodes_are_kafkas(database: EmbeddedDatabase) -> None:
    async def story() -> None:
        async with Follower(database) as broker:
            await broker.acls.add([READ, OWN])
            literal = json.loads((await broker.tree.get("/kafka-acl/Topic/orders")).data)
            prefixed = json.loads((await broker.tree.get("/kafka-acl-extended/prefixed/TransactionalId/shop-")).data)
            assert literal == {
                "version": 1,
                "acls": [{"principal": "User:anna", "permissionType": "Allow", "operation": "Read", "host": "*"}],
            }
            assert prefixed["acls"] == [
                {"principal": "User:bob", "permissionType": "Deny", "operation": "All", "host": "10.0.0.1"}
            ]
            (note,) = await broker.tree.children("/kafka-acl-changes")
            assert note == "acl_changes_0000000000"
            assert (await broker.tree.get(f"/kafka-acl-changes/{note}")).data == b"TOPIC:orders"
            (extended,) = await broker.tree.children("/kafka-acl-extended-changes")
            body = json.loads((await broker.tree.get(f"/kafka-acl-extended-changes/{extended}")).data)
            assert body == {
                "version": 1, "resourceType": "TRANSACTIONAL_ID", "name": "shop-", "patternType": "PREFIXED",
            }  # fmt: skip

            assert await broker.acls.remove([AclFilter(name="orders"), AclFilter()]) == [[READ], [OWN]]
            assert await broker.tree.exists("/kafka-acl/Topic/orders") is None, "no rule is left, so no node is"

    asyncio.run(story())


def test_every_broker_learns_of_a_change_and_a_new_one_reads_all(database: EmbeddedDatabase) -> None:
    async def story() -> None:
        async with Follower(database) as first, Follower(database) as second:
            await first.acls.add([READ, OWN])
            assert set(first.acls.acls) == {READ, OWN}, "whoever writes sees it at once"
            await second.until(lambda acls: set(acls) == {READ, OWN})
            async with Follower(database) as third:
                assert set(third.acls.acls) == {READ, OWN}
            await second.acls.remove([AclFilter(principal="User:anna")])
            await first.until(lambda acls: set(acls) == {OWN})

    asyncio.run(story())


def test_brokers_that_write_at_the_same_time_lose_nothing(database: EmbeddedDatabase) -> None:
    def of(user: int) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC, "orders", PatternType.LITERAL, f"User:{user}", "*", Operation.READ, Permission.ALLOW
        )

    async def story() -> None:
        async with Follower(database) as first, Follower(database) as second:
            await asyncio.gather(*((first, second)[user % 2].acls.add([of(user)]) for user in range(20)))
            wanted = {of(user) for user in range(20)}
            await first.until(lambda acls: set(acls) == wanted)
            await second.until(lambda acls: set(acls) == wanted)

    asyncio.run(story())


def test_rules_that_cannot_be_read_close_their_resource(database: EmbeddedDatabase) -> None:
    async def story() -> None:
        async with Follower(database) as broker:
            await broker.tree.create("/kafka-acl/Topic/broken", b'{"version":1,"acls":[{"principal":3}]}')
            await broker.tree.create("/kafka-acl-changes/acl_changes_", b"TOPIC:broken", sequential=True)
            await broker.until(lambda acls: len(acls) == 1)
            (rule,) = broker.acls.acls
            assert (rule.name, rule.permission, rule.operation) == ("broken", Permission.DENY, Operation.ALL)

    asyncio.run(story())


@pytest.mark.parametrize(
    "name", ["orders", "*", "a/b", "..", ".", "50%", "%2F", "ünïcode", "a\nb", "\U0001f600", "x y"]
)
def test_every_name_has_a_node(name: str) -> None:
    node = name_to_node(name)
    assert "/" not in node and node not in (".", "..") and node.isprintable()
    assert node_to_name(node) == name
    if name in ("orders", "*", "ünïcode", "x y"):
        assert node == name, "as Kafka names it"
