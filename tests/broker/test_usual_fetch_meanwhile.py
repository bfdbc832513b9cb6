"""The short way of a fetch while the world around it changes: compaction, quotas, rights, topics of the same name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.protocol import messages

QUICK_CLEANER = {"log.cleaner.backoff.ms": "20", "auto.create.topics.enable": "true"}


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(num_partitions=1, settings=QUICK_CLEANER) as running:
        yield running


def create(port: int, topic: str, **configs: str) -> None:
    api = messages.api("create_topics").load_all_versions()
    values = [api.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    wanted = api.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=values)
    with RawClient(port) as client:
        (told,) = client.call("create_topics", 5, api.Request(topics=[wanted], timeout_ms=10_000)).topics
        assert told.error_code == 0
    ensure_topic(port, topic)


def delete(port: int, topic: str) -> None:
    api = messages.api("delete_topics").load_all_versions()
    with RawClient(port) as client:
        client.call("delete_topics", 5, api.Request(topic_names=[topic], timeout_ms=10_000))


def records_at(client: RawClient, topic: str, offset: int, **fields: Any) -> bytes:
    (told,) = client.call("fetch", 12, fetch_request(topic, offset, **fields)).responses[0].partitions
    assert told.error_code == 0
    return bytes(told.records or b"")


def set_quota(port: int, client_id: str, name: str, value: float | None) -> None:
    api = messages.api("alter_client_quotas").load_all_versions()
    entry = api.request_struct("EntryData")
    entity = api.request_struct("EntityData")(entity_type="client-id", entity_name=client_id)
    change = api.OpData(key=name, value=value or 0.0, remove=value is None)
    with RawClient(port) as client:
        (told,) = client.call(
            "alter_client_quotas", 1, api.Request(entries=[entry(entity=[entity], ops=[change])])
        ).entries
        assert told.error_code == 0


def waiting(broker: penstock.Broker, topic: str) -> int:
    running: Any = broker._broker
    partition = running.replicas.partitions.get((topic, 0))
    return 0 if partition is None else len(partition.fetch_waits)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_what_compaction_has_removed_is_not_served_from_memory(
    broker: penstock.Broker, topic: str, isolation_level: int
) -> None:
    """Whoever got a value whose tombstone is gone by now would keep it for ever."""
    running: Any = broker._broker
    cleaner = running.log_manager.cleaner
    cleaner._idle_until_ms = 1 << 60
    create(broker.port, topic, segment_ms="1", min_cleanable_dirty_ratio="0.0", cleanup_policy="compact")
    first = {"max_bytes": 1, "isolation_level": isolation_level}
    with RawClient(broker.port) as reader:
        for second, (key, value) in enumerate(((b"k", b"old value"), (b"k", b"new value"), (b"z", b"end"))):
            made = batch(value, key=key, timestamp=1_700_000_000_000 + 1000 * second)  # each in a segment of its own
            reader.call("produce", 9, produce_request(topic, made))
        for _ in range(3):
            assert b"old value" in records_at(reader, topic, 0, **first)
        cleaner._idle_until_ms = 0

        def compacted() -> bool:
            with RawClient(broker.port) as fresh:  # a first fetch goes the general way
                return b"old value" not in records_at(fresh, topic, 0, **first)

        until(compacted, "the old value is gone from the log")
        assert b"new value" in records_at(reader, topic, 0, **first)


@pytest.mark.parametrize("version", [12, 16])
def test_a_topic_made_anew_under_the_same_name(broker: penstock.Broker, topic: str, version: int) -> None:
    """Nothing of the old one is told as the new one's, to whoever waited and to whoever comes later."""
    old_id = ensure_topic(broker.port, topic)
    names: dict[str, Any] = {"topic": topic} if version < 13 else {"topic": "", "topic_id": old_id}
    with RawClient(broker.port) as reader, RawClient(broker.port) as waiter:
        for offset in (0, 1):
            reader.call("produce", 9, produce_request(topic, batch(b"of the old topic")))
            for client in (reader, waiter):
                answer = client.call("fetch", version, fetch_request(offset=offset, max_wait_ms=30_000, **names))
                assert b"of the old topic" in answer.responses[0].partitions[0].records
        waiter.send(request_frame("fetch", version, fetch_request(offset=2, max_wait_ms=30_000, **names)))
        until(lambda: waiting(broker, topic) == 1, "it waits")
        delete(broker.port, topic)
        (told,) = waiter.read_response("fetch", version)[1].responses[0].partitions
        assert (told.error_code in (3, 6, 100), bytes(told.records or b"")) == (True, b"")
        create(broker.port, topic)
        reader.call("produce", 9, produce_request(topic, batch(b"of the new topic")))
        for client in (reader, waiter):
            (told,) = client.call("fetch", version, fetch_request(offset=0, **names)).responses[0].partitions
            if version < 13:
                assert b"of the new topic" in told.records
            else:
                assert (told.error_code, bytes(told.records or b"")) == (100, b"")  # UNKNOWN_TOPIC_ID


