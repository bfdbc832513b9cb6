"""What can happen to a controller, and what it may answer: the input and output of the pure decision core.

Events come from watches (brokers, topics, deletions, configs), from other brokers (ISR changes, controlled shutdown,
acknowledged images), from administrators (elections, reassignments) and from a timer. `controller.decide` turns
(state, event) into a Decision; nothing here does I/O.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.cluster.image import BrokerRegistration, ConfigKey, ImageDelta, PartitionRegistration
from penstock.store.interface import Operation

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Which brokers shall hold a partition, as `/brokers/topics/T` records it."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The content of a topic's node with the node's version."""

    topic_id: uuid.UUID
    assignments: Mapping[int, ReplicaAssignment]
    version: int


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The registrations that exist now. A known id with another epoch is a broker that died and came back."""

    brokers: Mapping[int, BrokerRegistration]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topic nodes that are new or whose content changed, with the configs of the new ones."""

    topics: Mapping[str, TopicRecord]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletionsRequested:
    """Names below `/admin/delete_topics`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """The complete new overrides of each changed resource (empty: none left)."""

    configs: Mapping[ConfigKey, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class IsrMember:
    broker_id: int
    broker_epoch: int = -1
    """-1: the leader does not know it."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A leader asks for a new ISR of one partition. Name the topic by id, or by name where there is no id."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    topic_id: uuid.UUID | None = None
    topic: str | None = None
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """AlterPartition (key 56) from one leader broker."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True)
class IsrChangeAnswer:
    """`partition` is what the controller has on record now; None when the partition is unknown."""

    topic: str
    topic_id: uuid.UUID | None
    index: int
    error_code: int
    partition: PartitionRegistration | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionsAnswer:
    """A non-zero top `error_code` (STALE_BROKER_EPOCH, NOT_CONTROLLER) means that nothing was looked at."""

    error_code: int
    changes: tuple[IsrChangeAnswer, ...] = ()


class ElectionKind(enum.IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """ElectLeaders (key 43); `partitions` None means all of them (and only what changed is answered)."""

    kind: ElectionKind
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """AlterPartitionReassignments (key 45): the wanted replicas by partition, None to cancel."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    error_code: int
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to leave in peace: its leaderships move, it leaves all ISRs."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControlledShutdownAnswer:
    error_code: int
    remaining: tuple[TopicPartition, ...] = ()
    """Partitions that it still leads because nobody else can."""


@dataclass(frozen=True, slots=True)
class ReplicasFailed:
    """A live broker lost the log directories that hold these replicas."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ImageAcknowledged:
    """A broker has applied everything up to this version of the current controller epoch. So it has made the replicas
    that were new then, except those that it names as off line (None: it does not tell) or as unmade."""

    broker_id: int
    broker_epoch: int
    version: int
    offline: tuple[TopicPartition, ...] | None = ()
    given_up: tuple[TopicPartition, ...] = ()
    """Of the off-line ones those whose data an operator has declared lost: they may be begun anew."""
    unmade: tuple[TopicPartition, ...] = ()
    """Served already, but without a folder that a crash would leave behind: they stay new."""


@dataclass(frozen=True, slots=True)
class BrokersSilent:
    """Registered brokers (with their epochs) that the controller has not heard for too long."""

    brokers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ImbalanceCheck:
    """The timer of auto.leader.rebalance.enable."""


Event = (
    BrokersChanged
    | TopicsChanged
    | DeletionsRequested
    | ConfigsChanged
    | AlterPartitions
    | ElectLeaders
    | AlterReassignments
    | ControlledShutdown
    | ReplicasFailed
    | ImageAcknowledged
    | BrokersSilent
    | ImbalanceCheck
)

Answer = AlterPartitionsAnswer | ControlledShutdownAnswer | Mapping[TopicPartition, PartitionAnswer] | None
"""ElectLeaders and AlterReassignments answer with a mapping; events from watches with None."""


class Stage(enum.IntEnum):
    NOTES = 0
    STATES = 1
    ASSIGNMENTS = 2


@dataclass(frozen=True, slots=True)
class StoreWrite:
    """Operations that happen together. The driver puts the check of the controller epoch in front of them.

    A decision too large for one transaction is stored stage by stage, and after a crash any part of one stage may be
    there. Every such part is a valid state, because first comes what only warns (new replicas, tombstones), then the
    partitions' states, which fit the assignments before as well as after, then the assignments."""

    operations: tuple[Operation, ...]
    stage: Stage


@dataclass(frozen=True, slots=True)
class DecisionOutput:
    """First all `writes` are made, then the trees of `removals` deleted, each step under the check of the controller
    epoch; when (and only when) that is done, `delta` goes out and `answer` is given."""

    writes: tuple[StoreWrite, ...]
    removals: tuple[str, ...]
    """Nodes to delete with everything below them, in this order."""
    delta: ImageDelta | None
    answer: Answer = None
