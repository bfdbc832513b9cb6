"""Cuts between the controller and brokers that all keep the store: clients must not wait for as long as they last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from penstock.cluster.image import NO_LEADER
from penstock.cluster.liveness import Liveness
from penstock.testing.simulation.clients import Producer
from penstock.testing.simulation.invariants import Checker
from penstock.testing.simulation.node import SimCluster, SimNode
from penstock.testing.simulation.run import TOPIC, Simulation, _close
from penstock.testing.simulation.virtual_loop import VirtualLoop
from penstock.testing.simulation.world import World

WHERE = (TOPIC, 0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Cut(Simulation):
    """Three brokers, one partition, one producer; `cut` is made when all is well and stays."""

    def __init__(self, seed: int, loop: VirtualLoop, cut: Callable[[SimCluster, int, int], None]) -> None:
        world = World(seed, loop)
        super().__init__(world, Checker(world.log), 0.0, partitions=1)
        self.node_count = 3
        self._cut = cut
        self.acknowledged_behind_the_cut = 0
        self.fenced: set[int] = set()

    async def run(self) -> None:
        self._create_topic(TOPIC, 1)
        for node_id in (1, 2, 3):
            node = self.cluster.nodes[node_id] = SimNode(node_id, self.cluster)
            node.boot()
        producer = Producer(1, self.cluster, WHERE)
        self.world.spawn(producer.run())
        await self._watch(6.0)
        controller = next(n for n in self.cluster.nodes.values() if n.active_controller is not None)
        state, _ = self._recorded(WHERE)
        assert state is not None and state.leader != NO_LEADER
        self._cut(self.cluster, controller.id, state.leader)
        await self._watch(20.0)
        before = self.checker.acknowledged_count
        await self._watch(10.0)
        self.acknowledged_behind_the_cut = self.checker.acknowledged_count - before
        images = [node.member.image for node in self.cluster.nodes.values()]
        newest = max(images, key=lambda image: (image.controller_epoch, image.version))
        self.fenced = {i for i, b in newest.brokers.items() if b.fenced}


def played(seed: int, cut: Callable[[SimCluster, int, int], None]) -> Cut:
    loop = VirtualLoop()
    asyncio.set_event_loop(None)
    simulation = Cut(seed, loop, cut)
    try:
        loop.run_until_complete(simulation.run())
    finally:
        _close(loop)
    return simulation


def _leader_from_controller(cluster: SimCluster, controller: int, leader: int) -> None:
    other = next(n for n in cluster.nodes if n not in (controller, leader))
    cluster.world.cut(controller, leader if leader != controller else other)


def _controller_from_everybody(cluster: SimCluster, controller: int, leader: int) -> None:
    for other in cluster.nodes:
        if other != controller:
            cluster.world.cut(controller, other)


def _leader_hears_but_is_not_heard(cluster: SimCluster, controller: int, leader: int) -> None:
    for other in cluster.nodes:
        if other != leader:
            cluster.world.cut_one_way(leader, other)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cut", [_leader_from_controller, _controller_from_everybody, _leader_hears_but_is_not_heard])
def test_records_are_acknowledged_while_the_cut_lasts(cut: Callable[[SimCluster, int, int], None], seed: int) -> None:
    assert played(seed, cut).acknowledged_behind_the_cut > 0


def test_without_liveness_of_its_own_the_controller_would_be_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Liveness, "silent", lambda self, others, now_s: {})
    assert any(played(seed, _leader_hears_but_is_not_heard).acknowledged_behind_the_cut == 0 for seed in range(4))
