"""Every mechanism over plain text and TLS, with the clients that people use."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

import penstock
from penstock.client.client import Client
from penstock.client.errors import AuthenticationFailed
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.testing import peers
from penstock.testing.ports import free_port
from tests.security.pki import Pki

PASSWORDS = {"anna": "anna's password", "bo": "p=w,d"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Issuer:
    """Signs tokens; its public key lies in a file."""

    def __init__(self, folder: Path) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        self.file = folder / "jwks.json"
        self.file.write_text(json.dumps({"keys": [{**jwk, "kid": "one", "use": "sig", "alg": "RS256"}]}))

    def token(self, name: str = "anna", seconds: float = 600, **claims: Any) -> str:
        now = time.time()
        body = {"sub": name, "iat": int(now), "exp": int(now + seconds), "aud": "penstock", "iss": "us", **claims}
        return jwt.encode(body, self.key, "RS256", headers={"kid": "one"})


def signed_with_a_public_key(claims: dict[str, Any], public: str) -> str:
    """What a library would make if it did not refuse: a MAC whose key everybody knows."""
    head = {"alg": "HS256", "typ": "JWT", "kid": "one"}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims)]
    mac = hmac.digest(public.encode(), b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def secured(pki: Pki, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """One broker with a listener of each protocol, all mechanisms, users anna and bo."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    ports = {name: free_port() for name in ("SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT", "SSL")}
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.file.as_uri(),
        "sasl.oauthbearer.expected.audience": "penstock",
        "sasl.oauthbearer.expected.issuer": "us",
        "connection.failed.authentication.delay.ms": "20",
        "delegation.token.secret.key": "the secret of tokens",
        **pki.server_settings(),
    }
    with penstock.Broker(settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
        changes = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
            for name, password in PASSWORDS.items()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(30)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        yield {"broker": broker, "ports": ports, "admin": admin}


def librdkafka(
    secured: dict[str, Any], pki: Pki, issuer: Issuer, protocol: str, mechanism: str, name: str = "anna", **more: Any
) -> dict[str, Any]:
    config = {
        "bootstrap.servers": f"127.0.0.1:{secured['ports'][protocol]}",
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.ca.location": pki.ca,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (issuer.token(name), time.time() + 600)
    else:
        config |= {"sasl.username": name, "sasl.password": PASSWORDS[name]}
    return config | more


def own(secured: dict[str, Any], pki: Pki, issuer: Issuer, protocol: str, mechanism: str, **more: Any) -> Security:
    fields = {"username": "anna", "password": PASSWORDS["anna"], "token_provider": issuer.token, "ca_location": pki.ca}
    return Security(protocol=protocol, mechanism=mechanism, **{**fields, **more})


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(
    secured: dict[str, Any], pki: Pki, issuer: Issuer, protocol: str, mechanism: str
) -> None:
    config = librdkafka(secured, pki, issuer, protocol, mechanism)
    producer = Producer(config)
    value = f"{protocol} {mechanism}".encode()
    producer.produce("orders", value)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(message.value() == value for message in consumer.consume(100, 0.2)):
                return
        pytest.fail("what was written is not read")
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_kafka_python(secured: dict[str, Any], pki: Pki, mechanism: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{secured['ports']['SASL_SSL']}",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_plain_username="anna",
        sasl_plain_password=PASSWORDS["anna"],
        ssl_cafile=pki.ca,
    )
    try:
        assert producer.send("orders", b"from kafka-python").get(30).topic == "orders"
    finally:
        producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secured: dict[str, Any], pki: Pki, issuer: Issuer, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{secured['ports']['SASL_SSL']}",
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_plain_username="bo",
            sasl_plain_password=PASSWORDS["bo"],
            sasl_oauth_token_provider=Provider(),
            ssl_context=ssl.create_default_context(cafile=pki.ca),
        )
        await producer.start()
        try:
            await producer.send_and_wait("orders", b"from aiokafka")
        finally:
            await producer.stop()

    asyncio.run(story())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client(secured: dict[str, Any], pki: Pki, issuer: Issuer, mechanism: str) -> None:
    async def story() -> Any:
        security = own(secured, pki, issuer, "SASL_SSL", mechanism)
        async with Client([f"127.0.0.1:{secured['ports']['SASL_SSL']}"], security=security) as client:
            return await client.call_any("metadata", messages.api("metadata").Request(topics=None))

    assert "orders" in {topic.name for topic in asyncio.run(story()).topics}


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_java_over_tls(secured: dict[str, Any], pki: Pki, tmp_path: Path, mechanism: str) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={pki.ca}\nsasl.jaas.config=org.apache.kafka.common.security.{module} required"
        f' username="anna" password="{PASSWORDS["anna"]}";\n'
    )
    bootstrap = f"127.0.0.1:{secured['ports']['SASL_SSL']}"
    done = peers.kafka_tool(
        "TopicCommand", "--bootstrap-server", bootstrap, "--command-config", str(properties), "--list"
    )
    assert "orders" in done.stdout, done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_refused_and_named(
    secured: dict[str, Any], pki: Pki, issuer: Issuer, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(name: str) -> None:
        security = own(secured, pki, issuer, "SASL_SSL", mechanism, username=name, password="a wrong guess")
        async with Client([f"127.0.0.1:{secured['ports']['SASL_SSL']}"], security=security) as client:
            await client.call_any("metadata", messages.api("metadata").Request(topics=None))

    for name in ("anna", "nobody-here"):
        with pytest.raises(AuthenticationFailed, match="refused"):
            asyncio.run(story(name))
        assert name in caplog.text
    assert "a wrong guess" not in caplog.text


def test_before_authentication_nothing_is_answered(secured: dict[str, Any]) -> None:
    from raw_client import RawClient, request_frame

    metadata = messages.api("metadata")
    with RawClient(secured["ports"]["SASL_PLAINTEXT"]) as stranger:
        assert stranger.call("api_versions", 0, messages.api("api_versions").Request()).error_code == 0
        stranger.send(request_frame("metadata", 9, metadata.Request(topics=None)))
        assert stranger.is_closed()
    with RawClient(secured["ports"]["SASL_PLAINTEXT"]) as stranger:
        stranger.send((600_000).to_bytes(4, "big"))  # more than sasl.server.max.receive.size
        assert stranger.is_closed()


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(secured: dict[str, Any]) -> None:
    from raw_client import RawClient

    with RawClient(secured["ports"]["SASL_PLAINTEXT"]) as client:
        answer = client.call("sasl_handshake", 1, messages.api("sasl_handshake").Request(mechanism="GSSAPI"))
        assert answer.error_code == 33 and set(answer.mechanisms) == set(MECHANISMS)
        assert client.is_closed()


@pytest.mark.parametrize(
    "token",
    ["expired", "audience", "issuer", "none", "hmac", "other key", "not yet", "nobody", "garbage", "huge", "no end"],
)
def test_a_token_that_proves_nothing_is_refused(secured: dict[str, Any], pki: Pki, issuer: Issuer, token: str) -> None:
    now = int(time.time())
    claims = {"sub": "anna", "exp": now + 600, "aud": "penstock", "iss": "us"}
    public = issuer.file.read_text()
    made = {
        "expired": lambda: issuer.token(seconds=-100),
        "audience": lambda: issuer.token(aud="others"),
        "issuer": lambda: issuer.token(iss="them"),
        "none": lambda: jwt.encode(claims, None, "none", headers={"kid": "one"}),
        "hmac": lambda: signed_with_a_public_key(claims, public),
        "other key": lambda: jwt.encode(
            claims, rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", headers={"kid": "one"}
        ),
        "not yet": lambda: issuer.token(nbf=now + 500),
        "nobody": lambda: issuer.token(name=""),
        "garbage": lambda: "a.b.c",
        "huge": lambda: issuer.token(blob="x" * 20_000),
        "no end": lambda: jwt.encode(
            {k: v for k, v in claims.items() if k != "exp"}, issuer.key, "RS256", headers={"kid": "one"}
        ),
    }[token]()

    async def story() -> None:
        security = own(secured, pki, issuer, "SASL_SSL", "OAUTHBEARER", token_provider=lambda: made)
        async with Client([f"127.0.0.1:{secured['ports']['SASL_SSL']}"], security=security) as client:
            await client.call_any("metadata", messages.api("metadata").Request(topics=None))

    with pytest.raises(AuthenticationFailed):
        asyncio.run(story())


def test_users_are_listed_without_their_keys(secured: dict[str, Any]) -> None:
    described = secured["admin"].describe_user_scram_credentials(None).result(30)
    assert set(described) >= set(PASSWORDS)
    infos = described["anna"].scram_credential_infos
    assert {info.mechanism for info in infos} == {ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512}


def test_a_user_that_is_deleted_loses_his_connections(secured: dict[str, Any], pki: Pki, issuer: Issuer) -> None:
    admin = secured["admin"]
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("leaver", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")]
    ).values():
        future.result(30)

    async def story() -> None:
        security = own(secured, pki, issuer, "SASL_PLAINTEXT", "SCRAM-SHA-256", username="leaver", password="secret")
        from penstock.client.connection import Connection

        connection = await Connection.open("127.0.0.1", secured["ports"]["SASL_PLAINTEXT"], security=security)
        await connection.request("metadata", messages.api("metadata").Request(topics=None))
        deletion = UserScramCredentialDeletion("leaver", ScramMechanism.SCRAM_SHA_256)
        for future in admin.alter_user_scram_credentials([deletion]).values():
            await asyncio.get_running_loop().run_in_executor(None, future.result, 30)
        async with asyncio.timeout(10):
            while not connection.closed:
                await asyncio.sleep(0.01)
        with pytest.raises(AuthenticationFailed):
            await Connection.open("127.0.0.1", secured["ports"]["SASL_PLAINTEXT"], security=security)

    asyncio.run(story())


def test_a_deletion_of_nobody_is_an_error(secured: dict[str, Any]) -> None:
    deletion = UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256)
    (future,) = secured["admin"].alter_user_scram_credentials([deletion]).values()
    with pytest.raises(KafkaException):
        future.result(30)


@pytest.mark.java
def test_kafkas_configs_tool_makes_and_describes_users(secured: dict[str, Any], pki: Pki, issuer: Issuer) -> None:
    bootstrap = ["--bootstrap-server", f"127.0.0.1:{secured['ports']['PLAINTEXT']}"]
    entity = ["--entity-type", "users", "--entity-name", "carla"]
    made = peers.kafka_tool(
        "kafka.admin.ConfigCommand", *bootstrap, "--alter", *entity,
        "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carla-secret]",
    )  # fmt: skip
    assert "Completed updating" in made.stdout, made.stderr
    shown = peers.kafka_tool("kafka.admin.ConfigCommand", *bootstrap, "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=8192" in shown.stdout, shown.stderr

    async def story() -> None:
        security = own(secured, pki, issuer, "SASL_SSL", "SCRAM-SHA-256", username="carla", password="carla-secret")
        async with Client([f"127.0.0.1:{secured['ports']['SASL_SSL']}"], security=security) as client:
            await client.call_any("metadata", messages.api("metadata").Request(topics=None))

    asyncio.run(story())
