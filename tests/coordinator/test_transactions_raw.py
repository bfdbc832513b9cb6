"""Transactions over the wire, request by request: both protocol versions, two-phase commit, time-outs, hanging ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.client.errors import ConnectionLost
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.raw_transactions import (
    RawProducer,
    create_topic,
    described,
    end,
    initialize,
    listed,
    until,
    values,
)

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    with penstock.Broker(settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: SyncClient, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(client, name, 2)
    return str(name)


@pytest.mark.parametrize("implicit", [True, False], ids=["v2", "v1"])
def test_a_transaction_shows_as_a_whole_or_not_at_all(client: SyncClient, topic: str, implicit: bool) -> None:
    producer = RawProducer(client, topic, implicit=implicit)
    for number, commit in enumerate((True, False, True)):
        if not implicit:
            assert set(producer.add((topic, 0), (topic, 1)).values()) == {0}
        assert producer.send(topic, 0, f"a {commit} {number}") == 0
        assert producer.send(topic, 1, f"b {commit} {number}") == 0
        assert values(client, topic, 0)[-1:] != [f"a {commit} {number}"]
        before = producer.epoch
        assert producer.end(commit) == 0
        assert producer.epoch == before + (1 if implicit else 0)
        until(lambda: described(client, topic).transaction_state.startswith("Complete"), "markers")
    for partition in (0, 1):
        seen = values(client, topic, partition)
        assert len(seen) == 2
        assert all("True" in value for value in seen)
        assert len(values(client, topic, partition, read_committed=False)) == 3


def test_a_restarted_producer_fences_the_one_before(client: SyncClient, topic: str) -> None:
    zombie = RawProducer(client, topic)
    assert zombie.send(topic, 0, "of the zombie") == 0
    newcomer = RawProducer(client, topic)
    assert newcomer.epoch > zombie.epoch
    assert zombie.send(topic, 0, "too late") == E.INVALID_PRODUCER_EPOCH
    assert zombie.send(topic, 1, "too late elsewhere") == E.INVALID_PRODUCER_EPOCH
    assert zombie.end(True) == E.PRODUCER_FENCED
    assert newcomer.send(topic, 0, "of the newcomer") == 0
    assert newcomer.end(True) == 0
    until(lambda: values(client, topic) == ["of the newcomer"], "only the newcomer's record shows")


def test_old_clients_are_told_of_fencing_in_their_words(client: SyncClient, topic: str) -> None:
    zombie = RawProducer(client, topic)
    RawProducer(client, topic)
    assert end(client, topic, zombie.pair, True, version=1).error_code == E.INVALID_PRODUCER_EPOCH
    assert end(client, topic, zombie.pair, True, version=2).error_code == E.PRODUCER_FENCED
    stale = {"producer_id": zombie.producer_id, "producer_epoch": zombie.epoch + 7}
    assert initialize(client, topic, version=3, **stale).error_code == E.INVALID_PRODUCER_EPOCH
    assert initialize(client, topic, version=4, **stale).error_code == E.PRODUCER_FENCED


def test_a_batch_outside_of_the_transaction_is_refused(client: SyncClient, topic: str) -> None:
    producer = RawProducer(client, topic, implicit=False)
    assert producer.send(topic, 0, "nobody added this partition") == E.TRANSACTION_ABORTABLE
    assert set(producer.add((topic, 0)).values()) == {0}
    assert producer.send(topic, 1, "nor this one") == E.TRANSACTION_ABORTABLE
    assert producer.send(topic, 0, "this one is fine") == 0
    assert producer.end(True) == 0
    until(lambda: values(client, topic) == ["this one is fine"], "the record shows")


def test_one_bad_partition_and_none_is_added(client: SyncClient, topic: str) -> None:
    producer = RawProducer(client, topic, implicit=False)
    assert producer.add((topic, 0), (topic, 9), ("__consumer_offsets", 0)) == {
        (topic, 0): E.OPERATION_NOT_ATTEMPTED,
        (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 0): E.TOPIC_AUTHORIZATION_FAILED,
    }
    assert described(client, topic).transaction_state == "Empty"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, E.INVALID_REQUEST),
    ],
)
def test_bad_starts(client: SyncClient, fields: dict[str, Any], error: int) -> None:
    name = fields.pop("transactional_id", "bad")
    assert initialize(client, name, fields.pop("timeout_ms", 60_000), **fields).error_code == error


def test_a_transaction_that_takes_too_long_is_aborted(client: SyncClient, topic: str) -> None:
    producer = RawProducer(client, topic, timeout_ms=100)
    assert producer.send(topic, 0, "slow") == 0
    until(lambda: described(client, topic).transaction_state == "CompleteAbort", "the time-out")
    assert producer.send(topic, 0, "still slow") == E.INVALID_PRODUCER_EPOCH
    assert end(client, topic, producer.pair, True).error_code == E.INVALID_TXN_STATE
    assert values(client, topic) == []


# Two-phase commit --------------------------------------------------------------------------------------------------


def test_another_process_ends_a_prepared_transaction(broker: Any, client: SyncClient, topic: str) -> None:
    with SyncClient(broker.bootstrap) as worker:
        writer = RawProducer(worker, f"query-{topic}-1", timeout_ms=1, enable2_pc=True)
        assert writer.send(topic, 0, "prepared") == 0
        handed_over = writer.pair
    # The worker is gone. Its transaction is listed by prefix, with its age and what it holds back.
    assert listed(client, transactional_id_pattern=f"query-{topic}-.*", state_filters=["Ongoing"]) == {
        f"query-{topic}-1": "Ongoing"
    }
    state = described(client, f"query-{topic}-1")
    assert (state.producer_id, state.producer_epoch) == handed_over
    assert state.transaction_timeout_ms == 2**31 - 1
    assert state.transaction_start_time_ms > 0
    assert [(t.topic, t.partitions) for t in state.topics] == [(topic, [0])]
    assert values(client, topic) == []
    until(lambda: listed(client, duration_filter=150).get(f"query-{topic}-1") == "Ongoing", "older than a time-out")
    assert end(client, f"query-{topic}-1", handed_over, True).error_code == 0
    until(lambda: values(client, topic) == ["prepared"], "the record shows")


def test_a_prepared_transaction_is_taken_over_and_ended(client: SyncClient, topic: str) -> None:
    crashed = RawProducer(client, topic, enable2_pc=True)
    assert crashed.send(topic, 0, "kept") == 0
    first = RawProducer(client, topic, enable2_pc=True, keep_prepared_txn=True)
    second = RawProducer(client, topic, enable2_pc=True, keep_prepared_txn=True)
    assert first.ongoing == second.ongoing == crashed.pair
    assert first.end(True) == E.PRODUCER_FENCED
    assert second.end(True) == 0
    until(lambda: values(client, topic) == ["kept"], "the record shows")
    third = RawProducer(client, topic, enable2_pc=True, keep_prepared_txn=True)
    assert third.ongoing == (-1, -1)
    assert third.send(topic, 0, "next") == 0
    assert third.end(True) == 0
    until(lambda: values(client, topic) == ["kept", "next"], "both show")


def test_starting_over_without_keeping_aborts_what_was_prepared(client: SyncClient, topic: str) -> None:
    crashed = RawProducer(client, topic, enable2_pc=True)
    assert crashed.send(topic, 0, "forgotten") == 0
    RawProducer(client, topic, enable2_pc=True)
    assert described(client, topic).transaction_state == "Empty"
    assert crashed.end(True) == E.PRODUCER_FENCED
    assert values(client, topic) == []


def test_prepared_transactions_survive_the_broker(
    penstock_broker_factory: Callable[..., Any], tmp_path: Any, topic: str
) -> None:
    broker = penstock_broker_factory(tmp_path, settings=SETTINGS)
    with SyncClient(broker.bootstrap) as client:
        create_topic(client, topic, 2)
        producers = [RawProducer(client, f"{topic}-{n}", enable2_pc=True) for n in range(2)]
        for producer in producers:
            assert producer.send(topic, 0, f"of {producer.transactional_id}") == 0
    broker.restart()
    with SyncClient(broker.bootstrap) as client:
        assert values(client, topic) == []
        assert end(client, f"{topic}-0", producers[0].pair, True).error_code == 0
        assert end(client, f"{topic}-1", producers[1].pair, False).error_code == 0
        until(lambda: values(client, topic) == [f"of {topic}-0"], "one commits, one aborts")


def test_two_phase_commit_is_offered_only_while_it_is_switched_on(
    penstock_broker_factory: Callable[..., Any], topic: str
) -> None:
    broker = penstock_broker_factory(settings={"transaction.two.phase.commit.enable": "false"})
    with SyncClient(broker.bootstrap) as client:
        version = client.run(lambda c: _init_version(c))
        assert version == 5
        request = messages.api("init_producer_id").Request()
        with pytest.raises(ConnectionLost):  # as Kafka: a version that was not offered ends the connection
            client.call_any("init_producer_id", request, version=6, total_timeout_s=0.1)


async def _init_version(client: Any) -> int:
    connection = await client.any_connection()
    return int(connection.version_for("init_producer_id"))


# Offsets in transactions -------------------------------------------------------------------------------------------


def commit_offset(producer: RawProducer, group: str, topic: str, offset: int, version: int) -> int:
    api = messages.api("txn_offset_commit")
    request = api.Request(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            api.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[api.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
            )
        ],
    )
    response = producer.client.call_coordinator("group", group, "txn_offset_commit", request, version=version)
    return int(response.topics[0].partitions[0].error_code)


def committed_offset(client: SyncClient, group: str, topic: str) -> int:
    api = messages.api("offset_fetch")
    request = api.Request(
        group_id=group, topics=[api.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])], require_stable=False
    )
    response = client.call_coordinator("group", group, "offset_fetch", request, highest_version=7)
    return int(response.topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize("implicit", [True, False], ids=["v2", "v1"])
def test_offsets_count_when_the_transaction_commits(client: SyncClient, topic: str, implicit: bool) -> None:
    producer = RawProducer(client, topic, implicit=implicit)
    version = 5 if implicit else 3
    for commit, offset, expected in ((False, 5, -1), (True, 7, 7), (False, 9, 7)):
        if not implicit:
            request = messages.api("add_offsets_to_txn").Request(
                transactional_id=topic, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=topic
            )
            answer = client.call_coordinator("transaction", topic, "add_offsets_to_txn", request)
            assert answer.error_code == 0
        assert commit_offset(producer, topic, topic, offset, version) == 0
        assert producer.end(commit) == 0
        until(lambda: described(client, topic).transaction_state.startswith("Complete"), "markers")
        assert committed_offset(client, topic, topic) == expected


def test_offsets_outside_of_a_transaction_are_refused(client: SyncClient, topic: str) -> None:
    producer = RawProducer(client, topic, implicit=False)
    assert commit_offset(producer, topic, topic, 5, 3) == E.INVALID_TXN_STATE
    assert commit_offset(producer, topic, topic, 5, 4) == E.TRANSACTION_ABORTABLE
    stranger = RawProducer(client, f"{topic}-stranger")
    stranger.transactional_id = topic
    assert commit_offset(stranger, topic, topic, 5, 5) == E.INVALID_PRODUCER_ID_MAPPING


# Hanging transactions ----------------------------------------------------------------------------------------------


def test_a_hanging_transaction_is_found_and_aborted(penstock_broker_factory: Callable[..., Any], topic: str) -> None:
    broker = penstock_broker_factory(settings={"transaction.partition.verification.enable": "false"})
    with SyncClient(broker.bootstrap) as client:
        create_topic(client, topic)
        producer = RawProducer(client, topic, implicit=False)
        assert producer.send(topic, 0, "the coordinator does not know of this") == 0
        assert described(client, topic).transaction_state == "Empty"

        api = messages.api("describe_producers")
        asked = api.Request(topics=[api.TopicRequest(name=topic, partition_indexes=[0, 7])])
        known, unknown = client.call_any("describe_producers", asked).topics[0].partitions
        assert unknown.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        (hanging,) = known.active_producers
        assert (hanging.producer_id, hanging.producer_epoch, hanging.current_txn_start_offset) == (*producer.pair, 0)

        api = messages.api("write_txn_markers")
        marker = api.WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
            transaction_result=False,
            topics=[api.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        )
        answer = client.call_any("write_txn_markers", api.Request(markers=[marker]), version=1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        (ended,) = client.call_any("describe_producers", asked).topics[0].partitions[0].active_producers
        assert ended.current_txn_start_offset == -1
        assert values(client, topic) == []


def test_lists_are_filtered(client: SyncClient, topic: str) -> None:
    RawProducer(client, f"{topic}-a")
    busy = RawProducer(client, f"{topic}-b")
    assert busy.send(topic, 0, "x") == 0
    pattern = {"transactional_id_pattern": f"{topic}-[ab]"}
    assert listed(client, **pattern) == {f"{topic}-a": "Empty", f"{topic}-b": "Ongoing"}
    assert listed(client, **pattern, state_filters=["Empty"]) == {f"{topic}-a": "Empty"}
    assert listed(client, producer_id_filters=[busy.producer_id]) == {f"{topic}-b": "Ongoing"}
    assert listed(client, transactional_id_pattern=topic) == {}
    request = messages.api("list_transactions").Request(transactional_id_pattern="(")
    assert client.call_any("list_transactions", request).error_code == E.INVALID_REGULAR_EXPRESSION
    request = messages.api("list_transactions").Request(state_filters=["Ongoing", "Lost"])
    assert client.call_any("list_transactions", request).unknown_state_filters == ["Lost"]
    assert described(client, "nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert busy.end(False) == 0


def test_an_operator_aborts_also_what_was_taken_over_prepared(broker: Any, client: SyncClient, topic: str) -> None:
    """Its records carry an older pair than the one that may end it."""
    from penstock.cli.main import run

    writer = RawProducer(client, topic, enable2_pc=True)
    assert writer.send(topic, 0, "nobody wants it") == 0
    RawProducer(client, topic, enable2_pc=True, keep_prepared_txn=True)
    assert described(client, topic).transaction_state == "Ongoing"
    assert run(["txn", "abort", topic, "--yes", "-b", broker.bootstrap]) == 0
    until(lambda: described(client, topic).transaction_state == "CompleteAbort", "markers")
    assert values(client, topic) == []
