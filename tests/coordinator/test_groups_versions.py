"""Every version of every group API, asked over the wire: answers decode, and say the same in each version.

The same questions go to Apache Kafka, which must give the answers that we expect of ourselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.embedded import EmbeddedBroker
from penstock.client.connection import Connection
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import subscription


class Asked(Protocol):
    """Whoever answers: our broker or Kafka."""

    @property
    def bootstrap(self) -> str: ...


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=pytest.mark.java)])
def broker(request: pytest.FixtureRequest) -> Iterator[Asked]:
    if request.param == "kafka":
        kafka: Asked = request.getfixturevalue("apache_kafka")
        prepare(kafka)
        yield kafka
        return
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with EmbeddedBroker(settings=settings) as running:
        prepare(running)
        yield running


def prepare(broker: Asked) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if "t" not in admin.list_topics(timeout=120).topics:  # Kafka is shared with other stories
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(120)
    ask(broker, lambda connection: find(connection, "g", 6))


def ask(broker: Asked, story: Callable[[Connection], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        host, _, port = broker.bootstrap.partition(":")
        connection = await Connection.open(host, int(port), "versions")
        try:
            return await story(connection)
        finally:
            connection.close()

    return asyncio.run(run())


async def find(connection: Connection, group: str, version: int) -> Any:
    api = messages.api("find_coordinator").load_all_versions()
    request = api.Request(key_type=0, coordinator_keys=[group])
    request.key = group
    for _ in range(600):
        answer = await connection.request("find_coordinator", request, version)
        found = answer.coordinators[0] if version >= 4 else answer
        if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("no coordinator after half a minute")


async def commit(connection: Connection, group: str, offset: int, version: int, topic_id: Any = None) -> int:
    await find(connection, group, 4)
    api = messages.api("offset_commit").load_all_versions()
    partition = api.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="note"
    )
    topic = api.OffsetCommitRequestTopic(partitions=[partition])
    topic.name = "t"
    if topic_id is not None:
        topic.topic_id = topic_id
    request = api.Request(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    for _ in range(600):
        answer = await connection.request("offset_commit", request, version)
        code = int(answer.topics[0].partitions[0].error_code)
        if code not in (14, 15, 16):  # a coordinator that has just been made still loads
            return code
        await asyncio.sleep(0.05)
    raise AssertionError("the coordinator never gets ready")


async def topic_id(connection: Connection) -> Any:
    api = messages.api("metadata")
    topic = api.MetadataRequestTopic()
    topic.name = "t"
    answer = await connection.request("metadata", api.Request(topics=[topic]), 12)
    return answer.topics[0].topic_id


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(broker: Asked, version: int) -> None:
    found = ask(broker, lambda connection: find(connection, "g", version))
    assert found.error_code == 0
    assert f"{found.host}:{found.port}" == broker.bootstrap
    if version >= 1:
        assert found.error_message == ("NONE" if version < 4 else "")


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(broker: Asked, version: int) -> None:
    async def story(connection: Connection) -> int:
        wanted = await topic_id(connection) if version >= 10 else None
        return await commit(connection, f"commit-{version}", 5, version, wanted)

    assert ask(broker, story) == 0


@pytest.mark.parametrize("all_topics", [False, True])
@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(broker: Asked, version: int, all_topics: bool) -> None:
    if all_topics and version < 2:
        pytest.skip("null topics came with version 2")

    async def story(connection: Connection) -> Any:
        wanted = await topic_id(connection)
        assert await commit(connection, "fetch", 7, 8) == 0
        api = messages.api("offset_fetch").load_all_versions()
        group = api.OffsetFetchRequestGroup(group_id="fetch", member_id=None, member_epoch=-1)
        topics = api.OffsetFetchRequestTopics(partition_indexes=[0, 1])
        topics.name, topics.topic_id = "t", wanted
        group.topics = None if all_topics else [topics]
        single = api.OffsetFetchRequestTopic(partition_indexes=[0, 1])
        single.name = "t"
        request = api.Request(require_stable=False, groups=[group], group_id="fetch")
        request.topics = None if all_topics else [single]
        answer = await connection.request("offset_fetch", request, version)
        if version >= 8:
            answer = answer.groups[0]
        assert version < 2 or answer.error_code == 0
        return {p.partition_index: (p.committed_offset, p.metadata) for t in answer.topics for p in t.partitions}

    expected = {0: (7, "note")} if all_topics else {0: (7, "note"), 1: (-1, "")}
    assert ask(broker, story) == expected


@pytest.mark.parametrize("version", range(10))
def test_a_life_in_a_classic_group(broker: Asked, version: int) -> None:
    """Join, sync, heartbeat and leave, each in the highest version that is not above `version`."""
    group = f"life-{version}"

    async def story(connection: Connection) -> None:
        join_api, sync_api = messages.api("join_group"), messages.api("sync_group")
        request = join_api.Request(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[join_api.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        joined = await connection.request("join_group", request, version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            request.member_id = joined.member_id
            joined = await connection.request("join_group", request, version)
        assert joined.error_code == 0
        assert joined.leader == joined.member_id
        assert [member.member_id for member in joined.members] == [joined.member_id]
        share = sync_api.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = await connection.request(
            "sync_group",
            sync_api.Request(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[share],
            ),
            min(version, 5),
        )
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        beat = messages.api("heartbeat").Request(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert (await connection.request("heartbeat", beat, min(version, 4))).error_code == 0
        described = await describe(connection, group, min(version, 6))
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        assert described.members[0].member_assignment == b"mine"
        leave_api = messages.api("leave_group").load_all_versions()
        leave = leave_api.Request(group_id=group)
        leave.member_id = joined.member_id
        leave.members = [leave_api.MemberIdentity(member_id=joined.member_id)]
        assert (await connection.request("leave_group", leave, min(version, 5))).error_code == 0
        assert (await describe(connection, group, min(version, 6))).group_state == "Empty"
        listed = await connection.request(
            "list_groups",
            messages.api("list_groups").Request(states_filter=["empty"], types_filter=["Classic"]),
            min(version, 5),
        )
        assert group in {entry.group_id for entry in listed.groups}
        deleted = await connection.request(
            "delete_groups", messages.api("delete_groups").Request(groups_names=[group]), min(version, 2)
        )
        assert deleted.results[0].error_code == 0
        gone = await describe(connection, group, min(version, 6))
        assert gone.group_state == "Dead"
        assert gone.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)

    ask(broker, story)


async def describe(connection: Connection, group: str, version: int) -> Any:
    request = messages.api("describe_groups").Request(groups=[group])
    return (await connection.request("describe_groups", request, version)).groups[0]


@pytest.mark.parametrize("version", [0, 1])
def test_a_life_in_a_consumer_group(broker: Asked, version: int) -> None:
    group = f"modern-{version}"

    async def story(connection: Connection) -> None:
        api = messages.api("consumer_group_heartbeat")
        request = api.Request(
            group_id=group,
            member_id="" if version == 0 else "mine",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = await connection.request("consumer_group_heartbeat", request, version)
        assert joined.error_code == 0, joined
        assert joined.member_id
        assert [t.partitions for t in joined.assignment.topic_partitions] == [[0, 1]]
        quiet = api.Request(group_id=group, member_id=joined.member_id, member_epoch=joined.member_epoch)
        assert (await connection.request("consumer_group_heartbeat", quiet, version)).assignment is None
        describe_api = messages.api("consumer_group_describe")
        found = await connection.request(
            "consumer_group_describe", describe_api.Request(group_ids=[group, "nobody"]), version
        )
        by_id = {entry.group_id: entry for entry in found.groups}
        assert by_id["nobody"].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (by_id[group].error_code, by_id[group].group_state) == (0, "Stable")
        assert by_id[group].members[0].assignment.topic_partitions[0].topic_name == "t"
        quiet.member_epoch = -1
        assert (await connection.request("consumer_group_heartbeat", quiet, version)).error_code == 0

    ask(broker, story)


def test_bad_requests_of_consumer_group_members(broker: Asked) -> None:
    api = messages.api("consumer_group_heartbeat")
    good = {
        "group_id": "bad",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    wrong: list[dict[str, Any]] = [
        {"group_id": ""},
        {"member_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"member_epoch": -2},
        {"member_epoch": -3},
    ]

    async def story(connection: Connection) -> list[int]:
        return [
            (await connection.request("consumer_group_heartbeat", api.Request(**(good | change)), 1)).error_code
            for change in wrong
        ]

    assert ask(broker, story) == [ErrorCode.INVALID_REQUEST] * len(wrong)


def test_commits_for_unknown_topics_and_ids_are_refused_beside_good_ones(broker: Asked) -> None:
    async def story(connection: Connection) -> dict[tuple[str, int], int]:
        assert await commit(connection, "mixed", 1, 8) == 0
        api = messages.api("offset_commit").load_all_versions()
        topics = []
        for name in ("t", "unknown"):
            partitions = [
                api.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                for index in (0, 9)
            ]
            topic = api.OffsetCommitRequestTopic(partitions=partitions)
            topic.name = name
            topics.append(topic)
        request = api.Request(group_id="mixed", generation_id_or_member_epoch=-1, member_id="", topics=topics)
        answer = await connection.request("offset_commit", request, 8)
        return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}

    assert ask(broker, story) == {("t", 0): 0, ("t", 9): 3, ("unknown", 0): 3, ("unknown", 9): 3}
