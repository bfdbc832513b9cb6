"""Topics that come into being because somebody needs them: asked about by a client, or internal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.topics import NewTopic
from penstock.protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

CREATE_TIMEOUT_MS = 30_000


def internal_topic(broker: Broker, name: str) -> NewTopic | None:
    """The shape of an internal topic by this broker's settings; None for other names."""
    settings = broker.settings
    if name == "__consumer_offsets":
        return NewTopic(
            name,
            settings["offsets.topic.num.partitions"],
            settings["offsets.topic.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings["offsets.topic.segment.bytes"]),
            },
        )
    if name == "__transaction_state":
        return NewTopic(
            name,
            settings["transaction.state.log.num.partitions"],
            settings["transaction.state.log.replication.factor"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(settings["transaction.state.log.segment.bytes"]),
                "min.insync.replicas": str(settings["transaction.state.log.min.isr"]),
                "unclean.leader.election.enable": "false",
            },
        )
    return None


async def auto_create(broker: Broker, name: str) -> str | None:
    """Create a topic with the defaults of this broker; what went wrong, or None. Being there already is fine."""
    topic = internal_topic(broker, name) or NewTopic(name)
    (answer,) = await broker.member.topics.create([topic], CREATE_TIMEOUT_MS)
    if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return None
    return answer.message or error_name(answer.error_code)
