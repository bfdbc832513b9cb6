"""Requests that ask for very much in few bytes, or name very many things: others are served meanwhile."""

from __future__ import annotations

import gc
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
_NOT_YET = (int(E.COORDINATOR_LOAD_IN_PROGRESS), int(E.NOT_COORDINATOR), int(E.COORDINATOR_NOT_AVAILABLE))
SLICE_SECONDS = 0.1  # a slice takes some milliseconds; the rest is for the collector and a processor that is shared


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
        gc.disable()  # an embedded broker leaves it to its host; a broker of its own collects seldom
        try:
            with LoopWatch(broker) as watch:
                client.send(data)
                _, answer = client.read_response(name, version)
        finally:
            gc.enable()
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
    answer, stall = asked(broker, "list_offsets", 7, list_offsets(1), list_offsets(50_000))
    assert len(answer.topics[0].partitions) == 50_000
    assert stall < SLICE_SECONDS


def fetch(count: int) -> Any:
    api = messages.api("fetch").load_all_versions()
    partitions = [
        api.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    topics = [api.FetchTopic(topic="plain", partitions=partitions)]
    return api.Request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1, topics=topics)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["alone", "in a session"])
def test_many_partitions_are_fetched_in_slices(broker: Any, epoch: int) -> None:
    large = fetch(50_000)
    large.session_epoch = epoch
    answer, stall = asked(broker, "fetch", 12, fetch(1), large)
    assert [partition.partition_index for partition in answer.responses[0].partitions] == list(range(50_000))
    assert (answer.session_id > 0) == (epoch == 0)
    assert stall < SLICE_SECONDS


def test_a_large_fetch_goes_on_as_a_session(broker: Any) -> None:
    """What is changed, added and forgotten in large requests is what later answers hold."""
    api = messages.api("fetch").load_all_versions()
    with RawClient(broker.port, timeout=120) as client:
        first = fetch(4000)
        first.session_epoch = 0
        session_id = client.call("fetch", 12, first).session_id
        more = fetch(7000)
        more.session_id, more.session_epoch = session_id, 1
        more.forgotten_topics_data = [api.ForgottenTopic(topic="plain", partitions=list(range(1, 6999)))]
        assert client.call("fetch", 12, more).session_id == session_id
        rest = fetch(0)
        rest.session_id, rest.session_epoch, rest.topics = session_id, 2, []
        client.call("fetch", 12, rest)
    assert [index for _, index in broker._broker.fetch_sessions.sessions[session_id].partitions] == [0, 6999]


def test_somebody_who_is_no_follower_is_told_so_for_each_partition(broker: Any) -> None:
    large = fetch(50_000)
    large.replica_id = 7
    answer, stall = asked(broker, "fetch", 12, fetch(1), large)
    assert {row.error_code for row in answer.responses[0].partitions} == {int(E.TOPIC_AUTHORIZATION_FAILED)}
    assert stall < SLICE_SECONDS


@pytest.mark.parametrize("name", ["list_offsets", "fetch"])
def test_a_large_request_that_is_cut_short_is_refused(broker: Any, name: str) -> None:
    data = request_frame(name, 7, (list_offsets if name == "list_offsets" else fetch)(30_000))[:-3]
    with RawClient(broker.port, timeout=60) as client:
        client.send(struct.pack(">i", len(data) - 4) + data[4:])
        assert client.is_closed()


@pytest.mark.parametrize("name,key,version", [("list_offsets", 2, 7), ("fetch", 1, 12)])
def test_a_million_partitions_are_refused_before_they_are_read(broker: Any, name: str, key: int, version: int) -> None:
    data = frame(key, version, struct.pack(">ib", -1, 0) + bytes(17_000_000))
    with LoopWatch(broker) as watch, RawClient(broker.port, timeout=60) as client:
        client.send(data[:100])  # nobody waits for the rest
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


@pytest.mark.parametrize("key,version", [(18, 3), (0, 9), (1, 12), (3, 12)])
def test_nobody_counts_tagged_fields_by_the_million(broker: Any, key: int, version: int) -> None:
    """Before a login, too: a header's were skipped one by one, 0.6 s for 4 MB."""
    header = struct.pack(">hhih", key, version, 7, -1)
    data = header + b"\x80\x89\x7a" + bytes(2 * 2_000_000)  # so many of them, each of tag 0 and empty
    with LoopWatch(broker) as watch, RawClient(broker.port, timeout=60) as client:
        client.send(struct.pack(">i", len(data)) + data)
        assert client.is_closed()
    assert watch.longest_seconds < SLICE_SECONDS


