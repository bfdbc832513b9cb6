"""The roads of the group coordinator on this broker: its log, the topics it may assign, the journal it writes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.cluster.znodes import sanitize
from penstock.coordinator.group.context import TopicInfo
from penstock.coordinator.group.journal import JOURNAL_TOPIC, Journal, RebalanceEntry
from penstock.coordinator.group.service import TOPIC, GroupCoordinator
from penstock.coordinator.loader import read_rows

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.client.client import Client
    from penstock.cluster.image import ImageDelta, MetadataImage, TopicImage

logger = logging.getLogger(__name__)

MAX_UNWRITTEN_ENTRIES = 1_000
RETRY_SECONDS = 1.0
MAX_TRIES = 30


def start_groups(broker: Broker) -> None:
    """Make the broker's group coordinator: `broker.groups`."""
    from penstock.coordinator.group.config import GroupConfig
    from penstock.coordinator.replica_log import ReplicaShardLog

    topics = ImageTopics(broker)
    journal = JournalWriter(broker)
    log = ReplicaShardLog(broker.replicas, TOPIC)
    coordinator = GroupCoordinator(
        log,
        broker.clock,
        GroupConfig.from_settings(broker.settings),
        lambda: partition_count(broker),
        topics=topics,
        record_rebalance=journal.record,
        group_overrides=lambda group_id: broker.image.config("group", sanitize(group_id)),
        write_timeout_ms=int(broker.settings["offsets.commit.timeout.ms"]),
    )
    broker.groups = coordinator
    coordinator.companions.append(journal.stop)
    topics.on_deleted = coordinator.topics_deleted
    broker.image_holder.subscribe(topics.image_changed)
    log.follow_leadership(coordinator.runtime.elected, coordinator.runtime.resigned)


def partition_count(broker: Broker) -> int:
    topic = broker.image.topic(TOPIC)
    return len(topic.partitions) if topic is not None else int(broker.settings["offsets.topic.num.partitions"])


class ImageTopics:
    """`Topics` over the broker's image. Its version moves only when a topic comes, goes or grows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = 0
        self._known: dict[str, tuple[UUID, int]] = {}
        self.on_deleted: Any = None

    def image_changed(self, delta: ImageDelta, image: MetadataImage) -> None:
        changed = False
        for name, topic_id in delta.topics_removed.items():
            known = self._known.get(name)
            if known is not None and known[0] == topic_id:
                del self._known[name]
                changed = True
        for name in delta.topics_changed:
            topic = image.topics[name]
            shape = topic.topic_id, len(topic.partitions)
            if self._known.get(name) != shape:
                self._known[name] = shape
                changed = True
        if changed:
            self._version += 1
        # Also one that came again in the same change: it is another topic, and begins without offsets.
        gone = {
            name
            for name, topic_id in delta.topics_removed.items()
            if name not in image.topics or image.topics[name].topic_id != topic_id
        }
        if gone and self.on_deleted is not None:
            self.on_deleted(gone)

    def by_name(self, name: str) -> TopicInfo | None:
        return self._info(self._broker.image.topics.get(name))

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self._broker.image.topic_name(topic_id)
        return None if name is None else self.by_name(name)

    def _info(self, topic: TopicImage | None) -> TopicInfo | None:
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))

    def names(self) -> list[str]:
        return sorted(self._broker.image.topics)

    def version(self) -> int:
        return self._version


class JournalWriter:
    """Writes the rebalance journal through the protocol, like any producer: its partition may be led elsewhere."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._journal = Journal()
        self._queue: asyncio.Queue[RebalanceEntry] = asyncio.Queue(MAX_UNWRITTEN_ENTRIES)
        self._task: asyncio.Task[None] | None = None
        self._loaded_to = 0

    def record(self, entry: RebalanceEntry) -> None:
        try:
            self._queue.put_nowait(entry)
        except asyncio.QueueFull:
            logger.warning("rebalance of group=%s is not journalled: %d wait", entry.group_id, self._queue.qsize())
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="rebalance journal")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        from penstock.client.client import Client
        from penstock.client.security import Security

        host, port = self._broker.inter_broker.address(self._broker.node_id)
        security = self._broker.inter_broker.security() or Security()
        introduce = self._broker.inter_broker.introduce
        client_id = "penstock-journal"
        async with Client([f"{host}:{port}"], client_id=client_id, security=security, on_open=introduce) as client:
            while True:
                entry = await self._queue.get()
                await self._write(client, entry)

    async def _write(self, client: Client, entry: RebalanceEntry) -> None:
        from penstock.client.errors import ClientError
        from penstock.client.records import produce
        from penstock.protocol.batch import build_batch
        from penstock.protocol.records import new_record

        for _ in range(MAX_TRIES):
            try:
                await self._ensure_topic()
                await self._catch_up(client)
                key, value = self._journal.preview(entry)
                batch = build_batch([new_record(key, value, self._broker.clock.now_ms())])
                await produce(client, JOURNAL_TOPIC, 0, batch)
                return
            except (ClientError, OSError) as error:
                logger.info("rebalance journal of group=%s: %s", entry.group_id, error)
                await asyncio.sleep(RETRY_SECONDS)
        logger.warning("rebalance of group=%s could not be journalled", entry.group_id)

    async def _ensure_topic(self) -> None:
        from penstock.broker.api.admin_support import topic_admin
        from penstock.cluster.topics import NewTopic

        if self._broker.image.topic(JOURNAL_TOPIC) is None:
            replicas = min(
                int(self._broker.settings["offsets.topic.replication.factor"]), len(self._broker.image.brokers)
            )
            topic = NewTopic(JOURNAL_TOPIC, 1, replicas, configs={"cleanup.policy": "compact"})
            await topic_admin(self._broker).create([topic], 10_000)

    async def _catch_up(self, client: Client) -> None:
        """What other coordinators (or this one, before a restart) have written belongs to the history."""
        from penstock.client.records import fetch
        from penstock.protocol.batch import iterate_batches, read_payload

        for _ in range(MAX_TRIES):
            fetched = (await fetch(client, {(JOURNAL_TOPIC, 0): self._loaded_to}, max_wait_ms=0))[JOURNAL_TOPIC, 0]
            if fetched.error_code == _OFFSET_OUT_OF_RANGE:
                self._loaded_to = max(0, fetched.log_start_offset)
            if not fetched.records:
                return
            for header in iterate_batches(fetched.records):
                payload = read_payload(fetched.records, header)
                for delta, key, value in read_rows(payload, 0, header.record_count)[0]:
                    if header.base_offset + delta >= self._loaded_to and not header.is_control:
                        self._journal.load(key, value)
                self._loaded_to = max(self._loaded_to, header.next_offset)


_OFFSET_OUT_OF_RANGE = 1
