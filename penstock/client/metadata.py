"""What a client knows about the cluster: brokers, topics, who leads which partition. Immutable, replaced on refresh."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BrokerAddress", "ClusterView", "PartitionView", "TopicView"]


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    index: int
    leader_id: int  # -1: none
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, PartitionView]
    error_code: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    @classmethod
    def from_response(cls, response: Any) -> ClusterView:
        return cls(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers={b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
            topics={topic.name: _topic(topic) for topic in response.topics if topic.name is not None},
        )

    def merged_with(self, newer: ClusterView, all_topics: bool) -> ClusterView:
        """Keep what we knew about topics that the newer answer was not asked about."""
        topics = newer.topics if all_topics else {**self.topics, **newer.topics}
        return ClusterView(newer.cluster_id, newer.controller_id, newer.brokers, topics)

    def leader(self, topic: str, partition: int) -> int:
        """The leader's id, or -1 when there is none or we do not know."""
        view = self.topics.get(topic)
        found = view.partitions.get(partition) if view else None
        return found.leader_id if found else -1


def _topic(topic: Any) -> TopicView:
    partitions = {
        p.partition_index: PartitionView(
            index=p.partition_index,
            leader_id=p.leader_id,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            isr=tuple(p.isr_nodes),
            offline_replicas=tuple(p.offline_replicas),
            error_code=p.error_code,
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return TopicView(topic.name, topic.topic_id, topic.is_internal, partitions, topic.error_code)
