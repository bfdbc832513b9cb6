"""Strangers who speak as a broker: internal messages, followers' fetches, foreign transactions, names as paths."""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, frame, produce_request

import penstock
from penstock.client.connection import Connection
from penstock.cluster.image_codec import ImageFormatError, decode_push
from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.security.broker_proof import PROOF_KEY, BrokerSecrets, Dialler, read_message
from penstock.security.broker_secret import rotate_secret

IMAGE_PUSH, CONTROLLED_SHUTDOWN, ALTER_PARTITION = 10000, 10001, 56


def own_frame(api_key: int, body: bytes, version: int = 0) -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, 3) + b"raw\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def push(broker: Any, topic: str = "evil", controller_id: int = 1) -> bytes:
    """What a stranger would send to bring a topic of his own into the image."""
    image = broker._broker.image
    partition = [0, [1], [1], 1, 0, 0, [], [], [], 0]
    topics = [{"name": topic, "id": uuid.uuid4().hex, "partitions": [partition]}]
    full = {"cluster_id": image.cluster_id, "controller_id": controller_id, "controller_epoch": 99, "version": 9999}
    body = {
        "format": 0,
        "cluster_id": image.cluster_id,
        "controller_id": controller_id,
        "controller_epoch": 99,
        "broker_epoch": broker._broker.member.broker_epoch,
        "full": {**full, "brokers": [], "topics": topics, "configs": []},
    }
    return json.dumps(body).encode()


@pytest.fixture(scope="module")
def alone() -> Iterator[penstock.Broker]:
    with penstock.Broker() as broker:
        ensure_topic(broker.port, "orders")
        yield broker


@pytest.mark.parametrize("api_key", [IMAGE_PUSH, CONTROLLED_SHUTDOWN, ALTER_PARTITION])
def test_a_node_alone_takes_no_internal_message(alone: penstock.Broker, api_key: int) -> None:
    epoch = alone._broker.member.broker_epoch
    bodies = {
        IMAGE_PUSH: own_frame(IMAGE_PUSH, push(alone)),
        CONTROLLED_SHUTDOWN: own_frame(
            CONTROLLED_SHUTDOWN, json.dumps({"broker_id": 1, "broker_epoch": epoch}).encode()
        ),
        ALTER_PARTITION: frame(
            ALTER_PARTITION,
            3,
            messages.encode_request(
                ALTER_PARTITION, 3, messages.api("alter_partition").Request(broker_id=1, broker_epoch=epoch, topics=[])
            ),
        ),
    }
    with RawClient(alone.port) as stranger:
        stranger.send(bodies[api_key])
        assert stranger.is_closed()
    assert "evil" not in alone._broker.image.topics
    assert not any(b.shutting_down for b in alone._broker.image.brokers.values())


def test_a_node_alone_lets_nobody_prove_to_be_a_broker(alone: penstock.Broker) -> None:
    dialler = Dialler(BrokerSecrets.generate(), alone._broker.cluster_id, 5, 1)
    with RawClient(alone.port) as stranger:
        stranger.send(own_frame(PROOF_KEY, dialler.hello()))
        assert read_message(stranger.read_frame()[5:])["refused"]


@pytest.mark.parametrize("version", [4, 11, 17])
def test_a_stranger_fetches_nothing_as_a_follower(alone: penstock.Broker, version: int) -> None:
    topic_id = ensure_topic(alone.port, "orders")
    request = fetch_request("orders", 0, topic_id=topic_id if version >= 13 else None)
    if version >= 15:
        request.replica_state = messages.api("fetch").load_all_versions().ReplicaState(replica_id=1, replica_epoch=1)
    else:
        request.replica_id = 1
    with RawClient(alone.port) as stranger:
        stranger.call("produce", 9, produce_request("orders", batch(b"secret")))
        answer = stranger.call("fetch", version, request)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not partition.records


