"""A decision in the making: the state as it would be, and from that the store writes and the delta.

Rules change partitions through `put`; several changes of one partition within a decision become one write and one
step of its partition epoch. The leader epoch grows when the leader changes, when replicas leave the list, and when
`bump` asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.cluster import znodes
from penstock.cluster.eligible import remember_eligible
from penstock.cluster.events import Answer, DecisionOutput, ReplicaAssignment, Stage, StoreWrite, TopicPartition
from penstock.cluster.image import (
    NO_LEADER,
    BrokerRegistration,
    ConfigKey,
    ImageDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from penstock.cluster.replica_notes import ReplicaNotes, noted, replicas_that_are_new
from penstock.cluster.state_machines import check_partition_move, partition_status
from penstock.store.interface import Create, SetData


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """The settings that decisions depend on."""

    unclean_leader_election: bool = False
    leader_imbalance_percent: int = 10
    delete_topic_enable: bool = True
    min_insync_replicas: int = 1


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A topic that left the image at `version`; these brokers have not said yet that they dropped their replicas."""

    topic: str
    version: int
    waiting_for: frozenset[int]


@dataclass(frozen=True, slots=True)
class ControllerState:
    """All that the controller knows. `image` is what brokers are told."""

    image: MetadataImage
    policy: ControllerPolicy = ControllerPolicy()
    topic_versions: Mapping[str, int] = field(default_factory=dict)
    """Version of each `/brokers/topics/T` node."""
    deletions: Mapping[uuid.UUID, TopicDeletion] = field(default_factory=dict)
    """By topic id: the name is free again at once."""
    notes: ReplicaNotes = field(default_factory=ReplicaNotes)


@dataclass(frozen=True, slots=True)
class Decision:
    """`state` holds once (and only if) the writes of `output` are in the store."""

    state: ControllerState
    output: DecisionOutput


