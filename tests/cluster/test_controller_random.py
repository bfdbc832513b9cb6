"""Any order of events keeps the controller's invariants, and a controller that takes over agrees with the last one."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.cluster.controller import ControllerPolicy
from penstock.cluster.events import (
    AlterPartitions,
    AlterReassignments,
    ControlledShutdown,
    DeletionsRequested,
    ElectionKind,
    ElectLeaders,
    ImbalanceCheck,
    IsrChange,
    IsrMember,
    ReplicasFailed,
)
from tests.cluster.world import World

BROKERS = (1, 2, 3, 4)
broker_ids = st.sampled_from(BROKERS)
replica_lists = st.lists(broker_ids, min_size=1, max_size=3, unique=True).map(tuple)
names = st.sampled_from(["a", "b"])


class ControllerLife(RuleBasedStateMachine):
    """`World.check` runs after every event: ISR ⊆ replicas, live leaders in the ISR, one leader per epoch, store =
    image."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(*BROKERS, policy=ControllerPolicy(leader_imbalance_percent=0))

    def place(self, name: str) -> bool:
        return name in self.world.image.topics

    @rule(name=names, replicas=st.lists(replica_lists, min_size=1, max_size=2))
    def create(self, name: str, replicas: list[tuple[int, ...]]) -> None:
        if not self.place(name) and name not in self.world.state.deletions:
            self.world.create_topic(name, *replicas)

    @rule(name=names, replicas=replica_lists)
    def grow(self, name: str, replicas: tuple[int, ...]) -> None:
        if self.place(name) and len(self.world.image.topics[name].partitions) < 3:
            self.world.grow_topic(name, replicas)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if self.place(name):
            self.world._ensure(f"/admin/delete_topics/{name}")
            self.world.happen(DeletionsRequested((name,)))

    @rule(broker_id=broker_ids)
    def acknowledge(self, broker_id: int) -> None:
        if broker_id in self.world.epochs:
            self.world.acknowledge(broker_id)

    @rule(broker_id=broker_ids)
    def die(self, broker_id: int) -> None:
        if broker_id in self.world.epochs:
            self.world.brokers_down(broker_id)

    @rule(broker_id=broker_ids, after=st.sampled_from(["kill", "clean stop", "session"]))
    def register(self, broker_id: int, after: str) -> None:
        self.world.brokers_up(broker_id, after=after if broker_id in self.world.incarnations else "kill")

    @rule(broker_id=broker_ids)
    def leave(self, broker_id: int) -> None:
        self.world.happen(ControlledShutdown(broker_id, self.world.epochs.get(broker_id, 0)))

    @rule(name=names, index=st.integers(0, 2), isr=replica_lists, drift=st.integers(-1, 0))
    def alter_isr(self, name: str, index: int, isr: tuple[int, ...], drift: int) -> None:
        p = self.world.image.partition(name, index)
        if p is None or p.leader < 0:
            return
        wanted = tuple(dict.fromkeys((p.leader, *isr)))
        members = tuple(IsrMember(b, self.world.epochs.get(b, 1)) for b in wanted)
        change = IsrChange(index, p.leader_epoch + drift, p.partition_epoch, members, topic=name)
        self.world.happen(AlterPartitions(p.leader, self.world.epochs.get(p.leader, 0), (change,)))

    @rule(kind=st.sampled_from(list(ElectionKind)))
    def elect(self, kind: ElectionKind) -> None:
        self.world.happen(ElectLeaders(kind, None))

    @rule(name=names, index=st.integers(0, 2), wanted=st.none() | replica_lists)
    def reassign(self, name: str, index: int, wanted: tuple[int, ...] | None) -> None:
        self.world.happen(AlterReassignments({(name, index): wanted}))

    @rule(broker_id=broker_ids, name=names)
    def lose_disk(self, broker_id: int, name: str) -> None:
        self.world.happen(ReplicasFailed(broker_id, ((name, 0),)))

    @rule(value=st.sampled_from(["true", "false"]), name=names)
    def configure(self, name: str, value: str) -> None:
        if self.place(name):
            self.world.configure("topic", name, unclean_leader_election_enable=value)

    @rule(min_isr=st.sampled_from(["1", "2", "3"]), name=names)
    def set_min_isr(self, name: str, min_isr: str) -> None:
        if self.place(name):
            self.world.configure("topic", name, min_insync_replicas=min_isr)

    @rule()
    def balance(self) -> None:
        self.world.happen(ImbalanceCheck())

    def has_failed_disks(self) -> bool:
        """A new controller hears of failed directories again from the brokers, not from the tree."""
        return any(p.offline for t in self.world.image.topics.values() for p in t.partitions.values())

    @precondition(lambda self: not self.has_failed_disks())
    @rule()
    def fail_over(self) -> None:
        self.world.reload()

    @invariant()
    def whoever_could_lead_does(self) -> None:
        for where, p in [((t.name, i), p) for t in self.world.image.topics.values() for i, p in t.partitions.items()]:
            candidates = [
                r
                for r in (*p.isr, *p.eligible)
                if r in self.world.image.brokers
                and not self.world.image.brokers[r].shutting_down
                and r not in p.offline
            ]
            assert p.leader >= 0 or not candidates, f"{where} has no leader although {candidates} could lead"


ControllerLife.TestCase.settings = settings(max_examples=100, stateful_step_count=35, deadline=None)
TestControllerLife = ControllerLife.TestCase
