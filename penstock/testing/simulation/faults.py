"""What breaks, and how often. Every choice comes from the world's one random source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cluster.controller_driver import NotController
from penstock.cluster.events import AlterReassignments, ElectionKind, ElectLeaders
from penstock.store.interface import StoreError
from penstock.testing.simulation.disk import TopicPartition
from penstock.testing.simulation.node import SimCluster, SimNode
from penstock.testing.simulation.world import STORE

if TYPE_CHECKING:
    from penstock.cluster.controller_driver import ControllerDriver


@dataclass(frozen=True)
class FaultPlan:
    """The mood of one run."""

    power_losses: bool
    disk_full: bool
    reassignments: bool
    mean_seconds: float
    min_isr_changes: bool = False
    """Never drawn: seeds that tests name would become others."""

    @classmethod
    def drawn(cls, cluster: SimCluster) -> FaultPlan:
        random = cluster.world.random
        return cls(
            power_losses=random.random() < 0.4,
            disk_full=random.random() < 0.3,
            reassignments=random.random() < 0.4,
            mean_seconds=random.choice((0.4, 1.0, 2.5)),
        )


class FaultInjector:
    def __init__(self, cluster: SimCluster, places: list[TopicPartition], plan: FaultPlan) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.places = places
        self.plan = plan
        self.active = True

    async def run(self) -> None:
        random = self.world.random
        faults = [
            (4, self._crash),
            (2, self._stop_in_peace),
            (3, self._pause),
            (3, self._cut_two),
            (3, self._cut_store),
            (2, self._isolate),
            (2, self._cut_controller_off),
            (1, self._flap),
            (2, self._bad_network),
            (2, self._lost_store_answers),
            (1, self._elect_preferred),
        ]
        if self.plan.power_losses:
            faults.append((2, self._lose_the_last))
        if self.plan.disk_full:
            faults.append((2, self._fill_disk))
        if self.plan.reassignments:
            faults.append((2, self._reassign))
        if self.plan.min_isr_changes:
            faults.append((4, self._change_min_isr))
        weighted = [fault for weight, fault in faults for _ in range(weight)]
        while self.active:
            await asyncio.sleep(random.expovariate(1 / self.plan.mean_seconds))
            if self.active:
                self.world.spawn(random.choice(weighted)())

    def _some_node(self) -> SimNode:
        return self.cluster.nodes[self.world.random.choice(sorted(self.cluster.nodes))]

    async def _crash(self) -> None:
        node = self._some_node()
        life = node.life
        if not life.alive:
            return
        node.crash(power_loss=self.plan.power_losses and self.world.random.random() < 0.4)
        await asyncio.sleep(self.world.random.choice((0.05, 1.0, 4.0, 8.0)) * self.world.random.uniform(0.5, 1.5))
        if node.life is life:
            node.boot()

    async def _stop_in_peace(self) -> None:
        node = self._some_node()
        life = node.life
        if not life.alive or life.paused or not hasattr(node.member, "controller"):
            return
        await node.stop_in_peace()
        await asyncio.sleep(self.world.random.choice((0.05, 1.0, 4.0, 8.0)) * self.world.random.uniform(0.5, 1.5))
        if node.life is life and not node.up:
            node.boot()

    async def _lose_the_last(self) -> None:
        """All but one stop in peace, the last one loses power and is the first to be back."""
        random = self.world.random
        nodes = random.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))
        *others, last = [self.cluster.nodes[node_id] for node_id in nodes]
        lives = [node.life for node in others]
        if not all(node.up and not node.life.paused and hasattr(node.member, "controller") for node in (*others, last)):
            return
        self.world.log(f"admin: everybody but {last.id} stops")
        for node in others:
            try:
                async with asyncio.timeout(8.0):
                    await node.stop_in_peace()
            except TimeoutError:
                continue
        last_life = last.life
        if last.up:
            last.crash(power_loss=True)
        await asyncio.sleep(random.uniform(0.1, 4.0))
        if last.life is last_life:
            last.boot()
        await asyncio.sleep(random.uniform(0.1, 6.0))
        for node, life in zip(others, lives, strict=True):
            if node.life is life and not node.up:
                node.boot()

    async def _pause(self) -> None:
        node = self._some_node()
        if not node.up or node.life.paused:
            return
        life = node.life
        node.pause()
        await asyncio.sleep(self.world.random.uniform(0.1, 7.0))
        if node.life is life and life.alive:
            node.resume()

    async def _cut_two(self) -> None:
        one, other = self._some_node().id, self._some_node().id
        if one == other:
            return
        if self.world.random.random() < 0.3:
            self.world.log(f"network: nothing from {one} to {other}")
            self.world.cut_one_way(one, other)
        else:
            self.world.log(f"network: {one} and {other} are cut off")
            self.world.cut(one, other)
        await self._heal_later()

    async def _cut_store(self) -> None:
        """The node runs on and serves its clients, but its session will end: a zombie."""
        node = self._some_node()
        self.world.log(f"network: {node.id} loses the store")
        self.world.cut(node.id, STORE)
        await self._heal_later()

    async def _isolate(self) -> None:
        node = self._some_node()
        self.world.log(f"network: {node.id} is isolated")
        self.world.cut(node.id, STORE)
        for other in self.cluster.nodes:
            if other != node.id:
                self.world.cut(node.id, other)
        await self._heal_later()

    async def _cut_controller_off(self) -> None:
        """From some or all of the others, both ways or one, while everybody keeps the store."""
        random = self.world.random
        found = next((n for n in self.cluster.nodes.values() if n.active_controller is not None), None)
        if found is None:
            return
        others = [node_id for node_id in sorted(self.cluster.nodes) if node_id != found.id]
        missed = random.sample(others, random.randint(1, len(others)))
        way = random.choice(("both", "from", "to"))
        self.world.log(f"network: the controller {found.id} and {missed} are cut off ({way})")
        for other in missed:
            if way != "to":
                self.world.cut_one_way(found.id, other)
            if way != "from":
                self.world.cut_one_way(other, found.id)
        await self._heal_later()

    async def _flap(self) -> None:
        """A way that comes and goes at about the pace of the time-outs."""
        random = self.world.random
        one, other = self._some_node().id, self._some_node().id
        if one == other:
            return
        for _ in range(random.randint(2, 4)):
            if not self.active:
                return
            self.world.log(f"network: {one} and {other} flap")
            self.world.cut(one, other)
            await asyncio.sleep(random.uniform(0.5, 4.0))
            self.world.heal()
            await asyncio.sleep(random.uniform(0.2, 2.0))

    async def _heal_later(self) -> None:
        await asyncio.sleep(self.world.random.uniform(0.3, 8.0))
        self.world.log("network: healed")
        self.world.heal()

    async def _bad_network(self) -> None:
        self.world.log("network: drops and delays")
        self.world.drop_probability = self.world.random.uniform(0.01, 0.2)
        self.world.late_probability = 0.5
        self.world.max_delay = self.world.random.choice((0.004, 0.05))
        await asyncio.sleep(self.world.random.uniform(0.5, 4.0))
        self.calm_network()

    def calm_network(self) -> None:
        self.world.drop_probability = 0.0
        self.world.late_probability = 0.0
        self.world.max_delay = 0.004

    async def _lost_store_answers(self) -> None:
        self.cluster.ensemble.lost_answer_probability = 0.1
        await asyncio.sleep(self.world.random.uniform(0.3, 2.0))
        self.cluster.ensemble.lost_answer_probability = 0.0

    async def _fill_disk(self) -> None:
        node = self._some_node()
        self.world.log(f"node {node.id}: disk full")
        node.disk.full = True
        await asyncio.sleep(self.world.random.uniform(0.2, 3.0))
        node.disk.full = False
        self.world.log(f"node {node.id}: space again")

    def _active_controller(self) -> ControllerDriver | None:
        active = [c for n in self.cluster.nodes.values() if (c := n.active_controller) is not None]
        return self.world.random.choice(active) if active else None

    async def _elect_preferred(self) -> None:
        controller = self._active_controller()
        if controller is not None:
            try:
                await controller.elect_leaders(ElectLeaders(ElectionKind.PREFERRED, None))
            except NotController:
                return

    async def _reassign(self) -> None:
        controller = self._active_controller()
        if controller is None:
            return
        where = self.world.random.choice(self.places)
        nodes = sorted(self.cluster.nodes)
        target = tuple(self.world.random.sample(nodes, min(3, len(nodes))))
        self.world.log(f"admin: move {where} to {target}")
        try:
            await controller.alter_reassignments(AlterReassignments({where: target}))
        except NotController:
            return

    async def _change_min_isr(self) -> None:
        node = self._some_node()
        if not node.up or node.life.paused or not hasattr(node.member, "configs"):
            return
        wanted = str(self.world.random.choice((1, 2, 3)))
        topic = self.places[0][0]
        self.world.log(f"admin: {node.id} sets min.insync.replicas to {wanted}")
        try:
            await node.member.configs.write(("topic", topic), {"min.insync.replicas": wanted})
        except StoreError:
            return  # it may have happened or not, as for any operator

    def end(self) -> None:
        """No more faults; everything broken is made whole."""
        self.active = False
        self.world.heal()
        self.calm_network()
        self.cluster.ensemble.lost_answer_probability = 0.0
        for node in self.cluster.nodes.values():
            node.disk.full = False
            if not node.up:
                node.boot()
            elif node.life.paused:
                node.resume()
