"""Small words that lockstep with Apache Kafka found different: now ours are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record

TOPIC_RESOURCE = 2


@pytest.fixture(scope="module")
def client() -> Iterator[SyncClient]:
    import penstock

    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with (
        penstock.Broker(settings=settings) as broker,
        SyncClient.from_properties({"bootstrap.servers": broker.bootstrap}) as connected,
    ):
        yield connected


def configure(client: SyncClient, topic: str, name: str, value: str, operation: int = 0) -> int:
    api = messages.api("incremental_alter_configs")
    setting = api.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = api.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[setting])
    answer = client.call_any("incremental_alter_configs", api.Request(resources=[resource]))
    return int(answer.responses[0].error_code)


def test_what_could_never_be_set_is_said_before_that_the_topic_is_not_there(client: SyncClient) -> None:
    assert configure(client, "nowhere", "no.such.setting", "1") == ErrorCode.INVALID_CONFIG
    assert configure(client, "nowhere", "retention.ms", "soon") == ErrorCode.INVALID_CONFIG
    assert configure(client, "nowhere", "retention.ms", "1000", operation=2) == ErrorCode.INVALID_CONFIG
    assert configure(client, "nowhere", "retention.ms", "1000") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transactional_batch_of_nobody_is_asked_of_nobody(client: SyncClient) -> None:
    create = messages.api("create_topics")
    topic = create.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    client.call_any("create_topics", create.Request(topics=[topic], timeout_ms=30_000))
    api = messages.api("produce").load_all_versions()
    batch = build_batch([new_record(b"k", b"v", 1_700_000_000_000)], transactional=True)
    data = api.PartitionProduceData(index=0, records=batch)
    request = api.Request(
        transactional_id="x",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[api.TopicProduceData(name="t", partition_data=[data])],
    )
    answer: Any = client.call_any("produce", request, highest_version=12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 0), (5, -1)])
def test_a_marker_of_nobody_is_not_written(client: SyncClient, producer_id: int, epoch: int) -> None:
    api = messages.api("write_txn_markers").load_all_versions()
    topic = api.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = api.WritableTxnMarker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=True, coordinator_epoch=0, topics=[topic]
    )
    answer: Any = client.call_any("write_txn_markers", api.Request(markers=[marker]), highest_version=1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_of_versions_that_carry_ids_too_early_refuses_them(client: SyncClient, version: int) -> None:
    api = messages.api("metadata").load_all_versions()
    for topic in (
        api.MetadataRequestTopic(topic_id=UUID(int=5), name="t"),
        api.MetadataRequestTopic(topic_id=UUID(int=0), name=None),
    ):
        request = api.Request(topics=[topic], allow_auto_topic_creation=False)
        answer: Any = client.call_any("metadata", request, highest_version=version)
        assert [one.error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST]
