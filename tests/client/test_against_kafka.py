"""The client against real brokers: Apache Kafka with TLS and SASL, and Penstock itself."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.errors import AuthenticationFailed, KafkaError
from penstock.client.records import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.testing import peers
from penstock.testing.ports import free_port

USER, PASSWORD = "ada", "correct horse"
PLAIN_USERS = f'required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'


@dataclass
class SecureKafka:
    bootstrap: str
    sasl: str
    tls: str
    certificate: Path


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """One Apache Kafka that listens in plain text, with SASL and with TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    certificate, store = folder / "certificate.pem", folder / "keystore.pem"
    key = folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    store.write_text(key.read_text() + certificate.read_text())
    sasl, tls = free_port(), free_port()
    modules = "org.apache.kafka.common.security"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
        f"SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule {PLAIN_USERS}",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with peers.apache_kafka(settings=settings) as kafka:
        yield SecureKafka(kafka.bootstrap, f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", certificate)


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.java), "penstock"])
def client(request: pytest.FixtureRequest) -> Iterator[SyncClient]:
    with ExitStack() as stack:
        if request.param == "kafka":
            bootstrap = request.getfixturevalue("secure_kafka").bootstrap
        else:
            bootstrap = stack.enter_context(penstock.Broker()).bootstrap
        yield stack.enter_context(SyncClient(bootstrap))


def create_topic(client: SyncClient, partitions: int = 3) -> str:
    api = messages.api("create_topics")
    name = f"topic-{uuid.uuid4()}"
    topic = api.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.call_controller("create_topics", api.Request(topics=[topic], timeout_ms=10_000))
    assert [result.error_code for result in answer.topics] == [0]
    return name


def batch(count: int, timestamp_ms: int) -> bytes:
    """A batch that an independent client has built."""
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for offset in range(count):
        builder.append(offset, timestamp_ms + offset, b"key", b"value %d" % offset, [])
    return bytes(builder.build())


def values(data: bytes) -> list[bytes]:
    from kafka.record import MemoryRecords

    found, read = [], MemoryRecords(data)
    while read.has_next():
        found += [bytes(record.value) for record in read.next_batch()]
    return found


def test_what_is_produced_comes_back_byte_for_byte(client: SyncClient) -> None:
    topic = create_topic(client)
    now = int(time.time() * 1000)
    first = client.produce(topic, 1, batch(5, now))
    second = client.produce(topic, 1, batch(3, now + 100), acks=1)
    assert (first.base_offset, second.base_offset) == (0, 5)
    fetched = client.fetch({(topic, 0): 0, (topic, 1): 0})
    assert fetched[(topic, 0)].records == b""
    assert values(fetched[(topic, 1)].records) == [b"value %d" % n for n in (0, 1, 2, 3, 4, 0, 1, 2)]
    assert fetched[(topic, 1)].high_watermark == 8
    # The body behind base offset, length and leader epoch is what was sent.
    assert fetched[(topic, 1)].records[16 : len(batch(5, now))] == batch(5, now)[16:]


def test_offsets_by_place_and_by_time(client: SyncClient) -> None:
    topic = create_topic(client)
    now = int(time.time() * 1000) - 10_000
    client.produce(topic, 0, batch(10, now))
    wanted = {LATEST: 10, EARLIEST: 0, MAX_TIMESTAMP: 9, now + 4: 4, now + 500: -1}
    for at, offset in wanted.items():
        assert client.list_offsets({(topic, 0): at})[(topic, 0)].offset == offset, at
    both = client.list_offsets({(topic, 0): LATEST, (topic, 2): LATEST})
    assert {key[1]: value.offset for key, value in both.items()} == {0: 10, 2: 0}


def test_acks_zero_is_not_answered_and_still_written(client: SyncClient) -> None:
    topic = create_topic(client)
    client.produce(topic, 0, batch(1, 1_000), acks=1)  # the leader serves: from now on nothing is refused silently
    client.produce(topic, 0, batch(2, 1_000), acks=0)
    deadline = time.monotonic() + 30
    while client.list_offsets({(topic, 0): LATEST})[(topic, 0)].offset != 3:
        assert time.monotonic() < deadline


