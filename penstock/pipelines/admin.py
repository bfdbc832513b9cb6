"""The few administrative calls that pipelines make: create a topic if it is not there, write a record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client import records
from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import Record, new_record

COPIES: Final = 3


async def ensure_topic(
    client: Client,
    name: str,
    *,
    partitions: int = -1,
    settings: Mapping[str, str] | None = None,
    internal: bool = False,
) -> None:
    """Create the topic unless it is there; -1: the cluster's default. An internal one gets three copies if it can."""
    view = await client.metadata([name])
    known = view.topics.get(name)
    if known is not None and not known.error_code:
        return
    api = messages.api("create_topics")
    config = api.request_struct("CreatableTopicConfig")
    topic = api.request_struct("CreatableTopic")(
        name=name,
        num_partitions=partitions,
        replication_factor=min(COPIES, len(view.brokers)) if internal and view.brokers else -1,
        assignments=[],
        configs=[config(name=key, value=value) for key, value in (settings or {}).items()],
    )
    answer = await client.call_controller("create_topics", api.Request(topics=[topic], timeout_ms=30_000))
    code = answer.topics[0].error_code
    if code and code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(code, f"create topic {name}", answer.topics[0].error_message)
    await client.leader_connection(name, 0)  # waits until it has a leader


async def write(
    client: Client,
    topic: str,
    partition: int,
    entries: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]],
) -> int:
    """Append (key, value, headers) to a partition, acknowledged by all; the first one's offset."""
    now_ms = int(time.time() * 1000)
    made: list[Record] = [new_record(key, value, now_ms, tuple(headers)) for key, value, headers in entries]
    return (await records.produce(client, topic, partition, build_batch(made))).base_offset
