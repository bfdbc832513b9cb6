"""Who is told, and believed, when the former writer of a transaction is shut out (KIP-939)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.broker.writer_fences import Led, fence_here, fence_writer
from penstock.cluster import znodes
from penstock.cluster.image import PartitionRegistration
from penstock.protocol.errors import ErrorCode as E
from penstock.store.interface import Create
from penstock.store.tree import Tree

PAIR = (7, 0)


class OldView:
    """A store whose reads may be behind until it is synced."""

    def __init__(self, behind: Tree, newest: Tree) -> None:
        self._tree, self._newest = behind, newest

    async def sync(self) -> None:
        self._tree = self._newest

    async def get(self, path: str) -> Any:
        return self._tree.get(path)


def tree(leader: int, leader_epoch: int) -> Tree:
    made = Tree()
    path = znodes.state_path("t", 0)
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts)):
        made.apply([Create("/" + "/".join(parts[:depth]))], 0, 0)
    state = PartitionRegistration((1, 2), (1, 2), leader, leader_epoch, 1)
    made.apply([Create(path, znodes.encode_state(state, 1))], 0, 0)
    return made


class Log:
    def __init__(self) -> None:
        self.fenced: list[tuple[int, int]] = []

    def fence_producer(self, producer_id: int, producer_epoch: int) -> None:
        self.fenced.append((producer_id, producer_epoch))


def broker(store: Any, leader_epoch: int) -> Any:
    partition = SimpleNamespace(is_leader=True, leader_epoch=leader_epoch, log=Log())
    replicas = SimpleNamespace(find=lambda topic, index: partition, partition=partition)
    return SimpleNamespace(node_id=1, store=store, replicas=replicas)


async def nobody(node_id: int) -> Any:
    raise ConnectionError(f"broker {node_id} is not there")


def test_a_leader_of_an_older_epoch_does_not_count_as_told() -> None:
    """It is deposed and does not know it; whoever leads now has to be asked."""
    here = broker(None, leader_epoch=4)
    assert fence_here(here, *PAIR, [Led("t", 0, 5)]) == [E.NOT_LEADER_OR_FOLLOWER]
    assert here.replicas.partition.log.fenced == []
    assert fence_here(here, *PAIR, [Led("t", 0, 4)]) == [E.NONE]
    assert here.replicas.partition.log.fenced == [PAIR]


def test_who_leads_is_asked_of_the_newest_state_of_the_store(monkeypatch: Any) -> None:
    """Broker 1 thinks that it leads; the store has made another one leader since."""
    monkeypatch.setattr("penstock.broker.writer_fences.PATIENCE_SECONDS", 0.05)
    here = broker(OldView(tree(1, 4), tree(2, 5)), leader_epoch=4)
    assert asyncio.run(fence_writer(here, nobody, *PAIR, {("t", 0)})) is False
    assert here.replicas.partition.log.fenced == []


def test_a_partition_that_nobody_leads_needs_no_word() -> None:
    """Whoever will lead it asks the coordinator first."""
    leaderless = tree(-1, 5)
    assert asyncio.run(fence_writer(broker(OldView(leaderless, leaderless), 4), nobody, *PAIR, {("t", 0)})) is True