def metadata_of(count: int) -> Any:
    api = messages.api("metadata").load_all_versions()
    topic = api.request_struct("MetadataRequestTopic")
    return api.Request(topics=[topic(name=f"n{index}") for index in range(count)], allow_auto_topic_creation=False)


def test_metadata_of_many_topics_is_told_in_slices(broker: Any) -> None:
    answer, stall = asked(broker, "metadata", 9, metadata_of(2), metadata_of(120_000))
    assert [topic.name for topic in answer.topics] == [f"n{index}" for index in range(120_000)]
    assert {topic.error_code for topic in answer.topics} == {int(E.UNKNOWN_TOPIC_OR_PARTITION)}
    assert stall < SLICE_SECONDS


def commit_of(count: int) -> Any:
    api = messages.api("offset_commit").load_all_versions()
    partition = api.request_struct("OffsetCommitRequestPartition")
    partitions = [partition(partition_index=0, committed_offset=index, committed_metadata="") for index in range(count)]
    topic = api.request_struct("OffsetCommitRequestTopic")(name="plain", partitions=partitions)
    return api.Request(group_id="many", generation_id_or_member_epoch=-1, member_id="", topics=[topic])


def test_more_offsets_than_a_batch_holds_are_refused(broker: Any) -> None:
    answer, stall = asked(broker, "offset_commit", 8, commit_of(1), commit_of(150_000))
    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [int(E.INVALID_COMMIT_OFFSET_SIZE)] * 150_000
    assert stall < SLICE_SECONDS


def positions_of(count: int) -> Any:
    api = messages.api("offset_fetch").load_all_versions()
    topic = api.OffsetFetchRequestTopic(name="plain", partition_indexes=list(range(count)))
    return api.Request(group_id="many", topics=[topic])


def test_positions_of_many_partitions_are_looked_up_in_slices(broker: Any) -> None:
    answer, stall = asked(broker, "offset_fetch", 6, positions_of(1), positions_of(200_000))
    assert [row.partition_index for row in answer.topics[0].partitions] == list(range(200_000))
    assert {row.committed_offset for row in answer.topics[0].partitions[1:]} == {-1}
    assert stall < STALL_SECONDS  # most of it is for letting go of so many objects


def test_other_lists_of_very_many_elements_are_refused(broker: Any) -> None:
    api = messages.api("leave_group").load_all_versions()
    members = [api.request_struct("MemberIdentity")(member_id="m") for _ in range(20_001)]
    with RawClient(broker.port, timeout=60) as client:
        answer = client.call("leave_group", 5, api.Request(group_id="g", members=members[:20_000]))
        assert len(answer.members) in (0, 20_000)
        client.send(request_frame("leave_group", 5, api.Request(group_id="g", members=members)))
        assert client.is_closed()


def heartbeat(pattern: str) -> Any:
    api = messages.api("consumer_group_heartbeat").load_all_versions()
    return api.Request(
        group_id=f"readers of {pattern}",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=None,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )


def test_patterns_are_matched_beside_the_loop(broker: Any) -> None:
    """Such a pattern takes some 15 ms for each name; sixty of them took 276 ms at a time."""
    names = [f"{index:02}-{'a' * 200}" for index in range(60)]
    with RawClient(broker.port, timeout=60) as client:
        api = messages.api("create_topics").load_all_versions()
        topics = [api.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        client.call("create_topics", 5, api.Request(topics=topics, timeout_ms=30_000))
        while (answer := client.call("consumer_group_heartbeat", 1, heartbeat("0.-a*"))).error_code in _NOT_YET:
            pass
        assert len(answer.assignment.topic_partitions) == 10
    costly = heartbeat("(((a|b|.){0,30}){0,30})+")
    answer, stall = asked(broker, "consumer_group_heartbeat", 1, heartbeat("plain"), costly)
    assert answer.error_code == 0
    assert len(answer.assignment.topic_partitions) >= 60
    assert stall < SLICE_SECONDS


@pytest.mark.parametrize("pattern", ["(", r"\pL{0,900}x", "(((.{0,30}){0,30})+x|" * 20 + "y" + ")" * 20])
def test_what_is_no_pattern_or_too_much_of_one_is_refused(broker: Any, pattern: str) -> None:
    answer, stall = asked(broker, "consumer_group_heartbeat", 1, heartbeat("plain"), heartbeat(pattern))
    assert answer.error_code == int(E.INVALID_REGULAR_EXPRESSION)
    assert stall < SLICE_SECONDS
