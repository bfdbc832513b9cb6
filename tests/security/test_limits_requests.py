"""Requests that ask for very much in few bytes, or name very many things: others are served meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import RawClient, ensure_topic, frame, request_frame

import penstock
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.loop_watch import LoopWatch

STALL_SECONDS = 0.5


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    settings = {"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"}
    with penstock.Broker(num_partitions=1, settings=settings) as running:
        ensure_topic(running.port, "plain")
        yield running


def asked(broker: Any, name: str, version: int, small: Any, large: Any) -> tuple[Any, float]:
    """The answer, and the longest stall. The small request comes first: imports are no stall of the attack."""
    data = request_frame(name, version, large)
    with RawClient(broker.port, timeout=120) as client:
        client.call(name, version, small)
        with LoopWatch(broker) as watch:
            client.send(data)
            _, answer = client.read_response(name, version)
    return answer, watch.longest_seconds


def test_many_coordinators_are_looked_up_in_slices(broker: Any) -> None:
    api = messages.api("find_coordinator").load_all_versions()
    keys = [f"g{index}" for index in range(20_000)]
    small, large = (api.Request(key_type=0, coordinator_keys=some) for some in (["g"], keys))
    answer, stall = asked(broker, "find_coordinator", 4, small, large)
    assert len(answer.coordinators) == 20_000
    assert stall < STALL_SECONDS


def list_offsets(count: int) -> Any:
    api = messages.api("list_offsets").load_all_versions()
    partitions = [
        api.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in range(count)
    ]
    topic = api.ListOffsetsTopic(name="plain", partitions=partitions)
    return api.Request(replica_id=-1, isolation_level=0, topics=[topic])


def test_offsets_of_many_partitions_are_looked_up_in_slices(broker: Any) -> None:
    answer, stall = asked(broker, "list_offsets", 7, list_offsets(1), list_offsets(30_000))
    assert len(answer.topics[0].partitions) == 30_000
    assert stall < STALL_SECONDS


def fetch(count: int) -> Any:
    api = messages.api("fetch").load_all_versions()
    partitions = [
        api.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    topics = [api.FetchTopic(topic="plain", partitions=partitions)]
    return api.Request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1, topics=topics)


def test_many_partitions_are_fetched_in_slices(broker: Any) -> None:
    answer, stall = asked(broker, "fetch", 12, fetch(1), fetch(20_000))
    assert len(answer.responses[0].partitions) == 20_000
    assert stall < 3 * STALL_SECONDS  # they are parsed and written in one go


@pytest.mark.parametrize("name,key,version", [("list_offsets", 2, 7), ("fetch", 1, 12)])
def test_a_million_partitions_are_refused_before_they_are_read(broker: Any, name: str, key: int, version: int) -> None:
    body = struct.pack(">ib", -1, 0) + bytes(17_000_000)
    with LoopWatch(broker) as watch, RawClient(broker.port, timeout=60) as client:
        client.send(frame(key, version, body))
        assert client.is_closed()
    assert watch.longest_seconds < STALL_SECONDS


def test_the_limit_of_new_partitions_counts_the_request(broker: Any) -> None:
    api = messages.api("create_topics").load_all_versions()
    topics = [
        api.CreatableTopic(name=f"t{index}", num_partitions=10_000, replication_factor=1, assignments=[], configs=[])
        for index in range(200)
    ]
    small, large = (api.Request(topics=some, timeout_ms=1000, validate_only=True) for some in (topics[:1], topics))
    answer, stall = asked(broker, "create_topics", 5, small, large)
    assert {topic.error_code for topic in answer.topics} == {int(E.POLICY_VIOLATION)}
    assert stall < STALL_SECONDS


def test_a_broker_described_five_hundred_times_is_described_once(broker: Any) -> None:
    api = messages.api("describe_configs").load_all_versions()
    node = str(broker._broker.node_id)
    one = api.DescribeConfigsResource(resource_type=4, resource_name=node, configuration_keys=None)
    small, large = (api.Request(resources=[one] * count, include_synonyms=True) for count in (1, 500))
    answer, stall = asked(broker, "describe_configs", 4, small, large)
    assert len(answer.results) == 1
    assert stall < STALL_SECONDS
