"""A new leadership begins between a transaction's verification and its append: the answer is for the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from raw_client import RawClient, ensure_topic, fetch_request

import penstock
from penstock.client.sync import SyncClient
from penstock.log.validation import INLINE_INSPECTION_MAX_BYTES
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing.raw_transactions import RawProducer, values

LARGE = "x" * (INLINE_INSPECTION_MAX_BYTES + 1)


def assignment(partition: Any, leader: int) -> Any:
    return SimpleNamespace(
        replicas=partition.replicas,
        isr=partition.isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        min_isr=1,
    )


def led_anew(partition: Any) -> None:
    partition.become_leader(assignment(partition, partition.node_id))


def lost_and_led_again(partition: Any) -> None:
    partition.become_follower(assignment(partition, 77))
    partition.become_leader(assignment(partition, partition.node_id))


@pytest.fixture
def client(broker: penstock.Broker) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as running:
        RawProducer(running, "the first one")  # from now on there are coordinators
        yield running


def create_opened(client: SyncClient, topic: str) -> None:
    """A topic whose large batches are opened by another process, between their verification and their append."""
    api = messages.api("create_topics")
    codec = api.CreatableTopicConfig(name="compression.type", value="gzip")
    wanted = api.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=[codec])
    answer = client.call_controller("create_topics", api.Request(topics=[wanted], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


@pytest.mark.parametrize("implicit", [True, False])
def test_the_producer_comes_again_and_its_transaction_goes_on(
    broker: penstock.Broker, client: SyncClient, topic: str, implicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_topic(broker.port, topic)
    running: Any = broker._broker
    partition = running.replicas.partitions[(topic, 0)]
    ask = running.transaction_links.add_or_verify
    asked: list[int] = []

    async def meanwhile(*args: Any, **fields: Any) -> Any:
        answer = await ask(*args, **fields)
        asked.append(partition.leader_epoch)
        if len(asked) == 1:
            led_anew(partition)
        return answer

    monkeypatch.setattr(running.transaction_links, "add_or_verify", meanwhile)
    producer = RawProducer(client, f"id of {topic}", implicit=implicit)
    if not implicit:
        producer.add((topic, 0))
    refused = producer.send(topic, 0, "first")
    assert refused in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # or its client came again by itself
    if refused:
        assert producer.send(topic, 0, "first") == 0
    assert len(asked) == 2, "the first answer counted for a leadership that had not asked"
    assert producer.send(topic, 0, "second") == 0
    assert len(asked) == 2, "a transaction that is proven needs no question"
    assert producer.end(commit=True) == 0
    with RawClient(broker.port) as reader:
        (told,) = reader.call("fetch", 12, fetch_request(topic, 0, isolation_level=1)).responses[0].partitions
        assert b"first" in told.records and b"second" in told.records


@pytest.mark.parametrize("change", [led_anew, lost_and_led_again])
@pytest.mark.parametrize("open_already", [False, True], ids=["first batch", "a later batch"])
def test_nor_is_it_fatal_while_its_large_batch_is_being_opened(
    broker: penstock.Broker,
    client: SyncClient,
    topic: str,
    change: Callable[[Any], None],
    open_already: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_opened(client, topic)
    running: Any = broker._broker
    partition = running.replicas.partitions[(topic, 0)]
    submit = running.inspector.submit
    opened: list[int] = []

    def meanwhile(*args: Any) -> Any:
        opened.append(partition.leader_epoch)
        if len(opened) == 1:
            change(partition)
        return submit(*args)

    monkeypatch.setattr(running.inspector, "submit", meanwhile)
    producer = RawProducer(client, f"id of {topic}")
    if open_already:
        assert producer.send(topic, 0, "small") == 0
    refused = producer.send(topic, 0, LARGE)
    assert refused in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode(refused).name
    if refused:
        assert producer.send(topic, 0, LARGE) == 0
    assert len(opened) == 2, "the batch of another leadership went in"
    assert producer.end(commit=True) == 0
    assert values(client, topic) == (["small"] if open_already else []) + [LARGE]


def test_nor_when_it_leads_only_since_the_batch_was_verified(
    broker: penstock.Broker, client: SyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_opened(client, topic)
    running: Any = broker._broker
    partition = running.replicas.partitions[(topic, 0)]
    producer = RawProducer(client, f"id of {topic}")
    submit = running.inspector.submit
    opened: list[int] = []

    def meanwhile(*args: Any) -> Any:
        opened.append(partition.leader_epoch)
        if len(opened) == 1:
            led_anew(partition)
        return submit(*args)

    monkeypatch.setattr(running.inspector, "submit", meanwhile)
    resigned = threading.Event()

    def resign() -> None:
        partition.become_follower(assignment(partition, 77))
        resigned.set()

    running.loop.call_soon_threadsafe(resign)
    resigned.wait()
    refused = producer.send(topic, 0, LARGE)
    assert refused in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode(refused).name
    if refused:
        assert producer.send(topic, 0, LARGE) == 0
    assert producer.end(commit=True) == 0
    assert values(client, topic) == [LARGE]


def test_nor_when_its_topic_was_deleted_and_made_anew_meanwhile(
    broker: penstock.Broker, client: SyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_opened(client, topic)
    running: Any = broker._broker
    producer = RawProducer(client, f"id of {topic}", implicit=False)
    producer.add((topic, 0))
    submit = running.inspector.submit
    first: list[tuple[Any, Future[Any]]] = []
    in_work = threading.Event()

    def held(*args: Any) -> Any:
        if first:
            return submit(*args)
        first.append((args, Future()))
        in_work.set()
        return first[0][1]

    monkeypatch.setattr(running.inspector, "submit", held)
    codes: list[int] = []
    sender = threading.Thread(target=lambda: codes.append(producer.send(topic, 0, LARGE)))
    sender.start()
    in_work.wait()
    with SyncClient(broker.bootstrap) as other:
        gone = messages.api("delete_topics").load_all_versions()
        other.call_controller("delete_topics", gone.Request(topic_names=[topic], timeout_ms=30_000), version=5)
        create_opened(other, topic)
    args, found = first[0]
    found.set_result(submit(*args).result())
    sender.join()
    assert codes[0] in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode(codes[0]).name


def test_offsets_of_a_transaction_come_again_too_when_their_coordinator_was_elected_anew(
    broker: penstock.Broker, client: SyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_topic(broker.port, topic)
    running: Any = broker._broker
    group = f"group of {topic}"
    producer = RawProducer(client, f"id of {topic}")
    before = messages.api("offset_fetch").Request(group_id=group, topics=[])
    client.call_coordinator("group", group, "offset_fetch", before, highest_version=7)  # from now on it has one
    index = running.groups.partition_for(group)
    partition = running.replicas.partitions[("__consumer_offsets", index)]
    ask = running.transaction_links.add_or_verify
    asked: list[int] = []

    async def meanwhile(*args: Any, **fields: Any) -> Any:
        answer = await ask(*args, **fields)
        asked.append(partition.leader_epoch)
        if len(asked) == 1:
            led_anew(partition)
            await running.groups.runtime.elected(index, partition.leader_epoch)
        return answer

    monkeypatch.setattr(running.transaction_links, "add_or_verify", meanwhile)
    api = messages.api("txn_offset_commit")
    request = api.Request(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            api.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    api.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
                    )
                ],
            )
        ],
    )

    def commit() -> int:
        answer = client.call_coordinator("group", group, "txn_offset_commit", request, version=5)
        return int(answer.topics[0].partitions[0].error_code)

    refused = commit()
    assert refused in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR), ErrorCode(refused).name
    if refused:
        assert commit() == 0
    assert len(asked) == 2
    assert producer.end(commit=True) == 0
