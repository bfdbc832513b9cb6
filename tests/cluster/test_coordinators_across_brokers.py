"""Groups and transactions when their coordinator, their partitions and their clients are on different brokers, and when
the coordinator is killed: three real brokers on a real ZooKeeper.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from penstock.client.errors import ClientError
from penstock.client.sync import SyncClient
from penstock.cluster import local
from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.raw_transactions import RawProducer, described, initialize, records, until, values
from tests.cluster.three_brokers import SETTINGS, Cluster

pytestmark = pytest.mark.cluster
WAIT_SECONDS = 120.0
BROKERS = (1, 2, 3)
COORDINATORS = {
    **SETTINGS,
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_java()
        find_jars()
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("coordinators")
    started = Cluster(folder, COORDINATORS)
    yield started
    local.stop(folder)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[SyncClient]:
    with SyncClient(cluster.bootstrap) as connected:
        yield connected


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Poll; while brokers come and go a question may fail."""

    def ask() -> Any:
        try:
            return condition()
        except (ClientError, AssertionError):
            return None

    return until(ask, what, WAIT_SECONDS)


def coordinator(client: SyncClient, kind: str, key: str) -> int:
    number = {"group": 0, "transaction": 1}[kind]
    request = messages.api("find_coordinator").Request(key_type=number, coordinator_keys=[key])

    def ask() -> Any:
        found = client.call_any("find_coordinator", request).coordinators[0]
        return None if found.error_code else found

    return int(eventually(ask, f"the coordinator of {key}").node_id)


def key_coordinated_by(client: SyncClient, kind: str, node_id: int, prefix: str) -> str:
    keys = (f"{prefix}-{number}" for number in range(200))
    return next(key for key in keys if coordinator(client, kind, key) == node_id)


def leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    found = cluster.admin.list_topics(topic, timeout=20).topics[topic].partitions
    return {index: int(partition.leader) for index, partition in found.items()}


def one_partition_per_broker(cluster: Cluster, topic: str, replicas: int = 3) -> dict[int, int]:
    """A topic whose partitions are led by three different brokers: broker → partition."""
    cluster.admin.create_topics([NewTopic(topic, 3, replicas)])[topic].result(30)
    cluster.until(lambda: set(leaders(cluster, topic).values()) == set(BROKERS), "every broker leads one partition")
    return {leader: index for index, leader in leaders(cluster, topic).items()}