def test_a_topic_that_does_not_exist_is_named(client: SyncClient) -> None:
    with pytest.raises(KafkaError, match="no-such-topic-0: UNKNOWN_TOPIC_OR_PARTITION"):
        client.produce("no-such-topic", 0, batch(1, 0))


def test_a_group_is_asked_of_its_coordinator(client: SyncClient) -> None:
    api = messages.api("describe_groups")
    answer = client.call_coordinator("group", "nobody", "describe_groups", api.Request(groups=["nobody"]))
    assert [group.group_id for group in answer.groups] == ["nobody"]


def test_brokers_and_topics_are_known(client: SyncClient) -> None:
    topic = create_topic(client, partitions=2)
    deadline = time.monotonic() + 30
    while topic not in (view := client.metadata(None)).topics:
        assert time.monotonic() < deadline
    assert sorted(view.topics[topic].partitions) == [0, 1]
    assert view.leader(topic, 0) in view.brokers
    (node_id,) = view.brokers
    groups = client.call_broker(node_id, "list_groups", messages.api("list_groups").Request())
    assert groups.error_code == 0
    with pytest.raises(KafkaError, match="live brokers"):
        client.call_broker(node_id + 5, "list_groups", messages.api("list_groups").Request())


# --- TLS and SASL, against Kafka --------------------------------------------------------------------------------------


def add_scram_user(bootstrap: str) -> None:
    """Kafka stores salted passwords; we salt them as its tools do."""
    import hashlib

    api = messages.api("alter_user_scram_credentials")
    upsert = api.ScramCredentialUpsertion
    salt = b"salt and pepper!"
    upsertions = [
        upsert(name=USER, mechanism=number, iterations=4096, salt=salt,
               salted_password=hashlib.pbkdf2_hmac(name, PASSWORD.encode(), salt, 4096))
        for number, name in ((1, "sha256"), (2, "sha512"))
    ]  # fmt: skip
    with SyncClient(bootstrap) as client:
        for upsertion in upsertions:  # one per request: a user may stand there only once
            answer = client.call_controller("alter_user_scram_credentials", api.Request(upsertions=[upsertion]))
            assert [result.error_code for result in answer.results] == [0]


def properties(kafka: SecureKafka, mechanism: str, **more: str) -> dict[str, str]:
    given = {"bootstrap.servers": kafka.sasl, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    return {**given, "sasl.username": USER, "sasl.password": PASSWORD, **more}


def unsecured_token() -> str:
    import base64
    import json

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now, 'exp': now + 600})}."


@pytest.mark.java
def test_plain_scram_and_tokens_are_accepted(secure_kafka: SecureKafka) -> None:
    add_scram_user(secure_kafka.bootstrap)
    tries = [properties(secure_kafka, name) for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]
    token = {"sasl.oauthbearer.token": unsecured_token()}
    tries.append({**properties(secure_kafka, "OAUTHBEARER"), **token})
    for given in tries:
        deadline = time.monotonic() + 30
        while True:
            try:
                with SyncClient.from_properties(given) as client:
                    assert len(client.metadata().brokers) == 1
                break
            except AuthenticationFailed:  # new credentials reach the broker a moment later
                assert time.monotonic() < deadline, given["sasl.mechanism"]


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_with_the_place_and_what_to_check(secure_kafka: SecureKafka, mechanism: str) -> None:
    given = properties(secure_kafka, mechanism, **{"sasl.password": "wrong"})
    with (
        SyncClient.from_properties(given) as client,
        pytest.raises(AuthenticationFailed, match=r"check sasl\.username") as raised,
    ):
        client.metadata()
    assert secure_kafka.sasl in str(raised.value)
    assert "wrong" not in str(raised.value)


@pytest.mark.java
def test_tls_trusts_only_whom_it_is_told_to_trust(secure_kafka: SecureKafka) -> None:
    given = {"bootstrap.servers": secure_kafka.tls, "security.protocol": "SSL"}
    with SyncClient.from_properties({**given, "ssl.ca.location": str(secure_kafka.certificate)}) as client:
        assert len(client.metadata().brokers) == 1
    with (
        SyncClient.from_properties(given) as client,
        pytest.raises(AuthenticationFailed, match=r"set ssl\.ca\.location"),
    ):
        client.metadata()
