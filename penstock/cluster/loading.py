"""Reading the tree: what a new controller must know before it decides anything."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock.cluster import own_znodes, znodes
from penstock.cluster.changes import ControllerState, TopicDeletion, unled
from penstock.cluster.events import ReplicaAssignment, TopicPartition, TopicRecord
from penstock.cluster.image import (
    NO_LEADER,
    BrokerRegistration,
    ConfigKey,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from penstock.cluster.replica_notes import from_image
from penstock.store.interface import NoNode, TreeStore, Watch

logger = logging.getLogger(__name__)

READS_IN_FLIGHT = 256
T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(items: Iterable[T], read: Callable[[T], Awaitable[R]]) -> list[R]:
    """Read many nodes with a bounded number of requests in flight, results in order."""
    pending, results = list(items), []
    for start in range(0, len(pending), READS_IN_FLIGHT):
        results += await asyncio.gather(*(read(item) for item in pending[start : start + READS_IN_FLIGHT]))
    return results


async def read_brokers(store: TreeStore, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
    async def one(name: str) -> BrokerRegistration | None:
        try:
            node = await store.get(f"{znodes.BROKER_IDS}/{name}")
            return znodes.decode_broker(int(name), node.data, node.stat.czxid)
        except NoNode:
            return None
        except (znodes.MalformedNode, ValueError) as error:
            logger.error("ignoring a broker registration: %s", error)
            return None

    names = await store.children(znodes.BROKER_IDS, watch)
    found = await gather_bounded(names, one)
    return {broker.broker_id: broker for broker in found if broker is not None}


async def read_topic(store: TreeStore, name: str, watch: Watch | None = None) -> TopicRecord | None:
    """None where there is none; MalformedNode if nobody can read it, which is something else."""
    try:
        node = await store.get(znodes.topic_path(name), watch)
    except NoNode:
        return None
    return znodes.decode_topic(name, node.data, node.stat.version)


async def read_config(store: TreeStore, key: ConfigKey) -> dict[str, str]:
    """Empty where there are none. Raises MalformedNode: without its overrides a topic might lose data to retention."""
    path = znodes.config_path(key)
    try:
        return znodes.decode_config(path, (await store.get(path)).data)
    except NoNode:
        return {}


@dataclass(frozen=True, slots=True)
class LoadedConfigs:
    overrides: Mapping[ConfigKey, Mapping[str, str]]
    unreadable: Mapping[ConfigKey, str]
    """Whose nodes nobody can read, and why."""


async def read_all_configs(store: TreeStore) -> LoadedConfigs:
    keys: list[ConfigKey] = []
    for kind, folder in znodes.CONFIG_FOLDERS.items():
        for name in await _children_or_none(store, f"/config/{folder}"):
            keys.append((kind, "" if kind == "broker" and name == znodes.DEFAULT_ENTITY else name))
            if kind == "user":
                clients = await _children_or_none(store, f"/config/users/{name}/clients")
                keys += [("user", f"{name}/clients/{client}") for client in clients]

    async def one(key: ConfigKey) -> dict[str, str] | znodes.MalformedNode:
        try:
            return await read_config(store, key)
        except znodes.MalformedNode as error:
            logger.error("overrides cannot be read: %s", error)
            return error

    found = list(zip(keys, await gather_bounded(keys, one), strict=True))
    return LoadedConfigs(
        {key: overrides for key, overrides in found if overrides and isinstance(overrides, dict)},
        {key: str(error) for key, error in found if isinstance(error, znodes.MalformedNode)},
    )


@dataclass(slots=True)
class LoadedTree:
    state: ControllerState
    recorded: dict[TopicPartition, Mapping[int, int]] = field(default_factory=dict)
    """The registrations under which ISR members were in sync."""
    without_id: list[str] = field(default_factory=list)
    doomed: dict[str, TopicRecord] = field(default_factory=dict)
    """Topics that are marked for deletion."""


async def load_state(
    store: TreeStore, empty: ControllerState, *, on_brokers: Watch, on_topics: Watch, on_topic: Callable[[str], Watch]
) -> LoadedTree:
    """Everything, with watches set so that nothing which happens from now on is missed."""
    brokers = await read_brokers(store, on_brokers)
    names = await store.children(znodes.TOPICS, on_topics)
    deleting = set(await store.children(znodes.DELETE_TOPICS))
    version = empty.image.version + 1
    deletions = await _read_tombstones(store, version)
    unreadable: dict[str, str] = {}
    known = await _read_topics(store, names, on_topic, unreadable)
    loaded = LoadedTree(empty)
    if empty.policy.delete_topic_enable:
        loaded.doomed = {name: known.pop(name) for name in sorted(deleting & known.keys())}
    states = await _read_states(store, known, on_topic, unreadable)
    notes = await _read_notes(store, unreadable)
    configs = await read_all_configs(store)
    unreadable |= {name: why for (kind, name), why in configs.unreadable.items() if kind == "topic" and name in known}
    topics: dict[str, TopicImage] = {}
    for name, record in known.items():
        if name in unreadable:
            continue
        noted = notes.get(name)
        if noted is None or noted.topic_id != record.topic_id:
            noted = own_znodes.TopicReplicaNotes(record.topic_id, {}, {})
        partitions = {}
        for index, assignment in record.assignments.items():
            state = states[(name, index)]
            partitions[index] = _registration(assignment, state, noted, index)
            if state is not None:
                loaded.recorded[(name, index)] = state.broker_epochs
        topics[name] = TopicImage(name, record.topic_id, partitions)
    loaded.without_id = sorted(name for name, topic in topics.items() if topic.topic_id.int == 0)
    image = MetadataImage(
        cluster_id=empty.image.cluster_id,
        controller_id=empty.image.controller_id,
        controller_epoch=empty.image.controller_epoch,
        version=version,
        brokers=brokers,
        topics=topics,
        configs={key: c for key, c in configs.overrides.items() if key[0] != "topic" or key[1] in topics},
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        unreadable={name: unreadable[name] for name in names if name in unreadable and name not in loaded.doomed},
    )
    versions = {name: record.version for name, record in known.items() if name in topics}
    for name, why in image.unreadable.items():
        logger.error("topic %s stays as its brokers know it until somebody mends its node: %s", name, why)
    loaded.state = ControllerState(image, empty.policy, versions, deletions, from_image(image, notes))
    return loaded


def _registration(
    assignment: ReplicaAssignment, state: znodes.PartitionState | None, noted: own_znodes.TopicReplicaNotes, index: int
) -> PartitionRegistration:
    partition = unled(assignment)
    offline = tuple(r for r in noted.offline.get(index, ()) if r in assignment.replicas)
    if state is None:
        return replace(partition, offline=offline)
    eligible = tuple(r for r in state.eligible if r in assignment.replicas)
    # A decision that was stored half-way may have left a leader that is no replica: then there is none.
    return replace(
        partition,
        isr=tuple(r for r in state.isr if r in assignment.replicas),
        leader=state.leader if state.leader in assignment.replicas else NO_LEADER,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.version,
        offline=offline,
        recovering=state.recovering,
        min_isr=state.min_isr,
        eligible=eligible,
        eligible_epochs=tuple(state.broker_epochs.get(r, -1) for r in eligible),
        last_known=state.last_known,
        new=tuple(r for r in noted.new.get(index, ()) if r in assignment.replicas),
    )


async def _read_topics(
    store: TreeStore, names: list[str], on_topic: Callable[[str], Watch], unreadable: dict[str, str]
) -> dict[str, TopicRecord]:
    async def one(name: str) -> TopicRecord | None:
        try:
            return await read_topic(store, name, on_topic(name))
        except znodes.MalformedNode as error:
            unreadable[name] = str(error)
            return None

    records = await gather_bounded(names, one)
    return {name: record for name, record in zip(names, records, strict=True) if record is not None}


async def _read_states(
    store: TreeStore, known: Mapping[str, TopicRecord], on_topic: Callable[[str], Watch], unreadable: dict[str, str]
) -> dict[TopicPartition, znodes.PartitionState | None]:
    async def one(where: TopicPartition) -> znodes.PartitionState | None:
        path = znodes.state_path(*where)
        try:
            node = await store.get(path)
            return znodes.decode_state(path, node.data, node.stat.version)
        except NoNode:
            return None
        except znodes.MalformedNode as error:
            unreadable[where[0]] = str(error)
            await store.exists(path, on_topic(where[0]))  # somebody may mend it
            return None

    places = [(name, index) for name, record in known.items() for index in record.assignments]
    return dict(zip(places, await gather_bounded(places, one), strict=True))


async def _read_notes(store: TreeStore, unreadable: dict[str, str]) -> dict[str, own_znodes.TopicReplicaNotes]:
    async def one(name: str) -> own_znodes.TopicReplicaNotes | None:
        path = znodes.replica_notes_path(name)
        try:
            return own_znodes.decode_replica_notes(path, (await store.get(path)).data)
        except NoNode:
            return None
        except znodes.MalformedNode as error:
            unreadable[name] = str(error)
            return None

    names = await _children_or_none(store, znodes.REPLICA_NOTES)
    found = await gather_bounded(names, one)
    return {name: notes for name, notes in zip(names, found, strict=True) if notes is not None}


async def _read_tombstones(store: TreeStore, version: int) -> dict[uuid.UUID, TopicDeletion]:
    async def one(name: str) -> TopicDeletion | None:
        path = f"{znodes.TOMBSTONES}/{name}"
        try:
            topic, brokers = own_znodes.decode_tombstone(path, (await store.get(path)).data)
            return TopicDeletion(topic, version, brokers)
        except NoNode:
            return None
        except znodes.MalformedNode as error:
            logger.error("ignoring a tombstone: %s", error)  # folders of that topic are set aside, not deleted
            return None

    names = await _children_or_none(store, znodes.TOMBSTONES)
    found = await gather_bounded(names, one)
    return {znodes.decode_topic_id(name): d for name, d in zip(names, found, strict=True) if d is not None}


async def holds_replicas(store: TreeStore, broker_id: int) -> bool:
    """Does the store say that this broker has made a replica that it still has to keep?"""
    notes = await _read_notes(store, {})
    for name in await _children_or_none(store, znodes.TOPICS):
        try:
            record = await read_topic(store, name)
        except znodes.MalformedNode:
            continue
        for index, assignment in record.assignments.items() if record is not None else ():
            if broker_id not in assignment.replicas:
                continue
            new = notes[name].new.get(index, ()) if name in notes else ()
            if broker_id not in new and await store.exists(znodes.state_path(name, index)) is not None:
                return True
    return False


async def _children_or_none(store: TreeStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []
