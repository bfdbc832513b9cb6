"""The metadata image: what a broker knows about its cluster, immutable, and the deltas that lead from one to the next.

Only the controller makes deltas. A broker holds exactly one image and replaces it by `image.apply(delta)`; a full image
that arrives after a gap is turned into a delta by `delta_between`, so that whoever reacts to changes sees (delta,
image) in both cases. (controller_epoch, version) orders images: versions grow by one per delta within a controller
epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

NO_LEADER = -1
NO_BROKER = -1
ConfigKey = tuple[str, str]
"""(type, name): type is "topic", "broker", "user", "client", "ip" or "group"; a broker's name is its id or "" for the
cluster-wide default; a user's quotas for one client stand under ("user", "<user>/clients/<client>"), names as in the
store."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that holds a live registration."""

    broker_id: int
    epoch: int
    """czxid of its registration node: tells one life of the broker from the next."""
    endpoints: Mapping[str, Endpoint]
    """By listener name."""
    rack: str | None = None
    shutting_down: bool = False
    """In controlled shutdown: may not lead and may not join an ISR."""
    fenced: bool = False
    """Registered, but out of the controller's reach: the same."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    incarnation: int = -1
    """Epoch of the first registration of the same process; -1: this is the first."""
    clean_since: int = -1
    clean_stop: int = -1
    """The first and the last registration of the process before, if it stopped in peace: its logs are all here."""
    machine: str | None = None
    """Brokers that name the same one die together; None: this one stands alone."""


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    replicas: tuple[int, ...]
    """In order of preference; during a reassignment the target ones come first."""
    isr: tuple[int, ...]
    leader: int
    """NO_LEADER when none is eligible."""
    leader_epoch: int
    partition_epoch: int
    """Version of the partition's state node: grows with every change of leader or ISR."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    """Replicas whose log directory failed although their broker lives."""
    recovering: bool = False
    """The leader came from an unclean election and has not recovered yet."""
    min_isr: int = 0
    """min.insync.replicas of the topic, but never more than there are replicas; 0: from a controller that did not say
    it."""
    eligible: tuple[int, ...] = ()
    """The ELR: replicas outside of the ISR that have all that was committed (`cluster.eligible`)."""
    eligible_epochs: tuple[int, ...] = ()
    """The registrations under which they had it."""
    last_known: tuple[int, ...] = ()
    """Who led last when the ISR became empty."""
    new: tuple[int, ...] | None = field(default=None, compare=False)
    """Replicas that their brokers have not confirmed to have made. Any other replica holds data: where it is not
    found, its disk is gone and it must not be begun anew. None: nobody keeps record, what is missing is begun. Nobody
    needs to be told when a replica ceases to be new, so this is no part of what makes two registrations differ."""

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The way from the image (controller_epoch, base_version) to (controller_epoch, version)."""

    controller_id: int
    controller_epoch: int
    base_version: int
    version: int
    brokers_changed: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    brokers_removed: tuple[int, ...] = ()
    topics_removed: Mapping[str, uuid.UUID] = field(default_factory=dict)
    """Removed before `topics_changed` is applied: a topic deleted and made anew is in both, with two ids."""
    topics_changed: Mapping[str, TopicImage] = field(default_factory=dict)
    """Each with only the partitions that are new or changed."""
    configs_changed: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    """The complete new overrides of each changed resource; empty means none are left."""

    @property
    def is_empty(self) -> bool:
        return not (
            self.brokers_changed
            or self.brokers_removed
            or self.topics_removed
            or self.topics_changed
            or self.configs_changed
        )


@dataclass(frozen=True)
class MetadataImage:
    cluster_id: str = ""
    controller_id: int = NO_BROKER
    controller_epoch: int = -1
    version: int = -1
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    deleted: frozenset[uuid.UUID] = field(default=frozenset(), compare=False)
    """Topics that are known to be deleted: in a full image those whose replicas some broker still has to drop, after a
    delta those that it removed. A topic that is merely not there proves nothing."""
    unreadable: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Topics whose nodes the controller cannot read, and why: they stay as each broker knows them."""

    @cached_property
    def topic_names_by_bytes(self) -> Mapping[bytes, str]:
        """Topic names by the 16 raw bytes of their ids, for paths that never build UUID objects."""
        return {topic_id.bytes: name for topic_id, name in self.topic_names.items()}

    def hears(self, broker_id: int) -> bool:
        """Whether the broker is registered and within the controller's reach."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return self.topic_names.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        found = self.topics.get(topic)
        return found.partitions.get(index) if found is not None else None

    def config(self, kind: str, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty when there are none."""
        return self.configs.get((kind, name), {})

    def is_behind(self, controller_epoch: int, version: int) -> bool:
        return (self.controller_epoch, self.version) < (controller_epoch, version)

    def apply(self, delta: ImageDelta) -> MetadataImage:
        brokers, topics = dict(self.brokers), dict(self.topics)
        names, configs = dict(self.topic_names), dict(self.configs)
        for broker_id in delta.brokers_removed:
            brokers.pop(broker_id, None)
        brokers.update(delta.brokers_changed)
        for name, topic_id in delta.topics_removed.items():
            if name in topics and topics[name].topic_id == topic_id:
                del topics[name]
            names.pop(topic_id, None)
        for name, change in delta.topics_changed.items():
            old = topics.get(name)
            if old is not None and old.topic_id == change.topic_id:
                change = replace(change, partitions={**old.partitions, **change.partitions})
            topics[name] = change
            names[change.topic_id] = name
        for key, overrides in delta.configs_changed.items():
            if overrides:
                configs[key] = overrides
            else:
                configs.pop(key, None)
        return MetadataImage(
            cluster_id=self.cluster_id,
            controller_id=delta.controller_id,
            controller_epoch=delta.controller_epoch,
            version=delta.version,
            brokers=brokers,
            topics=topics,
            configs=configs,
            topic_names=names,
            deleted=frozenset(delta.topics_removed.values()),
            unreadable=self.unreadable,
        )

    def keeping_unreadable(self, known: MetadataImage) -> MetadataImage:
        """This full image, with the topics that its sender could not read as `known` has them."""
        kept = {name: known.topics[name] for name in self.unreadable if name in known.topics}
        if not kept:
            return self
        configs = {("topic", name): known.config("topic", name) for name in kept if known.config("topic", name)}
        return replace(
            self,
            topics={**self.topics, **kept},
            topic_names={**self.topic_names, **{topic.topic_id: name for name, topic in kept.items()}},
            configs={**self.configs, **configs},
        )


