"""The replicas that a broker hosts, as the metadata image wants them: they come, go, change roles, lose their disks.

Images are applied on the event loop; what takes long is done before, in `prepare`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.base.clock import Clock
from penstock.cluster.image import ImageDelta, MetadataImage, PartitionRegistration
from penstock.log.log import Log
from penstock.log.log_folders import WantedLog
from penstock.log.log_manager import LogManager
from penstock.log.results import LogDirectoryFailed
from penstock.protocol.errors import ErrorCode
from penstock.replication.log_dir_moves import LogDirMoves
from penstock.replication.partition import IsrProposal, Partition, PartitionObserver
from penstock.replication.throttle import ReplicationQuota

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
_DROPS_AT_A_TIME = 32


class Replication:
    """What goes on with other brokers. This one is for a broker that is alone: nobody to follow, nobody to ask."""

    leader_quota: ReplicationQuota | None = None
    controller_out_of_reach_s: float = 0.0

    def start(self) -> None: ...
    async def stop(self) -> None: ...
    def follow(self, partition: Partition) -> None: ...
    def unfollow(self, partition: Partition) -> None: ...
    def broker_moved(self, broker_id: int) -> None: ...
    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None: ...
    def topic_config_changed(self, topic: str, overrides: Mapping[str, str]) -> None: ...
    def broker_config_changed(self, overrides: Mapping[str, str]) -> None: ...


def _nobody_to_tell(partitions: list[TopicPartition]) -> None:
    """Without a controller elsewhere, off-line replicas concern nobody else."""


class HostedReplicas:
    """What `ReplicaManager` stands on: which replicas are here, and in which role."""

    def __init__(
        self, node_id: int, settings: Any, clock: Clock, log_manager: LogManager, replication: Replication | None
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.clock = clock
        self.log_manager = log_manager
        self.image = MetadataImage()
        self.partitions: dict[TopicPartition, Partition] = {}  # hosted here and on line
        self.offline: dict[TopicPartition, str] = {}  # hosted here, but their log directory failed: why
        self.missing: set[TopicPartition] = set()  # of those the ones whose logs were found nowhere
        self._loss_may_be_accepted = True
        self._observers: dict[str, PartitionObserver] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.replication: Replication = replication or Replication()
        self.moves = LogDirMoves(self)
        # KIP-392: Kafka's rack-aware selector is the one that there is; its class name is what settings carry.
        self._sends_to_racks = str(settings["replica.selector.class"] or "").endswith("RackAwareReplicaSelector")
        self.on_replicas_failed: Callable[[list[TopicPartition]], None] = _nobody_to_tell

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def hosting_error(self, topic: str, index: int) -> int:
        """Why `find` gave None."""
        if (topic, index) in self.offline:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.image.partition(topic, index) is not None:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- leadership ----------------------------------------------------------------------------------------------

    def observe(self, topic: str, observer: PartitionObserver) -> None:
        """Tell `observer` about this topic's partitions, beginning with those led already."""
        self._observers[topic] = observer
        for partition in list(self.partitions.values()):
            if partition.topic == topic:
                partition.observer = observer
                if partition.is_leader:
                    observer.on_leader(topic, partition.index, partition.leader_epoch)

    # -- metadata ------------------------------------------------------------------------------------------------

    async def prepare(self, delta: ImageDelta, image: MetadataImage) -> None:
        """Before `apply`: what takes long, without holding up the loop. Replicas of topics that are gone are dropped a
        few at a time, and the logs of new ones are begun in threads."""
        for name, topic_id in delta.topics_removed.items():
            for number, partition in enumerate(self._hosted(name, topic_id), 1):
                self._drop(partition, image)
                if number % _DROPS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        wanted: list[WantedLog] = []
        for name, change in delta.topics_changed.items():
            config = self.settings.log_config(dict(image.config("topic", name)))
            wanted += [
                WantedLog(name, index, change.topic_id, config)
                for index, assignment in change.partitions.items()
                if (name, index) not in self.partitions and self._may_begin(assignment)
            ]
        if wanted:
            await self.log_manager.begin_in_threads(wanted)

    def _may_begin(self, assignment: PartitionRegistration) -> bool:
        """A replica that was made once and is not there has lost its disk: begun anew, it might become leader and cut
        all others to nothing."""
        if self.node_id not in assignment.replicas:
            return False
        return assignment.new is None or self.node_id in assignment.new

    def _hosted(self, topic: str, topic_id: UUID) -> list[Partition]:
        return [p for p in self._by_topic.get(topic, {}).values() if p.topic_id == topic_id]

    def apply(self, delta: ImageDelta, image: MetadataImage) -> None:
        """Take in a new image: replicas come, go and change their roles."""
        first_image = self.image.version < 0
        self.image = image
        for name, topic_id in delta.topics_removed.items():
            for partition in self._hosted(name, topic_id):
                self._drop(partition, image)
            for key in [key for key in self.offline if key[0] == name]:
                self._forget_offline(key)
        if first_image:
            self._drop_strays()
        for kind, name in delta.configs_changed:
            if kind == "topic":
                self._update_topic_config(name)
            elif kind == "broker":
                own = {**image.config("broker", ""), **image.config("broker", str(self.node_id))}
                self.replication.broker_config_changed(own)
        led: list[str] = []
        missing: list[TopicPartition] = []
        for name, change in delta.topics_changed.items():
            for index, assignment in change.partitions.items():
                if self.node_id in assignment.replicas:
                    if not self._take_role(name, index, change.topic_id, assignment, led):
                        missing.append((name, index))
                else:
                    self._forget_offline((name, index))
                    hosted = self.partitions.get((name, index))
                    if hosted is not None:
                        self._drop(hosted, image)
        if missing:
            self._note_missing(missing)
            self._set_offline(missing, "its log is in none of the log directories in use")
        if led:  # one line for all: thousands come at a start
            logger.info("leading %s", ", ".join(led))
        if delta.brokers_changed or delta.brokers_removed:
            self._brokers_changed(delta)

    def broker_epoch(self, broker_id: int) -> int | None:
        """See `partition.Membership`."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.shutting_down or broker.fenced else broker.epoch

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def refresh_configs(self) -> None:
        """The broker's own defaults changed: every log takes them in."""
        for name in self._by_topic:
            self._update_topic_config(name)

    def _take_role(
        self, name: str, index: int, topic_id: UUID, assignment: PartitionRegistration, led: list[str]
    ) -> bool:
        """False: the log that should be here is not."""
        partition = self.partitions.get((name, index))
        if partition is not None and partition.topic_id != topic_id:
            self._drop(partition, self.image)
            partition = None
        if partition is None:
            partition = self._host(name, index, topic_id, assignment)
            if partition is None:
                return (name, index) in self.offline
        was_leader, old_leader = partition.is_leader, partition.leader_id
        if assignment.leader == self.node_id:
            if partition.become_leader(assignment):
                self.replication.unfollow(partition)
                led.append(f"{partition!r} from offset {partition.leader_epoch_start_offset}")
                if partition.observer is not None:
                    partition.observer.on_leader(name, index, partition.leader_epoch)
        elif partition.become_follower(assignment):
            self.replication.follow(partition)
            logger.info("following %r, leader %d (was %d)", partition, partition.leader_id, old_leader)
            if was_leader and partition.observer is not None:
                partition.observer.on_resign(name, index, partition.leader_epoch)
        return True

    def _host(self, name: str, index: int, topic_id: UUID, assignment: PartitionRegistration) -> Partition | None:
        if (name, index) in self.missing and self._may_begin(assignment):
            self._forget_offline((name, index))  # the operator has accepted its loss
        if (name, index) in self.offline:
            return None
        found = self.log_manager.get(name, index)
        if found is not None and found.topic_id is not None and found.topic_id != topic_id:
            # The log of a topic that had this name before.
            self._remove_log(name, index, found.topic_id, self.image)
            found = None
        if found is None and not self._may_begin(assignment):
            return None
        try:
            log = self.log_manager.get_or_create(name, index, topic_id, self._log_config(name))
        except (LogDirectoryFailed, OSError) as error:
            logger.error("no log for %s-%d: %s", name, index, error)
            self._set_offline([(name, index)], str(error))
            return None
        partition = Partition(
            name,
            index,
            topic_id,
            log,
            self.node_id,
            self.clock,
            self,
            self.replication.propose_isr,
            self.settings["replica.lag.time.max.ms"],
        )
        partition.observer = self._observers.get(name)
        partition.leader_quota = self.replication.leader_quota
        if self._sends_to_racks:
            partition.rack_of = self._rack_of
        self.partitions[(name, index)] = partition
        self._by_topic.setdefault(name, {})[index] = partition
        return partition

    def _drop(self, partition: Partition, image: MetadataImage) -> None:
        """The replica is no longer assigned to this broker: its log goes."""
        was_leader = partition.is_leader
        self._forget(partition, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if was_leader and partition.observer is not None:
            partition.observer.on_resign(partition.topic, partition.index, partition.leader_epoch)
        self._remove_log(partition.topic, partition.index, partition.topic_id, image)
        logger.info("dropped %s-%d", partition.topic, partition.index)

    def _forget_offline(self, key: TopicPartition) -> None:
        self.offline.pop(key, None)
        self.missing.discard(key)

    def _forget(self, partition: Partition, error: int) -> None:
        self.moves.cancel((partition.topic, partition.index))
        self.replication.unfollow(partition)
        self.partitions.pop((partition.topic, partition.index), None)
        hosted = self._by_topic.get(partition.topic, {})
        hosted.pop(partition.index, None)
        if not hosted:
            self._by_topic.pop(partition.topic, None)
        partition.close(error)

    def _drop_strays(self) -> None:
        """Logs that are not assigned to this broker; one without a topic id stays as it is."""
        for log in list(self.log_manager.logs()):
            if log.topic_id is None or log.topic_id.int == 0 or log.topic in self.image.unreadable:
                continue
            topic = self.image.topic(log.topic)
            assignment = None
            if topic is not None and topic.topic_id == log.topic_id:
                assignment = topic.partitions.get(log.partition)
            if assignment is None or self.node_id not in assignment.replicas:
                self._remove_log(log.topic, log.partition, log.topic_id, self.image)

    def _remove_log(self, name: str, index: int, topic_id: UUID, image: MetadataImage) -> None:
        """Delete what the cluster is known to have deleted or moved elsewhere. All else is set aside: a store that was
        wiped, or the wrong one, must not cost data."""
        topic = image.topic(name)
        assignment = topic.partitions.get(index) if topic is not None and topic.topic_id == topic_id else None
        has_moved = assignment is not None and self.node_id not in assignment.replicas
        if has_moved or topic_id in image.deleted:
            self.log_manager.delete(name, index)
        else:
            self.log_manager.set_aside(name, index)

    def _log_config(self, topic: str) -> Any:
        return self.settings.log_config(dict(self.image.config("topic", topic)))

    def _update_topic_config(self, topic: str) -> None:
        hosted = self._by_topic.get(topic)
        overrides = self.image.config("topic", topic)
        self.replication.topic_config_changed(topic, overrides)
        if not hosted:
            return
        config = self._log_config(topic)
        for partition in hosted.values():
            partition.log.update_config(config)
            partition.advance_high_watermark()  # min.insync.replicas may have been what held it

    def _brokers_changed(self, delta: ImageDelta) -> None:
        for broker_id in (*delta.brokers_removed, *delta.brokers_changed):
            if broker_id != self.node_id:
                self.replication.broker_moved(broker_id)
        for partition in list(self.partitions.values()):
            if partition.is_leader and partition.followers:
                partition.check_low_watermark()

    def given_up(self) -> Iterable[TopicPartition]:
        """Missing replicas that the operator has declared lost."""
        return self.missing if self.missing and self.log_manager.loss_is_accepted else ()

    def settle_losses(self) -> None:
        """After a whole image, never in the midst of one: part of it says nothing about what the rest will miss. The
        operator's word holds over restarts until every lost replica has been begun anew, or is not wanted here any
        more; topics that nobody can read may miss theirs."""
        if self._loss_may_be_accepted and not self.missing and not self.image.unreadable:
            self._loss_may_be_accepted = not self.log_manager.losses_made_good()

    def _note_missing(self, missing: list[TopicPartition]) -> None:
        self.missing.update(missing)
        self._loss_may_be_accepted = True
        names = ", ".join(f"{topic}-{index}" for topic, index in sorted(missing))
        if self.log_manager.loss_is_accepted:
            logger.warning("lost, as was accepted, and to be begun anew where somebody else leads: %s", names)
        else:
            logger.error(
                "in none of the log directories in use, so off line: %s; mount their disk and start again, or give "
                "them up with `penstock log accept-loss`",
                names,
            )

    # -- disks ---------------------------------------------------------------------------------------------------

    def directory_failed(self, directory: Path, logs: Iterable[Log]) -> None:
        """A log directory is gone: its replicas are off line until a restart, the others go on."""
        keys = [(log.topic, log.partition) for log in logs]
        for key in keys:
            partition = self.partitions.get(key)
            if partition is not None:
                was_leader = partition.is_leader
                self._forget(partition, int(ErrorCode.KAFKA_STORAGE_ERROR))
                if was_leader and partition.observer is not None:
                    partition.observer.on_resign(partition.topic, partition.index, partition.leader_epoch)
        self._set_offline(keys, f"log directory {directory} failed")

    def _set_offline(self, keys: list[TopicPartition], why: str) -> None:
        for key in keys:
            self.offline[key] = why
        if keys:
            self.on_replicas_failed(keys)