def produce(cluster: Cluster, topic: str, partition: int, texts: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for text in texts:
        producer.produce(topic, text, partition=partition)
    assert producer.flush(WAIT_SECONDS) == 0


def consumer(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    base = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    return Consumer({**base, "enable.auto.commit": False, **settings})


def poll(member: Consumer, seen: set[str], wanted: set[str], what: str, *others: Consumer) -> None:
    def step() -> bool:
        for one in (member, *others):
            message = one.poll(0.05)
            if message is not None and message.error() is None:
                seen.add(message.value().decode())
        return wanted <= seen

    eventually(step, what)


def committed(client: SyncClient, group: str, topic: str, partition: int) -> int:
    api = messages.api("offset_fetch").load_all_versions()
    topics = [api.request_struct("OffsetFetchRequestTopics")(name=topic, partition_indexes=[partition])]
    asked = api.request_struct("OffsetFetchRequestGroup")(group_id=group, topics=topics)
    answer = client.call_coordinator("group", group, "offset_fetch", api.Request(groups=[asked]), highest_version=9)
    found = answer.groups[0]
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def bring_back(cluster: Cluster, client: SyncClient) -> None:
    """Start what was killed, and let every broker lead and coordinate its share again."""
    cluster.restart()

    def whole(preferred: bool) -> bool:
        partitions = [p for t in cluster.admin.list_topics(timeout=20).topics.values() for p in t.partitions.values()]
        return all(len(p.isrs) == len(p.replicas) and (p.leader == p.replicas[0] or not preferred) for p in partitions)

    cluster.until(lambda: whole(preferred=False), "all replicas are in sync")
    request = messages.api("elect_leaders").Request(election_type=0, topic_partitions=None, timeout_ms=30_000)
    eventually(lambda: client.call_controller("elect_leaders", request).error_code == 0, "preferred leaders")
    cluster.until(lambda: whole(preferred=True), "preferred leaders lead")


# Groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster, client: SyncClient, protocol: str) -> None:
    topic = f"killed-{protocol}"
    partitions = one_partition_per_broker(cluster, topic)
    victim = 2
    group = key_coordinated_by(client, "group", victim, f"group-{protocol}")
    for index in partitions.values():
        produce(cluster, topic, index, [f"before {index} {n}" for n in range(5)])
    first = consumer(cluster, group, **{"group.protocol": protocol})
    second = consumer(cluster, group, **{"group.protocol": protocol})
    seen: set[str] = set()
    try:
        first.subscribe([topic])
        second.subscribe([topic])
        poll(first, seen, {f"before {i} {n}" for i in partitions.values() for n in range(5)}, "all is read", second)
        eventually(
            lambda: poll(first, seen, set(), "", second) or (first.assignment() and second.assignment()), "both share"
        )
        for index in partitions.values():
            first_or_second = first if any(p.partition == index for p in first.assignment()) else second
            first_or_second.commit(offsets=[TopicPartition(topic, index, 5)], asynchronous=False)
        cluster.kill(victim)
        moved = eventually(lambda: (found := coordinator(client, "group", group)) != victim and found, "it moved")
        assert moved != victim
        for index in partitions.values():
            assert eventually(lambda index=index: committed(client, group, topic, index), "kept offsets") == 5
            produce(cluster, topic, index, [f"after {index} {n}" for n in range(5)])
        poll(first, seen, {f"after {i} {n}" for i in partitions.values() for n in range(5)}, "it goes on", second)

        def commits() -> bool:
            poll(first, seen, set(), "", second)
            for member in (first, second):
                if member.assignment():
                    member.commit(
                        offsets=[TopicPartition(topic, p.partition, 10) for p in member.assignment()],
                        asynchronous=False,
                    )
            return all(committed(client, group, topic, index) == 10 for index in partitions.values())

        eventually(_ignoring_kafka_errors(commits), "the new coordinator takes commits")
    finally:
        first.close()
        second.close()
        bring_back(cluster, client)
    assert {committed(client, group, topic, index) for index in partitions.values()} == {10}


def _ignoring_kafka_errors(work: Callable[[], Any]) -> Callable[[], Any]:
    """A commit may meet the rebalance that the new coordinator began: the client tries again."""
    from confluent_kafka import KafkaException

    def tried() -> Any:
        try:
            return work()
        except KafkaException:
            return None

    return tried


def test_the_journal_of_rebalances_is_written_wherever_its_partition_is_led(
    cluster: Cluster, client: SyncClient
) -> None:
    one_partition_per_broker(cluster, "journalled")
    groups = [key_coordinated_by(client, "group", broker, "journalled") for broker in BROKERS]
    for group in groups:
        member = consumer(cluster, group)
        member.subscribe(["journalled"])
        eventually(lambda member=member: member.poll(0.05) or member.assignment(), "it is assigned")
        member.close()

    def journal() -> dict[str, Any]:
        latest = {(r.key or b"").decode(): r.value for r in records(client, "__penstock_rebalances")}
        return latest if all(group in latest for group in groups) else {}

    found = eventually(journal, "all three coordinators have written to the journal")
    assert leaders(cluster, "__penstock_rebalances")[0] in BROKERS
    for group in groups:
        entries = json.loads(found[group])
        assert entries[0]["causes"][0]["kind"] == "joined"
        assert entries[0]["partitions"] == 3


# Transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("implicit", [True, False], ids=["v2", "v1"])
def test_a_transaction_over_partitions_of_all_brokers(cluster: Cluster, client: SyncClient, implicit: bool) -> None:
    """Partitions are added or verified by their leaders, at a coordinator elsewhere; markers go to all of them."""
    topic = f"spread-{implicit}"
    partitions = one_partition_per_broker(cluster, topic)
    for broker in BROKERS:
        name = key_coordinated_by(client, "transaction", broker, topic)
        producer = RawProducer(client, name, implicit=implicit)
        for commit in (True, False):
            if not implicit:
                elsewhere = partitions[broker % 3 + 1]
                assert producer.send(topic, elsewhere, "nobody added this") == E.TRANSACTION_ABORTABLE
                assert set(producer.add(*((topic, index) for index in partitions.values())).values()) == {0}
            for index in partitions.values():
                assert producer.send(topic, index, f"{name} {commit}") == 0
                assert f"{name} {commit}" not in values(client, topic, index)
            assert producer.end(commit) == 0
            eventually(lambda name=name: described(client, name).transaction_state.startswith("Complete"), "markers")
        assert all(f"{name} True" in values(client, topic, index) for index in partitions.values())
    for index in partitions.values():
        assert len(values(client, topic, index)) == 3, "exactly the committed ones"
        assert len(values(client, topic, index, read_committed=False)) == 6


def test_offsets_are_committed_with_the_transaction_whoever_coordinates_the_group(
    cluster: Cluster, client: SyncClient
) -> None:
    partitions = one_partition_per_broker(cluster, "chained-in")
    one_partition_per_broker(cluster, "chained-out")
    transactional_id = key_coordinated_by(client, "transaction", 1, "chain")
    group = key_coordinated_by(client, "group", 2, "chain")
    index = partitions[3]
    produce(cluster, "chained-in", index, [f"{n}" for n in range(20)])
    reader = consumer(cluster, group)
    reader.subscribe(["chained-in"])
    writer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    writer.init_transactions(WAIT_SECONDS)
    try:
        for commit in (False, True):
            reader_position = 0

            def batch() -> list[Any]:
                return [m for m in reader.consume(20, 0.2) if m.error() is None]

            writer.begin_transaction()
            while reader_position < 20:
                for message in eventually(batch, "input"):
                    reader_position = message.offset() + 1
                    writer.produce(
                        "chained-out", f"{commit} {message.value().decode()}", partition=message.offset() % 3
                    )
            writer.send_offsets_to_transaction(
                [TopicPartition("chained-in", index, 20)], reader.consumer_group_metadata(), WAIT_SECONDS
            )
            if commit:
                writer.commit_transaction(WAIT_SECONDS)
            else:
                writer.abort_transaction(WAIT_SECONDS)
                assert eventually(lambda: committed(client, group, "chained-in", index) == -1, "the abort")
                reader.seek(TopicPartition("chained-in", index, 0))
        eventually(lambda: committed(client, group, "chained-in", index) == 20, "offsets of the transaction")
    finally:
        reader.close()
    seen = eventually(
        lambda: (
            (found := [v for p in range(3) for v in values(client, "chained-out", p)]) and len(found) >= 20 and found
        ),
        "the output shows",
    )
    assert sorted(seen) == sorted(f"True {n}" for n in range(20))


@pytest.mark.parametrize("moved", ["before", "after"])
def test_a_transaction_taken_over_as_it_is_stays_so_whoever_leads(
    cluster: Cluster, client: SyncClient, moved: str
) -> None:
    """KIP-939: all leaders know before the answer, and one that leads later asks before it lets anybody go on."""
    topic = f"kept-{moved}"
    partitions = one_partition_per_broker(cluster, topic)
    former = RawProducer(client, key_coordinated_by(client, "transaction", 1, topic), enable2_pc=True)
    for index in partitions.values():
        assert former.send(topic, index, "before") == 0
    if moved == "before":
        move_leader(cluster, client, topic, partitions[2], 3)
        assert former.send(topic, partitions[2], "still before") == 0, "a new leader asks once, and is told yes"
    successor = RawProducer(client, former.transactional_id, enable2_pc=True, keep_prepared_txn=True)
    assert successor.ongoing == former.pair
    for index in partitions.values():
        assert former.send(topic, index, "after") == E.INVALID_PRODUCER_EPOCH
    move_leader(cluster, client, topic, partitions[2], 1)
    assert former.send(topic, partitions[2], "after the change") == E.INVALID_PRODUCER_EPOCH
    assert successor.end(True) == 0
    for index in partitions.values():
        wanted = ["before", "still before"] if moved == "before" and index == partitions[2] else ["before"]
        until(lambda index=index, wanted=wanted: values(client, topic, index) == wanted, "what was prepared shows")
        assert values(client, topic, index, read_committed=False) == wanted


def test_a_take_over_waits_for_a_leader_that_cannot_be_told(cluster: Cluster, client: SyncClient) -> None:
    topic = "kept-frozen"
    partitions = one_partition_per_broker(cluster, topic)
    former = RawProducer(client, key_coordinated_by(client, "transaction", 1, topic), enable2_pc=True)
    assert former.send(topic, partitions[3], "before") == 0
    process = cluster.pid(3)
    os.kill(process, signal.SIGSTOP)
    try:
        held = {"producer_id": former.producer_id, "producer_epoch": former.epoch}
        answers = []

        def taken_over() -> bool:
            answer = initialize(client, former.transactional_id, enable2_pc=True, keep_prepared_txn=True, **held)
            answers.append(answer)
            return bool(answer.error_code == 0)

        eventually(taken_over, "the frozen leader is deposed, and the next one asks")
    finally:
        os.kill(process, signal.SIGCONT)
    assert {answer.error_code for answer in answers[:-1]} <= {E.CONCURRENT_TRANSACTIONS}
    assert answers[-1].producer_epoch == former.epoch + 1
    assert eventually(lambda: former.send(topic, partitions[3], "after"), "an answer") == E.INVALID_PRODUCER_EPOCH
    bring_back(cluster, client)
    assert values(client, topic, partitions[3], read_committed=False) == ["before"]


def move_leader(cluster: Cluster, client: SyncClient, topic: str, partition: int, to: int) -> None:
    api = messages.api("alter_partition_reassignments")
    wanted = api.ReassignablePartition(
        partition_index=partition, replicas=[to, *(broker for broker in BROKERS if broker != to)]
    )
    request = api.Request(timeout_ms=30_000, topics=[api.ReassignableTopic(name=topic, partitions=[wanted])])
    assert client.call_controller("alter_partition_reassignments", request).error_code == 0
    elect = messages.api("elect_leaders")
    request = elect.Request(
        election_type=0,
        topic_partitions=[elect.TopicPartitions(topic=topic, partitions=[partition])],
        timeout_ms=30_000,
    )
    cluster.until(
        lambda: (
            client.call_controller("elect_leaders", request).error_code == 0
            and leaders(cluster, topic)[partition] == to
        ),
        f"broker {to} leads",
    )


def test_a_coordinator_killed_between_the_decision_and_the_markers(cluster: Cluster, client: SyncClient) -> None:
    """One partition has no leader when the transaction is committed, so its marker cannot be written; then the
    coordinator dies. The next one finds the decision in its log and brings it to its end."""
    alone = one_partition_per_broker(cluster, "decided-alone", replicas=1)
    spread = one_partition_per_broker(cluster, "decided")
    coordinator_id, leader = 1, 2
    name = key_coordinated_by(client, "transaction", coordinator_id, "decided")
    producer = RawProducer(client, name)
    assert producer.send("decided-alone", alone[leader], "alone") == 0
    for index in spread.values():
        assert producer.send("decided", index, "spread") == 0
    try:
        cluster.kill(leader)
        eventually(lambda: leaders(cluster, "decided-alone")[alone[leader]] == -1, "nobody leads the partition")
        assert producer.end(True) == 0, "the decision does not wait for the markers"
        assert eventually(lambda: described(client, name), "its state").transaction_state == "PrepareCommit"
        os.kill(cluster.pid(coordinator_id), signal.SIGKILL)
        eventually(lambda: coordinator(client, "transaction", name) == 3, "another one coordinates")
        eventually(lambda: described(client, name).transaction_state == "PrepareCommit", "it knows the decision")
    finally:
        bring_back(cluster, client)
    eventually(lambda: described(client, name).transaction_state == "CompleteCommit", "all markers are written")
    assert values(client, "decided-alone", alone[leader]) == ["alone"]
    for index in spread.values():
        assert values(client, "decided", index) == ["spread"]
    again = RawProducer(client, name)
    assert again.producer_id == producer.producer_id
    assert again.epoch > producer.epoch - 1
