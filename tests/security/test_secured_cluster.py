"""Three brokers that speak SASL_SSL among themselves and log in at ZooKeeper: replication, groups, transactions."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import penstock
from penstock.base.settings import Settings
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionLost
from penstock.client.security import Security
from penstock.cluster.zookeeper_process import ZooKeeperProcess
from penstock.protocol import messages
from penstock.security.bootstrap import store_passwords
from penstock.security.broker_proof import PROOF_KEY, Dialler, read_message
from tests.security.pki import Pki

pytestmark = pytest.mark.cluster

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=broker password=broker-secret"
    " user_broker=broker-secret user_anna=anna-secret;"
)


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("secured")
    chroot = f"/secured-{uuid.uuid4().hex[:8]}"
    settings = {
        "zookeeper.connect": zookeeper.connect + chroot,
        "penstock.zookeeper.auth": "digest:broker:zk-secret",
        "zookeeper.set.acl": "true",
        "listeners": "CLIENT://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INSIDE:SASL_SSL,CONTROL:SASL_SSL",
        "inter.broker.listener.name": "INSIDE",
        "control.plane.listener.name": "CONTROL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": JAAS,
        "super.users": "User:broker",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        **pki.server_settings(),
    }
    brokers = [penstock.Broker(folder / str(n), broker_id=n, settings=settings) for n in (1, 2, 3)]
    try:
        for broker in brokers:
            broker.start()
        yield {"brokers": brokers, "zookeeper": zookeeper, "chroot": chroot}
    finally:
        for broker in brokers:
            broker.stop()


def client(cluster: Any, pki: Pki, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(broker.bootstrap for broker in cluster["brokers"]),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anna",
        "sasl.password": "anna-secret",
        "ssl.ca.location": pki.ca,
        **more,
    }


def test_a_cluster_forms_replicates_and_commits_over_sasl_ssl(cluster: Any, pki: Pki) -> None:
    admin = AdminClient(client(cluster, pki))
    topic = NewTopic("orders", 3, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([topic])["orders"].result(60)
    producer = Producer(client(cluster, pki, **{"transactional.id": "t", "acks": "all"}))
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("orders", str(number).encode(), key=str(number).encode())
    producer.commit_transaction(60)
    options = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer(client(cluster, pki, **options))
    consumer.subscribe(["orders"])
    try:
        found: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(found) < 30 and time.monotonic() < deadline:
            found |= {message.value() for message in consumer.consume(30, 0.2) if message.error() is None}
        assert len(found) == 30
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_nobody_but_brokers_reads_secrets_in_zookeeper(cluster: Any) -> None:
    stranger = KazooClient(cluster["zookeeper"].connect + cluster["chroot"])
    stranger.start()
    try:
        with pytest.raises(NoAuthError):
            stranger.get("/penstock/broker_secret")
        with pytest.raises(NoAuthError):
            stranger.get_children("/config/users")
        with pytest.raises(NoAuthError):
            stranger.set("/controller_epoch", b"99")
        assert json.loads(stranger.get("/brokers/ids/1")[0])["version"] == 5  # what is no secret can be looked at
    finally:
        stranger.stop()
        stranger.close()


def test_a_user_with_the_secret_but_no_brokers_name_is_no_broker(cluster: Any, pki: Pki) -> None:
    """Proofs and principals are both needed where connections are authenticated."""

    one = cluster["brokers"][0]._broker
    inside = next(listener for listener in one.listeners if listener.name == "INSIDE")

    async def proven_as(name: str) -> Any:
        security = Security("SASL_SSL", "PLAIN", name, f"{name}-secret", ca_location=pki.ca)
        connection = await Connection.open("127.0.0.1", inside.port, security=security)
        dialler = Dialler(one.secret_keeper.secrets, one.cluster_id, 2, 1)
        answer = read_message(await connection.request_bytes(PROOF_KEY, 0, dialler.hello()))
        connection.close()
        return answer.get("refused")

    assert "not the principal of a broker" in asyncio.run(proven_as("anna"))
    assert asyncio.run(proven_as("broker")) is None


def test_rebalances_are_journalled_over_the_brokers_own_login(cluster: Any) -> None:
    """The journal is written as any producer would, by the brokers' user."""
    one = cluster["brokers"][0]._broker

    async def written() -> bool:
        return await one.image_holder.wait_until(lambda image: image.topic("__penstock_rebalances") is not None, 30)

    assert asyncio.run_coroutine_threadsafe(written(), cluster["brokers"][0]._loop).result(60)


def test_brokers_may_log_in_by_scram_from_the_first_start_on(
    zookeeper: ZooKeeperProcess, tmp_path: Path, pki: Pki
) -> None:
    """Their user is in the store before the first of them starts, and the first image comes over such a connection."""
    settings = {
        "zookeeper.connect": f"{zookeeper.connect}/scram-{uuid.uuid4().hex[:8]}",
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.jaas.config": "x.ScramLoginModule required username=broker password=b;",
        "offsets.topic.replication.factor": "1",
        **pki.server_settings(),
    }
    asyncio.run(store_passwords(Settings.load(None, settings), {"broker": "b", "anna": "a"}, "SCRAM-SHA-512"))
    brokers = [penstock.Broker(tmp_path / str(n), broker_id=n, settings=settings) for n in (1, 2)]
    try:
        for broker in brokers:
            broker.start()
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "a"}
        admin = AdminClient(client({"brokers": brokers}, pki, **login))
        admin.create_topics([NewTopic("both", 1, 2)])["both"].result(60)
        producer = Producer(client({"brokers": brokers}, pki, **login, acks="all"))
        producer.produce("both", b"x")
        assert producer.flush(60) == 0
    finally:
        for broker in brokers:
            broker.stop()


def test_an_upgrade_may_let_unproven_brokers_in(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    """With accept an older release's messages are still taken, on the brokers' listener and nowhere else."""
    settings = {
        "zookeeper.connect": f"{zookeeper.connect}/accept-{uuid.uuid4().hex[:8]}",
        "penstock.inter.broker.secret": "accept",
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }

    async def asked(port: int) -> Any:
        connection = await Connection.open("127.0.0.1", port)
        body = json.dumps({"broker_id": 9, "broker_epoch": 1}).encode()
        return json.loads(bytes(await connection.request_bytes(10001, 0, body)))

    with penstock.Broker(tmp_path, broker_id=1, settings=settings) as broker:
        inside, other = broker._broker.listeners
        assert asyncio.run(asked(inside.port))["error_code"] == 77  # STALE_BROKER_EPOCH: it was looked at
        with pytest.raises(ConnectionLost):
            asyncio.run(asked(other.port))


def test_clients_are_not_served_on_the_controllers_listener(cluster: Any, pki: Pki) -> None:

    one = cluster["brokers"][0]._broker
    control = next(listener for listener in one.listeners if listener.name == "CONTROL")

    async def story() -> None:
        security = Security("SASL_SSL", "PLAIN", "anna", "anna-secret", ca_location=pki.ca)
        connection = await Connection.open("127.0.0.1", control.port, security=security)
        await connection.request("metadata", messages.api("metadata").Request(topics=None))

    with pytest.raises(ConnectionLost):
        asyncio.run(story())
