"""What is on record about single replicas besides leader and ISR: which are new, which are off line, and which broker
still has to confirm what.

One small node per topic that has anything to note (`/penstock/replicas/T`), and none for the others. A replica that is
not noted as new has been made: its broker must never begin it anew, because the others would be cut to what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cluster import own_znodes, znodes
from penstock.cluster.events import Stage, StoreWrite, TopicPartition
from penstock.cluster.image import MetadataImage, PartitionRegistration, TopicImage
from penstock.store.interface import Create, Delete, Operation, SetData


@dataclass(frozen=True, slots=True)
class ReplicaNotes:
    unconfirmed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By broker: topics in which it has new replicas, with the version of the image that told it last."""
    offline: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """By broker: its replicas that are off line, with the version of the image that said so first."""
    stored: frozenset[str] = frozenset()
    """Topics that have a node."""


def replicas_that_are_new(before: PartitionRegistration | None, after: PartitionRegistration) -> tuple[int, ...]:
    """Those that were so, and those that nobody had on the list before."""
    known = before.replicas if before is not None else ()
    return tuple(r for r in after.replicas if r in (after.new or ()) or r not in known)


def noted(
    notes: ReplicaNotes,
    before: MetadataImage,
    after: MetadataImage,
    changed: Iterable[TopicPartition],
    removed: Iterable[str],
) -> tuple[ReplicaNotes, list[StoreWrite]]:
    """The notes after a decision, and what must be written for them."""
    touched: dict[str, list[int]] = {}
    for name, index in changed:
        if name in after.topics and _differ(before.partition(name, index), after.partition(name, index)):
            touched.setdefault(name, []).append(index)
    gone = [name for name in removed if name not in after.topics]
    if not touched and not gone:
        return notes, []
    unconfirmed = {broker: dict(topics) for broker, topics in notes.unconfirmed.items()}
    offline = {broker: dict(replicas) for broker, replicas in notes.offline.items()}
    stored = set(notes.stored) - set(gone)
    writes: list[StoreWrite] = []
    for name in (*touched, *gone):
        topic = after.topics.get(name)
        _note_unconfirmed(unconfirmed, name, topic, before.topics.get(name), after.version)
        _note_offline(offline, name, topic, after.version)
        if topic is not None:
            operation = _operation(topic, name in stored)
            if operation is not None:
                writes.append(StoreWrite((operation,), Stage.NOTES))
                (stored.discard if isinstance(operation, Delete) else stored.add)(name)
    return ReplicaNotes(
        {broker: topics for broker, topics in unconfirmed.items() if topics},
        {broker: replicas for broker, replicas in offline.items() if replicas},
        frozenset(stored),
    ), writes


def from_image(image: MetadataImage, stored: Iterable[str]) -> ReplicaNotes:
    """The notes of a controller that has just read the tree."""
    unconfirmed: dict[int, dict[str, int]] = {}
    offline: dict[int, dict[TopicPartition, int]] = {}
    for name, topic in image.topics.items():
        _note_unconfirmed(unconfirmed, name, topic, None, image.version)
        _note_offline(offline, name, topic, image.version)
    return ReplicaNotes(unconfirmed, offline, frozenset(stored))


def _differ(before: PartitionRegistration | None, after: PartitionRegistration | None) -> bool:
    if before is None or after is None:
        return True
    first_led = before.partition_epoch < 0 <= after.partition_epoch  # until then all of them are new, noted or not
    return first_led or (before.new, before.offline) != (after.new, after.offline)


def _note_unconfirmed(
    unconfirmed: dict[int, dict[str, int]], name: str, topic: TopicImage | None, old: TopicImage | None, version: int
) -> None:
    holders: set[int] = set()
    fresh: set[int] = set()
    if topic is not None:
        same = old.partitions if old is not None and old.topic_id == topic.topic_id else {}
        for index, partition in topic.partitions.items():
            if partition.new:
                holders |= set(partition.new)
                was_new = same[index].new if index in same else ()
                fresh |= set(partition.new) - set(was_new or ())
    for broker in set(unconfirmed) - holders:
        unconfirmed[broker].pop(name, None)
    for broker in sorted(holders):
        topics = unconfirmed.setdefault(broker, {})
        if broker in fresh or name not in topics:
            topics[name] = version


def _note_offline(
    offline: dict[int, dict[TopicPartition, int]], name: str, topic: TopicImage | None, version: int
) -> None:
    now = {
        (broker, (name, index))
        for index, partition in (topic.partitions.items() if topic is not None else ())
        for broker in partition.offline
    }
    for broker, replicas in offline.items():
        for where in [where for where in replicas if where[0] == name and (broker, where) not in now]:
            del replicas[where]
    for broker, where in sorted(now):
        offline.setdefault(broker, {}).setdefault(where, version)


def _operation(topic: TopicImage, exists: bool) -> Operation | None:
    path = znodes.replica_notes_path(topic.name)
    new = {index: p.new for index, p in topic.partitions.items() if p.new}
    offline = {index: p.offline for index, p in topic.partitions.items() if p.offline}
    if not new and not offline:
        return Delete(path) if exists else None
    data = own_znodes.encode_replica_notes(topic.topic_id, new, offline)
    return SetData(path, data) if exists else Create(path, data)
