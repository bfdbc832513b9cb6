"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs and DescribeTopicPartitions, over the wire."""

from __future__ import annotations

import time
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, metadata, produce_request

import penstock
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def client(broker: penstock.Broker) -> Any:
    with RawClient(broker.port) as connected:
        yield connected


def list_offsets(client: RawClient, topic: str, timestamp: int, version: int = 9, **fields: Any) -> Any:
    api = messages.api("list_offsets").load_all_versions()
    wanted = api.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
    request = api.Request(replica_id=-1, topics=[api.ListOffsetsTopic(name=topic, partitions=[wanted])])
    return client.call("list_offsets", version, request).topics[0].partitions[0]


def delete_records(client: RawClient, topic: str, offset: int, version: int = 2) -> Any:
    api = messages.api("delete_records")
    wanted = api.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = api.Request(topics=[api.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000)
    return client.call("delete_records", version, request).topics[0].partitions[0]


def fill(client: RawClient, topic: str, count: int, first_timestamp: int) -> None:
    for number in range(count):
        client.call("produce", 9, produce_request(topic, batch(b"v", timestamp=first_timestamp + number * 10)))


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_name_and_by_time(broker: penstock.Broker, client: RawClient, topic: str, version: int) -> None:
    ensure_topic(broker.port, topic)
    now = int(time.time() * 1000)
    fill(client, topic, 5, now)
    assert list_offsets(client, topic, -1, version).offset == 5
    assert list_offsets(client, topic, -2, version).offset == 0
    exact = list_offsets(client, topic, now + 20, version)
    assert (exact.error_code, exact.offset, exact.timestamp) == (0, 2, now + 20)
    beyond = list_offsets(client, topic, now + 1000, version)
    assert (beyond.error_code, beyond.offset) == (0, -1)
    newest = list_offsets(client, topic, -3, version)
    if version >= 7:
        assert (newest.offset, newest.timestamp) == (4, now + 40)
    else:
        assert newest.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_offsets_are_refused_as_kafka_refuses_them(broker: penstock.Broker, client: RawClient, topic: str) -> None:
    ensure_topic(broker.port, topic)
    assert list_offsets(client, "nowhere", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(client, topic, -99).error_code == ErrorCode.UNSUPPORTED_VERSION
    future = list_offsets(client, topic, -1, current_leader_epoch=99)
    assert future.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_deleted_records_are_gone_for_every_reader(broker: penstock.Broker, client: RawClient, topic: str) -> None:
    ensure_topic(broker.port, topic)
    fill(client, topic, 5, int(time.time() * 1000))
    assert delete_records(client, topic, 3).low_watermark == 3
    assert list_offsets(client, topic, -2).offset == 3
    fetched = client.call("fetch", 12, fetch_request(topic, 2)).responses[0].partitions[0]
    assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, -5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, -1).low_watermark == 5
    assert delete_records(client, "nowhere", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_end_of_an_epoch(broker: penstock.Broker, client: RawClient, topic: str) -> None:
    ensure_topic(broker.port, topic)
    fill(client, topic, 3, int(time.time() * 1000))
    api = messages.api("offset_for_leader_epoch")

    def ask(epoch: int, current: int = -1) -> Any:
        wanted = api.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = api.Request(replica_id=-1, topics=[api.OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        return client.call("offset_for_leader_epoch", 4, request).topics[0].partitions[0]

    found = ask(0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 3)
    unknown = ask(7)
    assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)
    assert ask(0, current=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(1, 6))
def test_log_folders_tell_their_replicas_and_sizes(
    broker: penstock.Broker, client: RawClient, topic: str, version: int
) -> None:
    ensure_topic(broker.port, topic)
    fill(client, topic, 2, int(time.time() * 1000))
    api = messages.api("describe_log_dirs").load_all_versions()
    wanted = api.DescribableLogDirTopic(topic=topic, partitions=[0])
    answer = client.call("describe_log_dirs", version, api.Request(topics=[wanted]))
    (folder,) = answer.results
    assert (folder.error_code, folder.log_dir) == (0, str(broker.folder))
    (row,) = folder.topics[0].partitions
    size = sum(file.stat().st_size for file in (broker.folder / f"{topic}-0").glob("*.log"))
    assert (row.partition_index, row.partition_size, row.offset_lag) == (0, size, 0)
    if version >= 4:
        assert folder.total_bytes >= folder.usable_bytes > 0


def test_topics_are_described_in_pages(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(num_partitions=3)
    for name in ("a", "b", "c"):
        ensure_topic(broker.port, name)
    api = messages.api("describe_topic_partitions")
    topic_request = api.request_struct("TopicRequest")
    seen: list[tuple[str, int]] = []
    with RawClient(broker.port) as client:
        cursor = None
        for _ in range(10):
            request = api.Request(
                topics=[topic_request(name=name) for name in ("a", "b", "c")], response_partition_limit=4, cursor=cursor
            )
            answer = client.call("describe_topic_partitions", 0, request)
            seen += [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
            if answer.next_cursor is None:
                break
            cursor = api.request_struct("Cursor")(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
        assert seen == [(name, index) for name in ("a", "b", "c") for index in range(3)]
        missing = client.call(
            "describe_topic_partitions",
            0,
            api.Request(topics=[topic_request(name="nowhere")], response_partition_limit=10),
        )
        assert missing.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_by_id_and_for_a_thousand_partitions(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(num_partitions=200)
    ids = {name: ensure_topic(broker.port, name) for name in ("a", "b")}
    api = messages.api("metadata").load_all_versions()
    wanted = api.request_struct("MetadataRequestTopic")
    with RawClient(broker.port) as client:
        answer = client.call(
            "metadata", 12, api.Request(topics=[wanted(name=None, topic_id=topic_id) for topic_id in ids.values()])
        )
        assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"a": 200, "b": 200}
        everything = client.call("metadata", 12, api.Request(topics=None))
        assert [topic.name for topic in everything.topics] == ["a", "b"]
        assert metadata(client, "unknown", create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert metadata(client, "unknown", create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
