"""What the parts of one group shard share: settings, timers, time, randomness, topics, the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.journal import RebalanceEntry
from penstock.coordinator.timers import Timers

__all__ = ["GroupContext", "TopicInfo", "Topics"]


class TopicInfo(NamedTuple):
    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()
    """Racks of each partition's replicas, where brokers have racks."""


class Topics(Protocol):
    """The topics of the cluster, as the newest metadata image has them."""

    def by_name(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: UUID) -> TopicInfo | None: ...

    def names(self) -> list[str]: ...

    def version(self) -> int:
        """Grows with every change of the set of topics or of a topic."""


class NoTopics:
    """An empty cluster."""

    def by_name(self, name: str) -> TopicInfo | None:
        return None

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return None

    def names(self) -> list[str]:
        return []

    def version(self) -> int:
        return 0


def _nothing(_entry: RebalanceEntry) -> None:
    """Nobody reads the journal."""


@dataclass
class GroupContext:
    config: GroupConfig
    timers: Timers
    topics: Topics = field(default_factory=NoTopics)
    new_uuid: Callable[[], UUID] = uuid4
    record_rebalance: Callable[[RebalanceEntry], None] = _nothing
    group_overrides: Callable[[str], Mapping[str, str] | None] = lambda _group_id: None
