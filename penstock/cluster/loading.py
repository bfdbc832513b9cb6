"""Reading the tree: what a new controller must know before it decides anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.cluster import znodes
from penstock.cluster.changes import ControllerState, TopicDeletion, unled
from penstock.cluster.events import TopicPartition, TopicRecord
from penstock.cluster.image import BrokerRegistration, ConfigKey, MetadataImage, PartitionRegistration, TopicImage
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
    try:
        node = await store.get(znodes.topic_path(name), watch)
        return znodes.decode_topic(name, node.data, node.stat.version)
    except NoNode:
        return None
    except znodes.MalformedNode as error:
        logger.error("ignoring a topic: %s", error)
        return None


async def read_config(store: TreeStore, key: ConfigKey) -> dict[str, str]:
    path = znodes.config_path(key)
    try:
        return znodes.decode_config(path, (await store.get(path)).data)
    except NoNode:
        return {}
    except znodes.MalformedNode as error:
        logger.error("ignoring overrides: %s", error)
        return {}


async def read_all_configs(store: TreeStore) -> dict[ConfigKey, Mapping[str, str]]:
    keys: list[ConfigKey] = []
    for kind, folder in znodes.CONFIG_FOLDERS.items():
        for name in await _children_or_none(store, f"/config/{folder}"):
            keys.append((kind, "" if kind == "broker" and name == znodes.DEFAULT_ENTITY else name))
            if kind == "user":
                clients = await _children_or_none(store, f"/config/users/{name}/clients")
                keys += [("user", f"{name}/clients/{client}") for client in clients]
    found = await gather_bounded(keys, lambda key: read_config(store, key))
    return {key: overrides for key, overrides in zip(keys, found, strict=True) if overrides}


@dataclass(slots=True)
class LoadedTree:
    state: ControllerState
    bounced: dict[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """ISR members that live, but not in the life they were in sync in."""
    without_id: list[str] = field(default_factory=list)


async def load_state(
    store: TreeStore, empty: ControllerState, *, on_brokers: Watch, on_topics: Watch, on_topic: Callable[[str], Watch]
) -> LoadedTree:
    """Everything, with watches set so that nothing which happens from now on is missed."""
    brokers = await read_brokers(store, on_brokers)
    names = await store.children(znodes.TOPICS, on_topics)
    deleting = set(await store.children(znodes.DELETE_TOPICS))
    records = await gather_bounded(names, lambda name: read_topic(store, name, on_topic(name)))
    known = {name: record for name, record in zip(names, records, strict=True) if record is not None}
    places = [(name, index) for name, record in known.items() for index in record.assignments]
    states = dict(zip(places, await gather_bounded(places, lambda w: _read_state(store, w)), strict=True))
    loaded = LoadedTree(empty)
    topics: dict[str, TopicImage] = {}
    deletions: dict[str, TopicDeletion] = {}
    version = empty.image.version + 1
    for name, record in known.items():
        if name in deleting and empty.policy.delete_topic_enable:
            holders = frozenset(r for a in record.assignments.values() for r in a.replicas)
            deletions[name] = TopicDeletion(version, holders)
            continue
        partitions = {}
        for index, assignment in record.assignments.items():
            state = states[(name, index)]
            partition = unled(assignment)
            if state is not None:
                partition = PartitionRegistration(
                    assignment.replicas,
                    state.isr,
                    state.leader,
                    state.leader_epoch,
                    state.version,
                    assignment.adding,
                    assignment.removing,
                    recovering=state.recovering,
                )
                bounced = frozenset(
                    r for r, epoch in state.broker_epochs.items() if r in brokers and brokers[r].epoch != epoch
                )
                if bounced:
                    loaded.bounced[(name, index)] = bounced
            partitions[index] = partition
        topics[name] = TopicImage(name, record.topic_id, partitions)
    loaded.without_id = sorted(name for name, topic in topics.items() if topic.topic_id.int == 0)
    configs = await read_all_configs(store)
    image = MetadataImage(
        cluster_id=empty.image.cluster_id,
        controller_id=empty.image.controller_id,
        controller_epoch=empty.image.controller_epoch,
        version=version,
        brokers=brokers,
        topics=topics,
        configs={key: c for key, c in configs.items() if key[0] != "topic" or key[1] in topics},
        topic_names={topic.topic_id: name for name, topic in topics.items()},
    )
    versions = {name: record.version for name, record in known.items() if name in topics}
    loaded.state = ControllerState(image, empty.policy, versions, deletions)
    return loaded


async def _read_state(store: TreeStore, where: TopicPartition) -> znodes.PartitionState | None:
    path = znodes.state_path(*where)
    try:
        node = await store.get(path)
    except NoNode:
        return None
    return znodes.decode_state(path, node.data, node.stat.version)


async def _children_or_none(store: TreeStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []
