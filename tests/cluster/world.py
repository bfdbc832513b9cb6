"""A controller core with a tree below it: events go in, writes are made as a driver makes them, invariants are
checked."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster import znodes
from penstock.cluster.controller import ControllerPolicy, ControllerState, decide, initial_state, settle
from penstock.cluster.events import (
    Answer,
    BrokersChanged,
    ConfigsChanged,
    DecisionOutput,
    Event,
    ImageAcknowledged,
    ReplicaAssignment,
    TopicRecord,
    TopicsChanged,
)
from penstock.cluster.image import (
    NO_LEADER,
    BrokerRegistration,
    ConfigKey,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
)
from penstock.cluster.loading import load_state
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import Create, Delete, SetData

SESSION = 1


class World:
    """One controller epoch. `happen` is the driver in one line: decide, write, and only then believe."""

    def __init__(self, *broker_ids: int, policy: ControllerPolicy | None = None) -> None:
        self.database = EmbeddedDatabase()
        self.tree = self.database.tree
        for path in (*znodes.PERSISTENT_PATHS, "/cluster"):
            self._ensure(path)
        self.state: ControllerState = initial_state("test-cluster", 1, 1, policy)
        self.epochs: dict[int, int] = {}
        self.incarnations: dict[int, int] = {}
        self.last_epochs: dict[int, int] = {}
        self.clean_stops: dict[int, tuple[int, int]] = {}
        self.next_epoch = 100
        self.leaders_by_epoch: dict[tuple[str, int, int], int] = {}
        self.brokers_up(*broker_ids)

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            node = "/" + "/".join(parts[:depth])
            if node not in self.tree.nodes:
                self.tree.apply([Create(node)], SESSION, 0)

    # --- events ---

    def happen(self, event: Event) -> Answer:
        decision = decide(self.state, event)
        before = self.state.image
        self._store(decision.output)
        if decision.output.delta is not None:
            assert before.apply(decision.output.delta) == decision.state.image
            assert decision.state.image.version == before.version + 1
        self.state = decision.state
        self.check()
        return decision.output.answer

    def _store(self, output: DecisionOutput) -> None:
        for write in sorted(output.writes, key=lambda write: write.stage):
            made = [o for o in write.operations if isinstance(o, Create) and not o.data and o.path in self.tree.nodes]
            self.tree.apply([o for o in write.operations if o not in made], SESSION, 0)
        for path in output.removals:
            self._remove(path)

    def _remove(self, path: str) -> None:
        if path not in self.tree.nodes:
            return
        for name in self.tree.children(path):
            self._remove(f"{path}/{name}")
        self.tree.apply([Delete(path)], SESSION, 0)

    def register(self, broker_id: int, *, after: str = "kill") -> None:
        """The broker registers (again) under a new epoch, after a "kill", a "clean stop", or in a new "session" of the
        same process. The controller is not told yet."""
        first, last = self.incarnations.get(broker_id, -1), self.last_epochs.get(broker_id, -1)
        self.next_epoch += 1
        self.epochs[broker_id] = self.last_epochs[broker_id] = self.next_epoch
        if after != "session":
            self.incarnations[broker_id] = self.next_epoch
            self.clean_stops.pop(broker_id, None)
        if after == "clean stop":
            self.clean_stops[broker_id] = (first, last)

    def brokers_up(self, *broker_ids: int, racks: Mapping[int, str] | None = None, after: str = "kill") -> None:
        """These brokers register (again): each gets a new epoch."""
        for broker_id in broker_ids:
            self.register(broker_id, after=after)
        self._tell_brokers(racks or {})

    def brokers_down(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            del self.epochs[broker_id]
        self._tell_brokers({})

    def _tell_brokers(self, racks: Mapping[int, str]) -> None:
        self.happen(BrokersChanged(self.registrations(racks)))

    def registrations(self, racks: Mapping[int, str] | None = None) -> dict[int, BrokerRegistration]:
        found = {}
        for i, epoch in sorted(self.epochs.items()):
            since, stop = self.clean_stops.get(i, (-1, -1))
            endpoints = {"PLAINTEXT": Endpoint("h", 9000 + i)}
            found[i] = BrokerRegistration(
                i,
                epoch,
                endpoints,
                (racks or {}).get(i),
                incarnation=self.incarnations[i],
                clean_since=since,
                clean_stop=stop,
            )
        return found

    def create_topic(
        self, name: str, *replicas: tuple[int, ...], configs: Mapping[str, str] | None = None
    ) -> uuid.UUID:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{self.tree.zxid}")
        assignments = {index: ReplicaAssignment(r) for index, r in enumerate(replicas)}
        self.tree.apply([Create(znodes.topic_path(name), znodes.encode_topic(topic_id, assignments))], SESSION, 0)
        self._store_config(("topic", name), configs or {})
        self.happen(TopicsChanged({name: TopicRecord(topic_id, assignments, 0)}, {name: configs or {}}))
        return topic_id

    def _store_config(self, key: ConfigKey, overrides: Mapping[str, str]) -> None:
        path = znodes.config_path(key)
        self._ensure(path)
        self.tree.apply([SetData(path, znodes.encode_config(overrides))], SESSION, 0)

    def grow_topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        node = self.tree.get(znodes.topic_path(name))
        record = znodes.decode_topic(name, node.data, node.stat.version)
        assignments = dict(record.assignments)
        for added in replicas:
            assignments[len(assignments)] = ReplicaAssignment(added)
        data = znodes.encode_topic(record.topic_id, assignments)
        self.tree.apply([SetData(znodes.topic_path(name), data)], SESSION, 0)
        self.happen(TopicsChanged({name: replace(record, assignments=assignments, version=record.version + 1)}))

    def configure(self, kind: str, name: str, **overrides: str) -> None:
        given = {key.replace("_", "."): value for key, value in overrides.items()}
        self._store_config((kind, name), given)
        self.happen(ConfigsChanged({(kind, name): given}))

    def acknowledge(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.happen(ImageAcknowledged(broker_id, self.epochs[broker_id], self.image.version))

    # --- looking ---

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        found = self.image.partition(topic, index)
        assert found is not None
        return found

    def check(self) -> None:
        """What must hold after every event."""
        for topic in self.image.topics.values():
            node = self.tree.get(znodes.topic_path(topic.name))
            record = znodes.decode_topic(topic.name, node.data, node.stat.version)
            for index, p in topic.partitions.items():
                where = f"{topic.name}-{index}: {p}"
                assert set(p.isr) <= set(p.replicas), where
                assert set(p.adding) | set(p.removing) <= set(p.replicas), where
                assert record.assignments[index] == ReplicaAssignment(p.replicas, p.adding, p.removing), where
                path = znodes.state_path(topic.name, index)
                if p.partition_epoch < 0:
                    assert p.leader == NO_LEADER and path not in self.tree.nodes, where
                    continue
                assert (p.leader == NO_LEADER) == (not p.isr), where
                assert not set(p.eligible) & set(p.isr) and set(p.eligible) <= set(p.replicas), where
                assert len(p.eligible) == len(p.eligible_epochs), where
                assert not p.eligible or len(p.isr) < p.min_isr, where
                assert p.leader == NO_LEADER or (p.leader in p.isr and p.leader in self.image.brokers), where
                stored = self.tree.get(path)
                state = znodes.decode_state(path, stored.data, stored.stat.version)
                assert (state.leader, state.leader_epoch, state.isr, state.version) == (
                    p.leader,
                    p.leader_epoch,
                    p.isr,
                    p.partition_epoch,
                ), where
                assert (state.min_isr, state.eligible, state.last_known) == (p.min_isr, p.eligible, p.last_known), where
                if p.leader != NO_LEADER:
                    epoch = (str(topic.topic_id), index, p.leader_epoch)
                    assert self.leaders_by_epoch.setdefault(epoch, p.leader) == p.leader, where

    def reload(self, *, lost: tuple[int, ...] = ()) -> None:
        """Another controller takes over: it knows nothing but the tree (and who is registered)."""
        for broker_id in lost:
            del self.epochs[broker_id]
        brokers = self.registrations()
        empty = initial_state("test-cluster", 2, self.image.controller_epoch + 1, self.state.policy)

        async def load() -> None:
            store = EmbeddedStore(self.database)
            await store.start()
            loaded = await load_state(
                store, empty, on_brokers=lambda _: None, on_topics=lambda _: None, on_topic=lambda _: lambda _: None
            )
            image = replace(loaded.state.image, brokers=brokers)
            decision = settle(replace(loaded.state, image=image), loaded.recorded, loaded.doomed)
            self._store(decision.output)
            self.state = decision.state
            await store.close()

        asyncio.run(load())
        self.check()
