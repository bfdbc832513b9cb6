"""From watches to events: watches only mark what may have changed; the tree is read again and compared with what is
known.

So lost, doubled or late notifications do no harm, and many changes in a moment become one event.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from penstock.cluster import znodes
from penstock.cluster.changes import ControllerState
from penstock.cluster.controller_store import StateUnknown
from penstock.cluster.events import (
    AlterReassignments,
    BrokersChanged,
    ConfigsChanged,
    DeletionsRequested,
    ElectionKind,
    ElectLeaders,
    Event,
    ReplicasFailed,
    TopicRecord,
    TopicsChanged,
)
from penstock.cluster.image import ConfigKey
from penstock.cluster.loading import gather_bounded, read_brokers, read_config, read_topic
from penstock.store.interface import BadVersion, NoNode, StoreError, TreeStore, Watch, WatchEvent

logger = logging.getLogger(__name__)

CONFIG_CHANGE_LIFETIME_MS = 15 * 60 * 1000
TOMBSTONE_LIFETIME_MS = 90 * 24 * 3600 * 1000


class TreeWatcher:
    def __init__(self, store: TreeStore, poke: Callable[[], None], now_ms: Callable[[], int] | None = None) -> None:
        self._store = store
        self._poke = poke
        self._now_ms = now_ms
        self._dirty: set[str] = set()
        self._dirty_topics: set[str] = set()
        self._handled: list[str] = []
        """One-time nodes whose event has been decided: deleted before the next event."""
        self._last_config_change = ""
        self._generation = 0

    # --- marks ---

    def reset(self) -> None:
        """Forget everything; watches that are still out there count no more."""
        self._generation += 1
        self._dirty.clear()
        self._dirty_topics.clear()
        self._handled.clear()

    def _marking(self, what: str) -> Watch:
        generation = self._generation

        def fired(_: WatchEvent) -> None:
            if generation == self._generation:
                self._dirty.add(what)
                self._poke()

        return fired

    @property
    def on_brokers(self) -> Watch:
        return self._marking("brokers")

    @property
    def on_topics(self) -> Watch:
        return self._marking("topics")

    def on_topic(self, name: str) -> Watch:
        generation = self._generation

        def fired(_: WatchEvent) -> None:
            if generation == self._generation:
                self._dirty_topics.add(name)
                self._poke()

        return fired

    async def arm(self) -> None:
        """Before loading: note which config changes the load will cover, clear old notifications, mark the rest."""
        changes = await self._store.children(znodes.CONFIG_CHANGES, self._marking("configs"))
        self._last_config_change = changes[-1] if changes else ""
        for name in await self._store.children(znodes.ISR_CHANGES):
            with contextlib.suppress(NoNode):
                await self._store.delete(f"{znodes.ISR_CHANGES}/{name}")
        await self._purge_tombstones()
        self._dirty |= {"deletions", "log_dirs", "reassign", "preferred"}

    async def _purge_tombstones(self) -> None:
        """A broker that has not come back for so long will not. If it does, its folders are set aside, not deleted."""
        for name in await self._store.children(znodes.TOMBSTONES) if self._now_ms is not None else ():
            path = f"{znodes.TOMBSTONES}/{name}"
            stat = await self._store.exists(path)
            if stat is not None and self._now_ms is not None and stat.ctime_ms < self._now_ms() - TOMBSTONE_LIFETIME_MS:
                with contextlib.suppress(NoNode):
                    await self._store.delete(path)

    # --- events ---

    async def next_event(self, state: ControllerState) -> Event | None:
        """The next thing that differs from `state`, or None when everything marked has been looked at."""
        while self._handled:
            with contextlib.suppress(NoNode):
                await self._store.delete(self._handled[0])
            self._handled.pop(0)
        readers: dict[str, Callable[[ControllerState], Awaitable[Event | None]]] = {
            "brokers": self._read_brokers,
            "topics": self._read_topics,
            "deletions": self._read_deletions,
            "configs": self._read_configs,
            "log_dirs": self._read_log_dirs,
            "reassign": self._read_reassignments,
            "preferred": self._read_preferred,
        }
        for what, read in readers.items():
            if what in self._dirty:
                self._dirty.discard(what)
                event = await self._retrying(what, read, state)
                if event is not None:
                    return event
        while self._dirty_topics:
            names = sorted(self._dirty_topics)
            self._dirty_topics.clear()
            try:
                event = await self._read_changed(names, state)
            except StoreError:
                self._dirty_topics.update(names)
                raise
            if event is not None:
                return event
        return None

    async def _retrying(
        self, what: str, read: Callable[[ControllerState], Awaitable[Event | None]], state: ControllerState
    ) -> Event | None:
        try:
            return await read(state)
        except StoreError:
            self._dirty.add(what)
            raise

    async def _read_brokers(self, state: ControllerState) -> Event | None:
        brokers = await read_brokers(self._store, self.on_brokers)
        known = {i: replace(b, shutting_down=False, fenced=False) for i, b in state.image.brokers.items()}
        return BrokersChanged(brokers) if brokers != known else None

    async def _read_topics(self, state: ControllerState) -> Event | None:
        names = await self._store.children(znodes.TOPICS, self.on_topics)
        new = [n for n in names if n not in state.image.topics and n not in state.image.unreadable]
        return await self._read_changed(new, state)

    async def _read_changed(self, names: list[str], state: ControllerState) -> Event | None:
        if any(name in state.image.unreadable for name in names):
            raise StateUnknown("a topic that could not be read has changed")
        try:
            records = await gather_bounded(names, lambda name: read_topic(self._store, name, self.on_topic(name)))
            topics: dict[str, TopicRecord] = {}
            for name, record in zip(names, records, strict=True):
                if record is not None and record.version != state.topic_versions.get(name):
                    topics[name] = await self._with_id(name, record)
            if not topics:
                return None
            fresh = [name for name in topics if name not in state.image.topics]
            configs = await gather_bounded(fresh, lambda name: read_config(self._store, ("topic", name)))
        except znodes.MalformedNode as error:
            # Loading sets the topic apart, and it is not looked at again before it changes.
            raise StateUnknown(str(error)) from error
        return TopicsChanged(topics, dict(zip(fresh, configs, strict=True)))

    async def _with_id(self, name: str, record: TopicRecord) -> TopicRecord:
        """Tools older than 2.8 create topics without an id."""
        if record.topic_id.int != 0:
            return record
        topic_id = uuid.uuid4()
        data = znodes.encode_topic(topic_id, record.assignments)
        try:
            stat = await self._store.set(znodes.topic_path(name), data, record.version)
        except (BadVersion, NoNode):
            self._dirty.add("topics")
            return record
        return replace(record, topic_id=topic_id, version=stat.version)

    async def _read_deletions(self, state: ControllerState) -> Event | None:
        names = await self._store.children(znodes.DELETE_TOPICS, self._marking("deletions"))
        new = tuple(names)
        if any(name not in state.image.topics for name in new):
            # Created and deleted in one breath: the topic must be known before it can be deleted.
            event = await self._read_topics(state)
            if event is not None:
                self._dirty.add("deletions")
                return event
        return DeletionsRequested(new) if new else None

    async def _read_configs(self, state: ControllerState) -> Event | None:
        names = await self._store.children(znodes.CONFIG_CHANGES, self._marking("configs"))
        new = [name for name in names if name > self._last_config_change]
        keys: dict[ConfigKey, None] = {}
        for name in new:
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            try:
                key = znodes.decode_config_change(path, (await self._store.get(path)).data)
            except NoNode:
                continue
            except znodes.MalformedNode as error:
                logger.error("ignoring a config change: %s", error)
                continue
            if key is not None:
                keys[key] = None
        await self._purge_config_changes(names)
        configs: dict[ConfigKey, Mapping[str, str]] = {}
        for key in keys:
            if key[0] == "topic" and key[1] in state.image.unreadable:
                raise StateUnknown(f"the overrides of {key[1]}, which could not be read, have changed")
            try:
                configs[key] = await read_config(self._store, key)
            except znodes.MalformedNode as error:
                logger.error("overrides stay as they were: %s", error)
        if new:
            self._last_config_change = new[-1]
        changed = {
            key: overrides
            for key, overrides in configs.items()
            if state.image.configs.get(key, {}) != overrides and (key[0] != "topic" or key[1] in state.image.topics)
        }
        return ConfigsChanged(changed) if changed else None

    async def _purge_config_changes(self, names: list[str]) -> None:
        if self._now_ms is None:
            return
        for name in names:
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            stat = await self._store.exists(path)
            if stat is None:
                continue
            if stat.ctime_ms > self._now_ms() - CONFIG_CHANGE_LIFETIME_MS:
                return
            with contextlib.suppress(NoNode):
                await self._store.delete(path)

    async def _read_log_dirs(self, state: ControllerState) -> Event | None:
        names = await self._store.children(znodes.LOG_DIR_EVENTS, self._marking("log_dirs"))
        for name in names:
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            self._handled.append(path)
            try:
                broker_id, partitions = znodes.decode_log_dir_event(path, (await self._store.get(path)).data)
            except NoNode:
                continue
            except znodes.MalformedNode as error:
                logger.error("ignoring a log directory event: %s", error)
                continue
            self._dirty.add("log_dirs")  # one event at a time; the others are read after this one is decided
            if broker_id in state.image.brokers:
                return ReplicasFailed(broker_id, tuple(partitions))
        return None

    async def _read_reassignments(self, state: ControllerState) -> Event | None:
        data = await self._one_time_node(znodes.REASSIGN_PARTITIONS, "reassign")
        if data is None:
            return None
        try:
            return AlterReassignments(dict(znodes.decode_reassignments(data)))
        except znodes.MalformedNode as error:
            logger.error("ignoring a reassignment: %s", error)
            return None

    async def _read_preferred(self, state: ControllerState) -> Event | None:
        data = await self._one_time_node(znodes.PREFERRED_ELECTION, "preferred")
        if data is None:
            return None
        try:
            wanted = znodes.decode_partition_list(znodes.PREFERRED_ELECTION, data)
        except znodes.MalformedNode as error:
            logger.error("ignoring an election: %s", error)
            return None
        return ElectLeaders(ElectionKind.PREFERRED, tuple(wanted))

    async def _one_time_node(self, path: str, what: str) -> bytes | None:
        if await self._store.exists(path, self._marking(what)) is None:
            return None
        self._handled.append(path)
        try:
            return (await self._store.get(path)).data
        except NoNode:
            return None