def delta_between(old: MetadataImage, new: MetadataImage) -> ImageDelta:
    """What changed from `old` to `new`, for a broker that got a full image after it missed some."""
    removed = {
        name: topic.topic_id
        for name, topic in old.topics.items()
        if name not in new.topics or new.topics[name].topic_id != topic.topic_id
    }
    changed: dict[str, TopicImage] = {}
    for name, topic in new.topics.items():
        known = old.topics.get(name)
        before = known.partitions if known is not None and known.topic_id == topic.topic_id else {}
        partitions = {index: p for index, p in topic.partitions.items() if before.get(index) != p}
        if partitions or known is None or name in removed:
            changed[name] = replace(topic, partitions=partitions)
    configs: dict[ConfigKey, Mapping[str, str]] = {
        key: overrides for key, overrides in new.configs.items() if old.configs.get(key) != overrides
    }
    configs.update({key: {} for key in old.configs if key not in new.configs})
    return ImageDelta(
        controller_id=new.controller_id,
        controller_epoch=new.controller_epoch,
        base_version=old.version,
        version=new.version,
        brokers_changed={i: b for i, b in new.brokers.items() if old.brokers.get(i) != b},
        brokers_removed=tuple(sorted(i for i in old.brokers if i not in new.brokers)),
        topics_removed=removed,
        topics_changed=changed,
        configs_changed=configs,
    )


def in_parts(delta: ImageDelta, partitions_per_part: int) -> Iterator[ImageDelta]:
    """The same changes as several deltas with at most so many partitions each, for receivers that must not stand still
    for long. Removals and configs come with the first part, brokers with the last."""
    rows = [(topic, index) for topic in delta.topics_changed.values() for index in topic.partitions]
    if len(rows) <= partitions_per_part:
        yield delta
        return
    starts = range(0, len(rows), partitions_per_part)
    for start in starts:
        changed: dict[str, TopicImage] = {}
        for topic, index in rows[start : start + partitions_per_part]:
            part = changed.get(topic.name)
            partitions = {**(part.partitions if part else {}), index: topic.partitions[index]}
            changed[topic.name] = replace(topic, partitions=partitions)
        is_first, is_last = start == 0, start == starts[-1]
        yield replace(
            delta,
            topics_changed=changed,
            topics_removed=delta.topics_removed if is_first else {},
            configs_changed=delta.configs_changed if is_first else {},
            brokers_changed=delta.brokers_changed if is_last else {},
            brokers_removed=delta.brokers_removed if is_last else (),
        )
