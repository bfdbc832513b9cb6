"""Administration through real clients: librdkafka's and kafka-python's admin clients, and raw requests for odd
input."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import penstock
from penstock.client.connection import Connection
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with penstock.Broker(num_partitions=2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:10]}"


def outcome(futures: dict[Any, Any]) -> dict[Any, int]:
    """Error codes by key, 0 for success."""
    codes = {}
    for key, future in futures.items():
        try:
            future.result(TIMEOUT_S)
            codes[key] = 0
        except KafkaException as failed:
            codes[key] = failed.args[0].code()
    return codes


def ask(broker: Any, api_name: str, version: int | None = None, **fields: Any) -> Any:
    async def call() -> Any:
        host, _, port = broker.bootstrap.rpartition(":")
        connection = await Connection.open(host, int(port))
        try:
            return await connection.request(api_name, messages.api(api_name).Request(**fields), version)
        finally:
            connection.close()

    return asyncio.run(call())


def created(admin: AdminClient, *names: str, partitions: int = 1, **config: str) -> None:
    wanted = [NewTopic(n, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()}) for n in names]
    assert set(outcome(admin.create_topics(wanted)).values()) == {0}


# --- topics ---


def test_topics_come_grow_and_go(admin: AdminClient, topic: str) -> None:
    created(admin, topic, partitions=3)
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 3
    assert outcome(admin.create_partitions([NewPartitions(topic, 5)])) == {topic: 0}
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 5
    assert outcome(admin.delete_topics([topic])) == {topic: 0}
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    created(admin, topic)


def test_each_topic_of_a_request_stands_for_itself(admin: AdminClient, topic: str) -> None:
    created(admin, f"{topic}.x")
    wanted = [
        NewTopic(topic, 1, 1),
        NewTopic(f"{topic}.x", 1, 1),
        NewTopic(f"{topic}_x", 1, 1),
        NewTopic(f"{topic}-many", 1, 3),
        NewTopic(f"{topic}-none", 0, 1),
        NewTopic("no spaces", 1, 1),
        NewTopic(f"{topic}-config", 1, 1, config={"retention.ms": "soon"}),
        NewTopic(f"{topic}-unknown", 1, 1, config={"no.such": "1"}),
        NewTopic(f"{topic}-manual", 2, replica_assignment=[[1], [1]]),
        NewTopic(f"{topic}-ghost", 1, replica_assignment=[[77]]),
    ]
    assert outcome(admin.create_topics(wanted)) == {
        topic: 0,
        f"{topic}.x": ErrorCode.TOPIC_ALREADY_EXISTS,
        f"{topic}_x": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic}-many": ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{topic}-none": ErrorCode.INVALID_PARTITIONS,
        "no spaces": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic}-config": ErrorCode.INVALID_CONFIG,
        f"{topic}-unknown": ErrorCode.INVALID_CONFIG,
        f"{topic}-manual": 0,
        f"{topic}-ghost": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    assert outcome(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)) == {topic: 0}
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_defaults_are_the_brokers(broker: Any, topic: str) -> None:
    struct = messages.api("create_topics").request_struct("CreatableTopic")
    answer = ask(
        broker,
        "create_topics",
        topics=[struct(name=topic, num_partitions=-1, replication_factor=-1)],
        timeout_ms=10_000,
    ).topics[0]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 2, 1)
    assert answer.topic_id.int != 0
    assert {row.name: row.value for row in answer.configs}["cleanup.policy"] == "delete"


def test_partitions_only_grow(admin: AdminClient, topic: str) -> None:
    created(admin, topic, partitions=2)
    for total in (1, 2):
        code = outcome(admin.create_partitions([NewPartitions(topic, total)]))[topic]
        assert code == ErrorCode.INVALID_PARTITIONS
    assert outcome(admin.create_partitions([NewPartitions("missing", 3)])) == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert outcome(admin.create_partitions([NewPartitions(topic, 3)], validate_only=True)) == {topic: 0}
    assert len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 2


def test_topics_are_deleted_by_id_too(broker: Any, admin: AdminClient, topic: str) -> None:
    created(admin, topic)
    metadata = messages.api("metadata")
    wanted = [metadata.MetadataRequestTopic(name=topic)]
    topic_id = ask(broker, "metadata", topics=wanted).topics[0].topic_id
    state = messages.api("delete_topics").DeleteTopicState
    unknown = uuid.UUID(int=5)
    answer = ask(
        broker,
        "delete_topics",
        topics=[
            state(name=None, topic_id=topic_id),
            state(name=None, topic_id=unknown),
            state(name="both", topic_id=unknown),
            state(name=None),
            state(name="missing"),
        ],
        timeout_ms=10_000,
    )
    codes = {(r.name, r.topic_id.int): r.error_code for r in answer.responses}
    assert codes == {
        (topic, topic_id.int): 0,
        (None, 5): ErrorCode.UNKNOWN_TOPIC_ID,
        ("both", 5): ErrorCode.INVALID_REQUEST,
        (None, 0): ErrorCode.INVALID_REQUEST,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_names_that_appear_twice_fail_once(broker: Any, topic: str) -> None:
    struct = messages.api("create_topics").request_struct("CreatableTopic")
    twice = [struct(name=topic, num_partitions=1, replication_factor=1)] * 2
    answer = ask(broker, "create_topics", topics=twice, timeout_ms=5000)
    assert [(r.name, r.error_code) for r in answer.topics] == [(topic, ErrorCode.INVALID_REQUEST)]


# --- configs ---


def altered(admin: AdminClient, kind: ResourceType, name: str, *entries: ConfigEntry) -> int:
    resource = ConfigResource(kind, name, incremental_configs=list(entries))
    return next(iter(outcome(admin.incremental_alter_configs([resource])).values()))


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, ConfigEntry] = future.result(TIMEOUT_S)
    return found


def entry(name: str, value: str | None, operation: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_topic_configs_are_set_appended_subtracted_and_deleted(admin: AdminClient, topic: str) -> None:
    created(admin, topic, retention_ms="1000")
    kind = ResourceType.TOPIC
    assert described(admin, kind, topic)["retention.ms"].value == "1000"
    assert altered(admin, kind, topic, entry("cleanup.policy", "compact", AlterConfigOpType.APPEND)) == 0
    assert described(admin, kind, topic)["cleanup.policy"].value == "delete,compact"
    assert altered(admin, kind, topic, entry("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)) == 0
    assert altered(admin, kind, topic, entry("retention.ms", None, AlterConfigOpType.DELETE)) == 0
    now = described(admin, kind, topic)
    assert (now["cleanup.policy"].value, now["cleanup.policy"].is_default) == ("compact", False)
    assert (now["retention.ms"].value, now["retention.ms"].is_default) == ("604800000", True)
    synonyms = {s.name: s.value for s in now["cleanup.policy"].synonyms.values()}
    assert synonyms == {"cleanup.policy": "compact", "log.cleanup.policy": "delete"}


def test_wrong_configs_are_refused_and_change_nothing(admin: AdminClient, topic: str) -> None:
    created(admin, topic)
    kind = ResourceType.TOPIC
    before = {name: e.value for name, e in described(admin, kind, topic).items()}
    assert altered(admin, kind, topic, entry("retention.ms", "x")) == ErrorCode.INVALID_CONFIG
    assert altered(admin, kind, topic, entry("unheard.of", "x")) == ErrorCode.INVALID_CONFIG
    append = entry("retention.ms", "1", AlterConfigOpType.APPEND)
    assert altered(admin, kind, topic, append) == ErrorCode.INVALID_CONFIG
    lags = (entry("min.compaction.lag.ms", "10"), entry("max.compaction.lag.ms", "5"))
    assert altered(admin, kind, topic, *lags) == ErrorCode.INVALID_CONFIG
    assert altered(admin, kind, "missing", entry("retention.ms", "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {name: e.value for name, e in described(admin, kind, topic).items()} == before


def test_old_alter_configs_replaces_everything(broker: Any, admin: AdminClient, topic: str) -> None:
    created(admin, topic, retention_ms="1000", segment_bytes="1048576")
    api = messages.api("alter_configs")
    resource = api.request_struct("AlterConfigsResource")(
        resource_type=2, resource_name=topic, configs=[api.AlterableConfig(name="retention.ms", value="5")]
    )
    assert ask(broker, "alter_configs", resources=[resource], validate_only=True).responses[0].error_code == 0
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "1000"
    assert ask(broker, "alter_configs", resources=[resource]).responses[0].error_code == 0
    now = described(admin, ResourceType.TOPIC, topic)
    assert (now["retention.ms"].value, now["segment.bytes"].is_default) == ("5", True)


def altered_for_all(broker: Any, name: str, operation: int, value: str | None) -> int:
    """The default of all brokers, a resource without a name, which librdkafka does not let through."""
    api = messages.api("incremental_alter_configs")
    config = api.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = api.request_struct("AlterConfigsResource")(resource_type=4, resource_name="", configs=[config])
    return int(ask(broker, "incremental_alter_configs", resources=[resource]).responses[0].error_code)


def test_broker_configs_take_effect_and_show_where_they_come_from(broker: Any, admin: AdminClient, topic: str) -> None:
    created(admin, topic)
    kind = ResourceType.BROKER
    assert altered_for_all(broker, "log.retention.ms", 0, "7000000") == 0
    assert described(admin, kind, "1")["log.retention.ms"].value == "7000000"
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "7000000"
    assert altered(admin, kind, "1", entry("log.retention.ms", "8000000")) == 0
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "8000000"
    assert altered(admin, kind, "1", entry("log.dirs", "elsewhere")) == ErrorCode.INVALID_REQUEST
    assert altered(admin, kind, "1", entry("log.retention.ms", None, AlterConfigOpType.DELETE)) == 0
    assert altered_for_all(broker, "log.retention.ms", 1, None) == 0
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"


def test_resources_that_appear_twice_or_do_not_exist(broker: Any, topic: str) -> None:
    api = messages.api("incremental_alter_configs")

    def resource(kind: int, name: str) -> Any:
        config = api.AlterableConfig(name="retention.ms", config_operation=0, value="1")
        return api.request_struct("AlterConfigsResource")(resource_type=kind, resource_name=name, configs=[config])

    answer = ask(
        broker,
        "incremental_alter_configs",
        resources=[resource(2, "a"), resource(2, "a"), resource(99, "b"), resource(4, "77")],
    )
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST] * 4


def test_config_resources_are_listed(broker: Any, admin: AdminClient, topic: str) -> None:
    created(admin, topic)
    answer = ask(broker, "list_config_resources", resource_types=[2, 4])
    found = {(r.resource_type, r.resource_name) for r in answer.config_resources}
    assert {(2, topic), (4, "1")} <= found
    bad = ask(broker, "list_config_resources", resource_types=[99])
    assert bad.error_code == ErrorCode.UNSUPPORTED_VERSION


# --- cluster ---


def test_the_cluster_is_described(broker: Any, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.controller.id == 1 and [node.id for node in cluster.nodes] == [1]
    assert ask(broker, "describe_cluster", endpoint_type=2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert ask(broker, "describe_cluster", endpoint_type=9).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_elections_and_reassignments_are_answered_one_by_one(broker: Any, admin: AdminClient, topic: str) -> None:
    created(admin, topic, partitions=2)
    partitions = messages.api("elect_leaders").request_struct("TopicPartitions")
    answer = ask(
        broker,
        "elect_leaders",
        election_type=0,
        topic_partitions=[partitions(topic=topic, partitions=[0, 9])],
        timeout_ms=5000,
    )
    (result,) = answer.replica_election_results
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    api = messages.api("alter_partition_reassignments")
    rows = [
        api.ReassignablePartition(partition_index=0, replicas=[1]),
        api.ReassignablePartition(partition_index=1, replicas=[55]),
        api.ReassignablePartition(partition_index=7, replicas=[1]),
    ]
    wanted = [api.ReassignableTopic(name=topic, partitions=rows)]
    answer = ask(broker, "alter_partition_reassignments", topics=wanted, timeout_ms=5000)
    assert [p.error_code for p in answer.responses[0].partitions] == [
        0,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert ask(broker, "list_partition_reassignments", topics=None, timeout_ms=5000).topics == []


def test_kafka_python_administers_too(broker: Any, topic: str) -> None:
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as OtherNewTopic

    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics([OtherNewTopic(topic, 2, 1)])
        assert topic in admin.list_topics()
        (described_topic,) = admin.describe_topics([topic])
        assert len(described_topic["partitions"]) == 2
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()


def test_what_was_made_survives_a_restart(tmp_path: Any, topic: str) -> None:
    with penstock.Broker(tmp_path / "data") as first:
        created(AdminClient({"bootstrap.servers": first.bootstrap}), topic, partitions=3, retention_ms="77")
        cluster_id = AdminClient({"bootstrap.servers": first.bootstrap}).list_topics(timeout=TIMEOUT_S).cluster_id
    with penstock.Broker(tmp_path / "data") as second:
        admin = AdminClient({"bootstrap.servers": second.bootstrap})
        found = admin.list_topics(timeout=TIMEOUT_S)
        assert found.cluster_id == cluster_id and len(found.topics[topic].partitions) == 3
        assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "77"