def test_a_stranger_asks_no_epochs_as_a_follower(alone: penstock.Broker) -> None:
    api = messages.api("offset_for_leader_epoch")
    wanted = api.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topics = [api.OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
    with RawClient(alone.port) as client:
        as_broker = client.call("offset_for_leader_epoch", 4, api.Request(replica_id=1, topics=topics))
        as_client = client.call("offset_for_leader_epoch", 4, api.Request(replica_id=-1, topics=topics))
    assert as_broker.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert as_client.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_stranger_adds_to_nobodys_transaction(alone: penstock.Broker, version: int) -> None:
    api = messages.api("add_partitions_to_txn").load_all_versions()
    transaction = api.AddPartitionsToTxnTransaction(
        transactional_id="theirs",
        producer_id=1,
        producer_epoch=0,
        verify_only=False,
        topics=[api.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    with RawClient(alone.port) as stranger:
        answer = stranger.call("add_partitions_to_txn", version, api.Request(transactions=[transaction]))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not answer.results_by_transaction


def test_names_of_groups_stay_below_their_node(alone: penstock.Broker) -> None:
    api = messages.api("incremental_alter_configs")
    for group in ("../../brokers/ids/7", "a/b", "..", "ends/"):
        config = api.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
        resource = api.AlterConfigsResource(resource_type=32, resource_name=group, configs=[config])
        with RawClient(alone.port) as client:
            answer = client.call("incremental_alter_configs", 1, api.Request(resources=[resource]))
            assert answer.responses[0].error_code == 0, answer
            listed = messages.api("list_config_resources")
            names = client.call("list_config_resources", 1, listed.Request(resource_types=[32])).config_resources
        assert group in {resource.resource_name for resource in names}
    children = asyncio.run_coroutine_threadsafe(alone._broker.store.children("/config/groups"), alone._loop).result(10)
    assert "a%2Fb" in children


@pytest.mark.parametrize("name", ["../../evil", "..", "a/b", "", "x" * 250, "a\0b", 5, None])
def test_no_image_brings_a_name_that_create_topics_would_refuse(alone: penstock.Broker, name: Any) -> None:
    with pytest.raises(ImageFormatError):
        decode_push(push(alone, name))


def test_an_image_that_explodes_is_refused_small() -> None:
    bomb = zlib.compress(b'{"format":1,"x":"' + b"a" * 42_000_000 + b'"}', 9)
    assert len(bomb) < 50_000
    with pytest.raises(ImageFormatError, match="larger than any image"):
        decode_push(bomb)


def test_what_cannot_be_read_is_not_logged_whole() -> None:
    for data in (json.dumps(["x" * 1_000_000]).encode(), json.dumps({"format": "y" * 1_000_000}).encode()):
        with pytest.raises(ImageFormatError) as refused:
            decode_push(data)
        assert len(str(refused.value)) < 300


@pytest.fixture(scope="module")
def two(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[penstock.Broker]]:
    folder: Path = tmp_path_factory.mktemp("two")
    settings = {
        "zookeeper.connect": f"{zookeeper.connect}/two-{uuid.uuid4().hex[:8]}",
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
    }
    brokers = [penstock.Broker(folder / str(n), broker_id=n, settings=settings) for n in (1, 2)]
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


def on_loop(broker: penstock.Broker, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, broker._loop).result(30)


async def dial(broker: penstock.Broker, secrets: BrokerSecrets, own_id: int) -> tuple[Connection, Any]:
    """A connection that claims to be a broker, and what the other says to its proof."""
    inner = broker._broker
    connection = await Connection.open("127.0.0.1", broker.port)
    dialler = Dialler(secrets, inner.cluster_id, own_id, inner.node_id)
    hello = read_message(await connection.request_bytes(PROOF_KEY, 0, dialler.hello()))
    if "refused" in hello:
        return connection, hello["refused"]
    proof = dialler.finish(json.dumps(hello).encode())
    answer = read_message(await connection.request_bytes(PROOF_KEY, 0, proof))
    return connection, answer.get("refused")


def replicated(brokers: list[penstock.Broker], topic: str) -> Any:
    """A topic with both brokers in the ISR; its leader."""
    ensure_topic(brokers[0].port, topic)

    async def in_sync() -> int:
        holder = brokers[0]._broker.image_holder
        assert await holder.wait_until(
            lambda image: (p := image.partition(topic, 0)) is not None and len(p.isr) == 2, 30
        )
        return int(holder.image.partition(topic, 0).leader)

    leader = on_loop(brokers[0], in_sync())
    return brokers[leader - 1]


def test_brokers_of_a_cluster_prove_themselves_and_replicate(two: list[penstock.Broker]) -> None:
    leader = replicated(two, "replicated")
    with RawClient(leader.port) as client:
        answer = client.call("produce", 9, produce_request("replicated", batch(b"x"), acks=-1))
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_stranger_in_a_cluster_is_closed_before_his_message_is_read(two: list[penstock.Broker]) -> None:
    for broker in two:
        with RawClient(broker.port) as stranger:
            stranger.send(own_frame(IMAGE_PUSH, b"\xff" * 1000))
            assert stranger.is_closed()
    assert not any("evil" in broker._broker.image.topics for broker in two)


def test_a_stranger_does_not_move_the_high_watermark(two: list[penstock.Broker]) -> None:
    leader = replicated(two, "watermark")
    follower_id = 3 - leader._broker.node_id
    topic_id = ensure_topic(leader.port, "watermark")
    request = fetch_request("watermark", 0, topic_id=topic_id)
    state = messages.api("fetch").load_all_versions().ReplicaState
    for epoch in (-1, leader._broker.image.brokers[follower_id].epoch):
        request.replica_state = state(replica_id=follower_id, replica_epoch=epoch)
        with RawClient(leader.port) as stranger:
            answer = stranger.call("fetch", 17, request)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_proven_broker_speaks_only_for_itself_and_with_its_epoch(two: list[penstock.Broker]) -> None:
    leader = replicated(two, "itself")
    inner = leader._broker
    topic_id = ensure_topic(leader.port, "itself")
    api = messages.api("fetch").load_all_versions()

    async def fetched(own_id: int, replica_id: int, epoch: int) -> int:
        connection, refused = await dial(leader, inner.secret_keeper.secrets, own_id)
        assert refused is None
        request = fetch_request("itself", 0, topic_id=topic_id)
        request.replica_state = api.ReplicaState(replica_id=replica_id, replica_epoch=epoch)
        answer = await connection.request("fetch", request, version=17)
        connection.close()
        return int(answer.responses[0].partitions[0].error_code)

    follower_id = 3 - inner.node_id
    epoch = inner.image.brokers[follower_id].epoch
    assert on_loop(leader, fetched(follower_id, follower_id, epoch)) == 0
    assert on_loop(leader, fetched(follower_id, follower_id, -1)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert on_loop(leader, fetched(7, follower_id, epoch)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_proven_broker_pushes_no_image_in_the_controllers_name(two: list[penstock.Broker]) -> None:
    broker = two[0]

    async def pushed() -> dict[str, Any]:
        connection, refused = await dial(broker, broker._broker.secret_keeper.secrets, 7)
        assert refused is None
        data = await connection.request_bytes(IMAGE_PUSH, 0, push(broker, controller_id=2))
        connection.close()
        return dict(json.loads(bytes(data)))

    assert on_loop(broker, pushed())["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "evil" not in broker._broker.image.topics


def test_a_wrong_secret_proves_nothing(two: list[penstock.Broker]) -> None:
    _, refused = on_loop(two[0], dial(two[0], BrokerSecrets.generate(), 2))
    assert "another secret" in refused


def test_a_new_secret_is_used_at_once_and_the_old_one_once_more(two: list[penstock.Broker]) -> None:
    one = two[0]
    old = one._broker.secret_keeper.secrets
    on_loop(one, rotate_secret(one._broker.store))

    async def reaches_the_other() -> Any:
        other = one._broker.image.brokers[2]
        connection = await one._broker.inter_broker.dial(other, "test")
        connection.close()
        return one._broker.secret_keeper.secrets

    on_loop(one, reaches_the_other())
    _, refused = on_loop(two[1], dial(two[1], old, 1))
    assert refused is None
    on_loop(one, rotate_secret(one._broker.store))

    async def refused_now() -> Any:
        newest = await two[1]._broker.store.get("/penstock/broker_secret")
        assert old.newest.hex() not in newest.data.decode()
        while old.newest in two[1]._broker.secret_keeper.secrets.values:
            await asyncio.sleep(0)
        return (await dial(two[1], old, 1))[1]

    assert "another secret" in on_loop(two[1], refused_now())