def test_a_quota_that_is_set_while_it_waits_counts_for_its_client(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        for offset in (0, 1):
            writer.call("produce", 9, produce_request(topic, batch(b"v" * 20_000)))
            assert records_at(reader, topic, offset, max_wait_ms=30_000)
        reader.send(request_frame("fetch", 12, fetch_request(topic, 2, max_wait_ms=30_000)))
        until(lambda: waiting(broker, topic) == 1, "it waits")
        set_quota(broker.port, "raw", "consumer_byte_rate", 1.0)
        running: Any = broker._broker
        try:
            until(lambda: running.quotas is not None, "the quota is known")
            writer.call("produce", 9, produce_request(topic, batch(b"v" * 20_000)))
            assert reader.read_response("fetch", 12)[1].throttle_time_ms > 0
        finally:
            set_quota(broker.port, "raw", "consumer_byte_rate", None)
            until(lambda: running.quotas is None, "the quota is gone")


def test_a_right_that_is_taken_away_while_it_waits(topic: str) -> None:
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "true",
    }
    with penstock.Broker(num_partitions=1, settings=rights) as broker:
        ensure_topic(broker.port, topic)
        with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
            for offset in (0, 1):
                writer.call("produce", 9, produce_request(topic, batch(b"v")))
                assert records_at(reader, topic, offset, max_wait_ms=30_000)
            reader.send(request_frame("fetch", 12, fetch_request(topic, 2, max_wait_ms=30_000)))
            until(lambda: waiting(broker, topic) == 1, "it waits")
            api = messages.api("create_acls").load_all_versions()
            denied = api.AclCreation(
                resource_type=2, resource_name=topic, resource_pattern_type=3, principal="User:ANONYMOUS", host="*",
                operation=3, permission_type=2,
            )  # fmt: skip
            writer.call("create_acls", 2, api.Request(creations=[denied]))
            for _ in range(2):
                (told,) = reader.read_response("fetch", 12)[1].responses[0].partitions
                assert (told.error_code, bytes(told.records or b"")) == (29, b"")
                reader.send(request_frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=30_000)))


def test_every_poll_lasts_as_long_as_it_asks(broker: penstock.Broker, topic: str) -> None:
    """Though the timer of one that was woken serves the next."""
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        offset = woken = 0
        while woken < 2:  # the first one goes the general way
            began = time.monotonic()
            reader.send(request_frame("fetch", 12, fetch_request(topic, offset, max_wait_ms=1500)))
            until(lambda: waiting(broker, topic) == 1, "it waits")
            until(lambda since=began: time.monotonic() - since > 0.5, "a part of its time is over")
            writer.call("produce", 9, produce_request(topic, batch(b"v")))
            offset += 1
            (told,) = reader.read_response("fetch", 12)[1].responses[0].partitions
            woken = woken + 1 if told.records else 0  # a busy machine may need longer than the poll
        began = time.monotonic()
        assert records_at(reader, topic, offset, max_wait_ms=1500) == b""
        assert time.monotonic() - began > 1.4


def test_a_poll_that_another_partition_ended_waits_there_no_longer(broker: penstock.Broker, topic: str) -> None:
    other = topic + "-other"
    for name in (topic, other):
        ensure_topic(broker.port, name)
    api = messages.api("fetch").load_all_versions()

    def asked(*names: str, epoch: int, session_id: int = 0, offset: int = 0) -> Any:
        wanted = [api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)]
        return api.Request(
            max_wait_ms=20_000 if epoch else 0, min_bytes=1, max_bytes=1 << 20, session_id=session_id,
            session_epoch=epoch, topics=[api.FetchTopic(topic=name, partitions=wanted) for name in names],
        )  # fmt: skip

    with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        session_id = reader.call("fetch", 12, asked(topic, other, epoch=0)).session_id
        for offset, wakes in enumerate((topic, topic, other)):
            request = asked(topic, epoch=offset + 1, session_id=session_id, offset=offset)
            reader.send(request_frame("fetch", 12, request))
            until(lambda: waiting(broker, topic) == 1, "it waits")
            writer.call("produce", 9, produce_request(wakes, batch(b"v")))
            (told,) = reader.read_response("fetch", 12)[1].responses
            assert told.topic == wakes
            assert (waiting(broker, topic), waiting(broker, other)) == (0, 0)


def test_a_partition_with_much_to_read_does_not_keep_others_of_its_session_waiting(
    broker: penstock.Broker, topic: str
) -> None:
    other = topic + "-other"
    api = messages.api("fetch").load_all_versions()
    with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        for name in (topic, other):
            ensure_topic(broker.port, name)
        for _ in range(8):
            writer.call("produce", 9, produce_request(topic, batch(b"one of many")))
        wanted = [api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
        first = api.Request(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=0,
            topics=[api.FetchTopic(topic=name, partitions=wanted) for name in (topic, other)],
        )  # fmt: skip
        session_id = reader.call("fetch", 12, first).session_id
        told: list[list[str]] = []
        for offset in range(1, 7):
            if offset == 5:
                writer.call("produce", 9, produce_request(other, batch(b"the only one")))
            asked = fetch_request(topic, offset, max_bytes=1, session_id=session_id, session_epoch=offset)
            told.append([answer.topic for answer in reader.call("fetch", 12, asked).responses])
        assert told[:4] == [[topic]] * 4
        assert told[4:] == [[other], [topic]], "whoever waits longest comes first"


def test_what_is_shared_is_as_new_and_as_large_as_each_of_them_may_have(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as small, RawClient(broker.port) as large, RawClient(broker.port) as writer:
        for number in range(1, 5):
            writer.call("produce", 9, produce_request(topic, batch(b"v" * 100)))
            sizes = []
            for client, max_bytes in ((large, 1 << 20), (small, 1), (large, 1 << 20)):
                (told,) = client.call("fetch", 12, fetch_request(topic, 0, max_bytes=max_bytes)).responses[0].partitions
                assert (told.high_watermark, told.last_stable_offset) == (number, number)
                sizes.append(len(told.records))
            assert sizes == [number * sizes[1], sizes[1], number * sizes[1]]
