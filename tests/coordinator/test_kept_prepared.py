"""A transaction that was taken over as it is (KIP-939) stays as it is: its former writer adds nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.sync import SyncClient
from penstock.log.verifications import Verifications
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.raw_transactions import RawProducer, create_topic, initialize, until, values

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
TWO_PHASE = {"enable2_pc": True}
TAKE_OVER = {"enable2_pc": True, "keep_prepared_txn": True}


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
    create_topic(client, name, 3)
    return str(name)


@pytest.mark.parametrize("implicit", [True, False], ids=["v2", "v1"])
def test_the_former_writer_is_refused_wherever_the_transaction_is(
    client: SyncClient, topic: str, implicit: bool
) -> None:
    former = RawProducer(client, topic, implicit=implicit, **TWO_PHASE)
    if not implicit:
        former.add((topic, 0), (topic, 1))
    assert former.send(topic, 0, "before") == 0
    successor = RawProducer(client, topic, **TAKE_OVER)
    assert successor.ongoing == former.pair
    for partition in (0, 1, 2):
        assert former.send(topic, partition, "after") == E.INVALID_PRODUCER_EPOCH
    assert successor.end(True) == 0
    until(lambda: values(client, topic) == ["before"], "what was there shows")
    assert [values(client, topic, partition, read_committed=False) for partition in (0, 1, 2)] == [["before"], [], []]
    assert former.send(topic, 0, "long after") == E.INVALID_PRODUCER_EPOCH
    assert successor.send(topic, 0, "next") == 0
    assert successor.end(True) == 0
    until(lambda: values(client, topic) == ["before", "next"], "both show")


def test_the_former_writer_commits_no_offsets_either(client: SyncClient, topic: str) -> None:
    former = RawProducer(client, topic, **TWO_PHASE)
    assert commit_offset(client, former, topic, 5) == 0
    successor = RawProducer(client, topic, **TAKE_OVER)
    assert commit_offset(client, former, topic, 9) in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
    assert successor.end(True) == 0
    until(lambda: committed_offset(client, topic) == 5, "what was committed before counts")


def test_the_answer_to_a_take_over_may_get_lost(client: SyncClient, topic: str) -> None:
    """The same request under the same pair comes again: the pair that the first one made is given once more."""
    former = RawProducer(client, topic, **TWO_PHASE)
    assert former.send(topic, 0, "before") == 0
    held = {"producer_id": former.producer_id, "producer_epoch": former.epoch}
    first = initialize(client, topic, **TAKE_OVER, **held)
    again = initialize(client, topic, **TAKE_OVER, **held)
    assert first.error_code == again.error_code == 0
    assert first.producer_epoch == again.producer_epoch == former.epoch + 1
    stale = {"producer_id": former.producer_id, "producer_epoch": former.epoch + 7}
    assert initialize(client, topic, **TAKE_OVER, **stale).error_code == E.PRODUCER_FENCED


def test_after_a_restart_an_open_transaction_is_asked_about_once_and_goes_on(
    penstock_broker_factory: Callable[..., Any], tmp_path: Path
) -> None:
    broker = penstock_broker_factory(tmp_path, settings=SETTINGS)
    with SyncClient(broker.bootstrap) as client:
        create_topic(client, "t", 2)
        going_on = RawProducer(client, "going-on", **TWO_PHASE)
        former = RawProducer(client, "taken-over", **TWO_PHASE)
        assert going_on.send("t", 0, "a") == 0
        assert former.send("t", 1, "b") == 0
        successor = RawProducer(client, "taken-over", **TAKE_OVER)
    broker.restart()
    with SyncClient(broker.bootstrap) as client:
        going_on.client = former.client = successor.client = client
        assert [going_on.send("t", 0, text) for text in ("c", "d")] == [0, 0]
        assert former.send("t", 1, "e") == E.INVALID_PRODUCER_EPOCH
        assert going_on.end(True) == successor.end(True) == 0
        until(lambda: values(client, "t", 0) == ["a", "c", "d"], "all of it")
        until(lambda: values(client, "t", 1) == ["b"], "what was taken over")


def test_without_verification_an_open_transaction_of_another_leadership_is_asked_about_all_the_same(
    penstock_broker_factory: Callable[..., Any], tmp_path: Path
) -> None:
    settings = SETTINGS | {"transaction.partition.verification.enable": "false"}
    broker = penstock_broker_factory(tmp_path, settings=settings)
    with SyncClient(broker.bootstrap) as client:
        create_topic(client, "t", 1)
        former = RawProducer(client, "id", implicit=False, **TWO_PHASE)
        former.add(("t", 0))
        assert former.send("t", 0, "a") == 0
        RawProducer(client, "id", **TAKE_OVER)
    broker.restart()
    with SyncClient(broker.bootstrap) as client:
        former.client = client
        assert former.send("t", 0, "b") == E.INVALID_PRODUCER_EPOCH


def test_a_fence_takes_the_running_question_with_it_and_a_marker_takes_the_fence() -> None:
    verifications = Verifications()
    guard = verifications.start(7, 3, 0, True, 0)
    verifications.fence(7, 3, 0)
    assert not verifications.is_running(7, guard), "its answer comes too late"
    assert verifications.is_fenced(7, 2)
    assert verifications.is_fenced(7, 3)
    assert not verifications.is_fenced(7, 4)
    assert not verifications.is_fenced(8, 3)
    verifications.ended(7, 4)
    assert not verifications.is_fenced(7, 3), "the epoch in the log refuses it from here on"


def commit_offset(client: SyncClient, producer: RawProducer, topic: str, offset: int) -> int:
    api = messages.api("txn_offset_commit")
    request = api.Request(
        transactional_id=producer.transactional_id,
        group_id=f"group-{topic}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        topics=[
            api.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[api.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
            )
        ],
    )
    answer = client.call_coordinator("group", f"group-{topic}", "txn_offset_commit", request)
    return int(answer.topics[0].partitions[0].error_code)


def committed_offset(client: SyncClient, topic: str) -> int:
    api = messages.api("offset_fetch").load_all_versions()
    topics = [api.request_struct("OffsetFetchRequestTopics")(name=topic, partition_indexes=[0])]
    asked = api.request_struct("OffsetFetchRequestGroup")(group_id=f"group-{topic}", topics=topics)
    request = api.Request(groups=[asked])
    answer = client.call_coordinator("group", f"group-{topic}", "offset_fetch", request, highest_version=9)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)