class Changes:
    def __init__(
        self, state: ControllerState, recorded: Mapping[TopicPartition, Mapping[int, int]] | None = None
    ) -> None:
        """`recorded` names the registrations under which ISR members were in sync, where they may not be the present
        ones: after a failover."""
        self.state = state
        self._recorded = recorded or {}
        self.image = state.image
        self.policy = state.policy
        self.brokers: dict[int, BrokerRegistration] = dict(state.image.brokers)
        self.deletions: dict[uuid.UUID, TopicDeletion] = dict(state.deletions)
        self.notes: list[StoreWrite] = []
        """What is written before anything else."""
        self.topic_versions: dict[str, int] = dict(state.topic_versions)
        self.configs: dict[ConfigKey, Mapping[str, str]] = {}
        self.removed_trees: list[str] = []
        self.removed_topics: dict[str, uuid.UUID] = {}
        self._topics: dict[str, TopicImage] = {}
        self._known_indexes: dict[str, dict[int, PartitionRegistration]] = {}
        """The (mutable) partitions inside `_topics`: copying them for each new partition would be quadratic."""
        self._partitions: dict[TopicPartition, PartitionRegistration] = {}
        self._bumped: set[TopicPartition] = set()
        self._rewritten: set[str] = set()

    @property
    def next_version(self) -> int:
        """The version of the image that this decision leads to."""
        return self.image.version + 1

    # --- looking ---

    def topic_names(self) -> list[str]:
        return sorted((self.image.topics.keys() | self._topics.keys()) - self.removed_topics.keys())

    def topic(self, name: str) -> TopicImage | None:
        return self._topics.get(name) or self.image.topics.get(name)

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        changed = self._partitions.get((topic, index))
        return changed if changed is not None else self.image.partition(topic, index)

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        """All partitions as they stand in this decision, in order."""
        for name in self.topic_names() if topics is None else sorted(topics):
            topic = self.topic(name)
            if topic is None or name in self.removed_topics:
                continue
            for index in sorted(topic.partitions):
                partition = self.partition(name, index)
                if partition is not None:
                    yield (name, index), partition

    def is_live(self, broker_id: int) -> bool:
        """Registered, heard and not about to leave: may lead and may be in an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.shutting_down and not broker.fenced

    def can_serve(self, partition: PartitionRegistration, broker_id: int) -> bool:
        return self.is_live(broker_id) and broker_id not in partition.offline

    def allows_unclean_election(self, topic: str) -> bool:
        chosen = self._setting(topic, "unclean.leader.election.enable")
        return self.policy.unclean_leader_election if chosen is None else chosen.strip().lower() == "true"

    def min_isr(self, topic: str, replicas: tuple[int, ...]) -> int:
        """The one that the controller and all leaders go by."""
        chosen = self._setting(topic, "min.insync.replicas")
        return min(self.policy.min_insync_replicas if chosen is None else int(chosen), len(replicas))

    def _setting(self, topic: str, key: str) -> str | None:
        for scope in (("topic", topic), ("broker", "")):
            overrides = self.configs.get(scope, self.image.configs.get(scope, {}))
            if key in overrides:
                return overrides[key]
        return None

    # --- changing ---

    def add_topic(self, name: str, topic_id: uuid.UUID, node_version: int) -> None:
        self._topics[name] = self._own(TopicImage(name, topic_id, {}))
        self.topic_versions[name] = node_version

    def put(self, where: TopicPartition, partition: PartitionRegistration, *, bump: bool = False) -> None:
        """Let the partition be this from now on; its ELR follows from what it was, epochs are set at the end."""
        name, index = where
        epochs = self._recorded.get(where)
        if epochs is None:
            epochs = {r: b.epoch for r in partition.replicas if (b := self.image.brokers.get(r)) is not None}
        min_isr = self.min_isr(name, partition.replicas)
        partition = remember_eligible(self.partition(name, index), partition, min_isr, epochs)
        topic = self.topic(name)
        assert topic is not None, name
        if index not in topic.partitions:
            if name not in self._topics:
                self._topics[name] = self._own(topic)
            self._known_indexes[name][index] = partition
        self._partitions[where] = partition
        if bump:
            self._bumped.add(where)

    def _own(self, topic: TopicImage) -> TopicImage:
        partitions = self._known_indexes[topic.name] = dict(topic.partitions)
        return replace(topic, partitions=partitions)

    def rewrite_assignment(self, topic: str) -> None:
        """Replicas, adding or removing changed: the topic's node must say so."""
        self._rewritten.add(topic)

    def remove_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        self.removed_topics[name] = topic.topic_id
        if self.image.configs.get(("topic", name)):
            self.configs[("topic", name)] = {}
        self.topic_versions.pop(name, None)

    # --- the result ---

    def finish(self, answer: Answer = None) -> Decision:
        final = {where: self._with_epochs(where, p) for where, p in sorted(self._partitions.items())}
        delta = self._delta(final)
        image = self._with_new_replicas(self.image.apply(delta) if delta is not None else self.image, final)
        notes, note_writes = noted(self.state.notes, self.image, image, final, self.removed_topics)
        writes = (*self.notes, *note_writes, *self._writes(final))
        state = replace(
            self.state, image=image, topic_versions=self.topic_versions, deletions=self.deletions, notes=notes
        )
        return Decision(state, DecisionOutput(writes, tuple(self.removed_trees), delta, answer))

    def _with_new_replicas(
        self, image: MetadataImage, final: Mapping[TopicPartition, PartitionRegistration]
    ) -> MetadataImage:
        """That a replica is not new any more is not worth a delta: the image just says so from now on."""
        topics: dict[str, TopicImage] = {}
        for (name, index), partition in final.items():
            known = image.partition(name, index)
            if known is not None and known.new != partition.new:
                if name not in topics:
                    topics[name] = replace(image.topics[name], partitions=dict(image.topics[name].partitions))
                topics[name].partitions[index] = partition  # type: ignore[index]
        return replace(image, topics={**image.topics, **topics}) if topics else image

    def _with_epochs(self, where: TopicPartition, partition: PartitionRegistration) -> PartitionRegistration:
        before = self.image.partition(*where)
        partition = replace(
            partition,
            new=replicas_that_are_new(before, partition),
            offline=tuple(r for r in partition.offline if r in partition.replicas),
        )
        after = self._following(before, where, partition)
        check_partition_move(where, partition_status(before), partition_status(after))
        return after

    def _following(
        self, before: PartitionRegistration | None, where: TopicPartition, partition: PartitionRegistration
    ) -> PartitionRegistration:
        if before is None or before.partition_epoch < 0:
            epoch = 0 if partition.isr else -1
            return replace(partition, leader_epoch=0, partition_epoch=epoch)
        grows = (
            where in self._bumped
            or partition.leader != before.leader
            or bool(set(before.replicas) - set(partition.replicas))
        )
        leader_epoch = before.leader_epoch + 1 if grows else before.leader_epoch
        partition = replace(partition, leader_epoch=leader_epoch, partition_epoch=before.partition_epoch)
        if partition == before and set(partition.new or ()) <= set(before.new or ()):
            return replace(before, new=partition.new)  # whoever is to begin its log must hear of it
        return replace(partition, partition_epoch=before.partition_epoch + 1)

    def _delta(self, final: Mapping[TopicPartition, PartitionRegistration]) -> ImageDelta | None:
        changed: dict[str, dict[int, PartitionRegistration]] = {name: {} for name in sorted(self._topics)}
        for (name, index), partition in final.items():
            if name not in self.removed_topics and partition != self.image.partition(name, index):
                changed.setdefault(name, {})[index] = partition
        topics = {}
        for name, partitions in changed.items():
            topic = self.topic(name)
            assert topic is not None
            if partitions or name not in self.image.topics:
                topics[name] = replace(topic, partitions=partitions)
        delta = ImageDelta(
            controller_id=self.image.controller_id,
            controller_epoch=self.image.controller_epoch,
            base_version=self.image.version,
            version=self.next_version,
            brokers_changed={i: b for i, b in sorted(self.brokers.items()) if self.image.brokers.get(i) != b},
            brokers_removed=tuple(sorted(i for i in self.image.brokers if i not in self.brokers)),
            topics_removed=dict(sorted(self.removed_topics.items())),
            topics_changed=topics,
            configs_changed={k: c for k, c in self.configs.items() if self.image.configs.get(k, {}) != c},
        )
        return None if delta.is_empty else delta

    def _writes(self, final: Mapping[TopicPartition, PartitionRegistration]) -> tuple[StoreWrite, ...]:
        folders: dict[str, StoreWrite] = {}
        states: list[StoreWrite] = []
        broker_epochs = {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}
        for (name, index), partition in final.items():
            if name in self.removed_topics or partition.partition_epoch < 0:
                continue
            before = self.image.partition(name, index)
            data = znodes.encode_state(partition, self.image.controller_epoch, broker_epochs)
            path = znodes.state_path(name, index)
            if before is None or before.partition_epoch < 0:
                if name not in folders and not self._has_states(name):
                    folders[name] = StoreWrite((Create(znodes.partitions_path(name)),), Stage.NOTES)
                first = (Create(znodes.partition_path(name, index)), Create(path, data))
                states.append(StoreWrite(first, Stage.STATES))
            elif partition != before:
                states.append(StoreWrite((SetData(path, data, before.partition_epoch),), Stage.STATES))
        assignments = [self._topic_write(name, final) for name in sorted(self._rewritten)]
        return (*folders.values(), *states, *assignments)

    def _has_states(self, name: str) -> bool:
        known = self.image.topics.get(name)
        return known is not None and any(p.partition_epoch >= 0 for p in known.partitions.values())

    def _topic_write(self, name: str, final: Mapping[TopicPartition, PartitionRegistration]) -> StoreWrite:
        topic = self.topic(name)
        assert topic is not None
        assignments = {}
        for index, known in topic.partitions.items():
            p = final.get((name, index), known)
            assignments[index] = ReplicaAssignment(p.replicas, p.adding, p.removing)
        version = self.topic_versions[name]
        self.topic_versions[name] = version + 1
        data = znodes.encode_topic(topic.topic_id, assignments)
        return StoreWrite((SetData(znodes.topic_path(name), data, version),), Stage.ASSIGNMENTS)


def unled(assignment: ReplicaAssignment) -> PartitionRegistration:
    """A partition that has never had a leader and has no state node."""
    return PartitionRegistration(
        assignment.replicas,
        (),
        NO_LEADER,
        -1,
        -1,
        adding=assignment.adding,
        removing=assignment.removing,
        new=assignment.replicas,
    )
