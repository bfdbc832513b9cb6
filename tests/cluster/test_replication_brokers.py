"""Three real brokers on a real ZooKeeper: records survive their leaders, replicas agree byte by byte."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.client.connection import Connection
from penstock.client.sync import SyncClient
from penstock.cluster import local
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record
from tests.cluster.raw_readers import Reader, Told
from tests.cluster.three_brokers import DEADLINE_SECONDS, SETTINGS, Cluster, Sender, cluster, read_all

__all__ = ["cluster"]

pytestmark = pytest.mark.cluster


def test_acknowledged_records_survive_the_kill_of_their_leader(cluster: Cluster) -> None:
    cluster.create("killed")
    sender = Sender(cluster, "killed")
    sender.send(500)
    sender.flush()
    old_leader = cluster.leader("killed")
    sender.send(500)
    cluster.kill(old_leader)
    sender.send(500)
    sender.flush()
    assert sender.errors == []
    assert len(sender.acknowledged) == 1500
    assert cluster.leader("killed") != old_leader
    assert len(cluster.isr("killed")) == 2
    cluster.restart()
    cluster.until_replicas_agree("killed")
    read = read_all(cluster, "killed")
    assert [value for _, value in read] == sorted(sender.acknowledged, key=sender.acknowledged.__getitem__)
    assert {value: offset for offset, value in read} == sender.acknowledged


def test_readers_at_the_end_are_told_the_same_through_kills_and_freezes(cluster: Cluster) -> None:
    """On the leader and on single brokers, in sessions and without, with records of aborted transactions between."""
    cluster.create("watched")
    told = Told()
    readers = [
        Reader(
            f"{of}-{number}", told, port, "watched", isolation_level=number % 2, in_session=number % 4 > 1,
            of_leader=of == "leader",
        )
        for number in range(4)
        for of, port in (
            ("leader", lambda: cluster.local.broker_port(max(cluster.leader("watched"), 1))),
            ("broker", lambda number=number: cluster.local.broker_port(number % 3 + 1)),
        )
    ]  # fmt: skip
    for reader in readers:
        reader.start()
    try:
        sender = Sender(cluster, "watched")
        transactional = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "watched", "log_level": 0}
        )
        transactional.init_transactions(DEADLINE_SECONDS)
        for disturb in (cluster.freeze_a_follower, cluster.kill_leader):
            for number in range(4):
                sender.send(20)
                transactional.begin_transaction()
                transactional.produce("watched", b"in a transaction", partition=0)
                end = transactional.abort_transaction if number % 2 else transactional.commit_transaction
                end(DEADLINE_SECONDS)
                sender.flush()
            sender.send(100)
            disturb("watched")
            sender.send(100)
            sender.flush()
        cluster.until_replicas_agree("watched")
        end_offset = max(sender.acknowledged.values()) + 1
        cluster.until(
            lambda: told.wrong != [] or all(r.offset >= end_offset for r in readers), "everybody has read all"
        )
    finally:
        for reader in readers:
            reader.end()
        for reader in readers:
            reader.join()
    assert told.wrong == []
    assert sender.errors == []


def test_below_min_isr_nothing_is_acknowledged_and_it_heals_by_itself(cluster: Cluster) -> None:
    cluster.create("frozen")
    sender = Sender(cluster, "frozen")
    sender.send(10)
    sender.flush()
    leader = cluster.leader("frozen")
    stopped = [broker for broker in (1, 2, 3) if broker != leader]
    for broker in stopped:
        os.kill(cluster.pid(broker), signal.SIGSTOP)
    try:
        impatient = Sender(cluster, "frozen", **{"message.timeout.ms": 8000, "request.timeout.ms": 3000})
        impatient.send(1)
        impatient.flush()
        assert len(impatient.errors) == 1, "the two others stand still: nobody can confirm"
    finally:
        for broker in stopped:
            os.kill(cluster.pid(broker), signal.SIGCONT)
    cluster.until(lambda: cluster.isr("frozen") == [1, 2, 3], "everybody is back in sync")
    sender.send(10)
    sender.flush()
    assert len(sender.acknowledged) == 20
    cluster.until_replicas_agree("frozen")


def test_a_follower_with_a_torn_and_a_diverged_log_comes_back_right(cluster: Cluster) -> None:
    cluster.create("damaged")
    sender = Sender(cluster, "damaged")
    sender.send(300)
    sender.flush()
    victim = next(broker for broker in (1, 2, 3) if broker != cluster.leader("damaged"))
    cluster.kill(victim)
    log = sorted((cluster.local.folder(f"broker-{victim}") / "data" / "damaged-0").glob("*.log"))[-1]
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - 37] + os.urandom(500))
    sender.send(300)
    sender.flush()
    cluster.restart()
    cluster.until_replicas_agree("damaged")
    assert len(read_all(cluster, "damaged")) == 600


def test_deleted_records_go_on_all_replicas(cluster: Cluster) -> None:
    cluster.create("deleted")
    sender = Sender(cluster, "deleted")
    sender.send(3000)
    sender.flush()
    for deleted in cluster.admin.delete_records([TopicPartition("deleted", 0, 2500)]).values():
        deleted.result(30)  # answered when every replica has done it
    assert read_all(cluster, "deleted")[0][0] == 2500
    old_leader = cluster.leader("deleted")
    cluster.kill(old_leader)
    cluster.until(lambda: cluster.leader("deleted") not in (old_leader, -1), "another one leads")
    assert read_all(cluster, "deleted")[0][0] == 2500
    cluster.restart()
    cluster.until(lambda: cluster.isr("deleted") == [1, 2, 3], "everybody is back in sync")


def test_a_new_replica_begins_in_the_middle_of_a_batch(cluster: Cluster) -> None:
    """Where records were deleted up to: it gets the whole batch from its leader."""
    cluster.admin.create_topics([NewTopic("cut-batch", 1, replica_assignment=[[1]])])["cut-batch"].result(30)
    with SyncClient(cluster.bootstrap) as client:
        for _ in range(2):
            client.produce("cut-batch", 0, build_batch([new_record(None, b"value", 1) for _ in range(10)]))
        for deleted in cluster.admin.delete_records([TopicPartition("cut-batch", 0, 15)]).values():
            deleted.result(30)
        api = messages.api("alter_partition_reassignments")
        wanted = api.ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
        topics = [api.ReassignableTopic(name="cut-batch", partitions=[wanted])]
        client.call_controller("alter_partition_reassignments", api.Request(timeout_ms=30_000, topics=topics))
    cluster.until(lambda: cluster.isr("cut-batch") == [1, 2, 3], "the new replicas are in sync")
    cluster.kill(1)
    cluster.until(lambda: cluster.leader("cut-batch") in (2, 3), "one of them leads")
    assert [offset for offset, _ in read_all(cluster, "cut-batch")] == [15, 16, 17, 18, 19]
    cluster.restart()
    cluster.until(lambda: cluster.isr("cut-batch") == [1, 2, 3], "everybody is back in sync")


def test_a_controlled_stop_moves_the_leadership_without_an_error(cluster: Cluster) -> None:
    cluster.create("moved")
    sender = Sender(cluster, "moved")
    sender.send(50)
    sender.flush()
    old_leader = cluster.leader("moved")
    os.kill(cluster.pid(old_leader), signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while cluster._runs(old_leader):
        assert time.monotonic() < deadline
        sender.send(5)
        sender.producer.poll(0.02)
    sender.flush()
    assert sender.errors == []
    assert cluster.leader("moved") != old_leader
    cluster.restart()
    cluster.until_replicas_agree("moved")
    assert len(read_all(cluster, "moved")) == sender.count


# --- who may lead, and who is asked ---


def stop_in_peace(cluster: Cluster, broker: int) -> None:
    os.kill(cluster.pid(broker), signal.SIGTERM)
    cluster.until(lambda: not cluster._runs(broker), f"broker {broker} has stopped")


def eligible(cluster: Cluster, topic: str) -> tuple[list[int], list[int]]:
    """(ELR, last known ELR), as any client may ask for them."""

    async def ask() -> tuple[list[int], list[int]]:
        running = next(row for row in local.status(cluster.folder) if row.running and row.name != "zookeeper")
        connection = await Connection.open("127.0.0.1", int(running.address.rpartition(":")[2]))
        try:
            api = messages.api("describe_topic_partitions")
            request = api.Request(topics=[api.TopicRequest(name=topic)])
            answer = await connection.request("describe_topic_partitions", request)
            row = answer.topics[0].partitions[0]
            return sorted(row.eligible_leader_replicas or []), sorted(row.last_known_elr or [])
        finally:
            connection.close()

    return asyncio.run(ask())


def test_after_a_power_loss_the_one_that_stopped_in_peace_leads(cluster: Cluster) -> None:
    """RF 2, min ISR 2: broker 1 stops in peace with all data, broker 2 loses power and its unsynced tail."""
    new = NewTopic("power", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
    cluster.admin.create_topics([new])["power"].result(30)
    cluster.until(lambda: cluster.isr("power") == [1, 2], "both are in sync")
    sender = Sender(cluster, "power")
    sender.send(500)
    sender.flush()
    stop_in_peace(cluster, 1)
    cluster.until(lambda: eligible(cluster, "power") == ([1], []), "broker 1 is eligible")
    cluster.kill(2)
    for path in (cluster.local.folder("broker-2") / "data" / "power-0").glob("*.log"):
        os.truncate(path, 0)
    cluster.until(lambda: eligible(cluster, "power") == ([1, 2], [2]), "the controller knows that 2 is gone")
    cluster.restart_only(2)
    cluster.until(lambda: eligible(cluster, "power") == ([1], [2]), "broker 2 cannot prove that it has everything")
    assert cluster.leader("power") == -1, "it waits for broker 1"
    cluster.restart()
    cluster.until(lambda: cluster.leader("power") == 1 and cluster.isr("power") == [1, 2], "both are in sync again")
    assert [value for _, value in read_all(cluster, "power")] == list(sender.acknowledged)
    assert eligible(cluster, "power") == ([], [])


def test_isr_changes_do_not_wait_for_a_frozen_controller(cluster: Cluster) -> None:
    """The controller is frozen with an ISR change on its way; its successor hears of the next one without delay.

    Lagging shows long before the session of the frozen one ends: the change is under way to it when it is deposed."""
    for broker in (1, 2, 3):
        stop_in_peace(cluster, broker)
    cluster.settings = {**SETTINGS, "replica.lag.time.max.ms": "2000", "zookeeper.session.timeout.ms": "12000"}
    cluster.restart()
    controller = cluster.admin.list_topics(timeout=20).controller_id
    leader, follower = others = [broker for broker in (1, 2, 3) if broker != controller]
    new = NewTopic("stalled", 1, replica_assignment=[[leader, controller, follower]])
    cluster.admin.create_topics([new])["stalled"].result(30)
    cluster.until(lambda: len(cluster.isr("stalled")) == 3, "all replicas are in sync")
    admin = AdminClient({"bootstrap.servers": cluster.address(leader), "log_level": 0})

    def in_sync() -> list[int]:
        """As the leader says it; nothing while the client asks one that is frozen."""
        try:
            partitions = admin.list_topics("stalled", timeout=2).topics["stalled"].partitions
        except KafkaException:
            return []
        return sorted(partitions[0].isrs) if partitions else []

    producer = Producer({"bootstrap.servers": cluster.address(leader), "acks": "1", "log_level": 0})

    def write() -> None:  # what a frozen broker lacks: its leader asks the controller to record that it lags
        for number in range(10):
            producer.produce("stalled", str(number).encode())
        producer.flush(60)

    os.kill(cluster.pid(follower), signal.SIGSTOP)  # so that the leader has a connection to the controller
    try:
        write()
        cluster.until(lambda: set(in_sync()) == {leader, controller}, "the follower lags")
    finally:
        os.kill(cluster.pid(follower), signal.SIGCONT)
    cluster.until(lambda: in_sync() == [1, 2, 3], "it does not any more")
    pid = cluster.pid(controller)
    os.kill(pid, signal.SIGSTOP)
    try:
        write()
        cluster.until(lambda: in_sync() == others, "the frozen one has left the ISR")
        stop_in_peace(cluster, follower)
        cluster.restart_only(follower)
        cluster.until(lambda: in_sync() == others, "the follower is in sync again")
    finally:
        os.kill(pid, signal.SIGCONT)
    said = (cluster.local.folder(f"broker-{leader}") / "process.log").read_text()
    assert "did not answer alter_partition" not in said, "the leader waited until its request timed out"
    cluster.until_replicas_agree("stalled")
