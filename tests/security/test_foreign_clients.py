"""Clients of other languages and libraries over every mechanism and TLS: franz-go, Java and kafka-python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import peers
from penstock.testing.go_program import go_program
from tests.security.pki import Pki
from tests.security.test_sasl_clients import MECHANISMS, PASSWORDS, Issuer, issuer, secured

__all__ = ["issuer", "secured"]

GO_CLIENT = Path(__file__).parent / "go_client"


@pytest.fixture(scope="module")
def go_client() -> Path:
    try:
        return go_program(GO_CLIENT)
    except peers.PeerUnavailable as missing:
        pytest.skip(str(missing))


def written_and_read(program: Path, value: str, secret: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), "-value", value, *arguments], env={**os.environ, "CLIENT_SECRET": secret},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_franz_go(
    secured: dict[str, Any], pki: Pki, issuer: Issuer, go_client: Path, protocol: str, mechanism: str
) -> None:
    secret = issuer.token() if mechanism == "OAUTHBEARER" else PASSWORDS["anna"]
    more = ["-ca", pki.ca] if protocol == "SASL_SSL" else []
    bootstrap = f"127.0.0.1:{secured['ports'][protocol]}"
    value = f"go {protocol} {mechanism}"
    done = written_and_read(
        go_client, value, secret, "-bootstrap", bootstrap, "-mechanism", mechanism, "-user", "anna", *more
    )
    assert done.stdout.strip() == value, done.stderr


def test_franz_go_with_a_wrong_password(secured: dict[str, Any], go_client: Path) -> None:
    bootstrap = f"127.0.0.1:{secured['ports']['SASL_PLAINTEXT']}"
    done = written_and_read(
        go_client, "x", "a guess", "-bootstrap", bootstrap, "-mechanism", "SCRAM-SHA-256", "-user", "anna"
    )
    assert done.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in done.stderr


def test_franz_go_with_its_own_certificate(secured: dict[str, Any], pki: Pki, go_client: Path) -> None:
    file = pki.issue("go.pem", "gopher")
    bootstrap = f"127.0.0.1:{secured['ports']['SSL']}"
    common = ("-bootstrap", bootstrap, "-ca", pki.ca)
    done = written_and_read(go_client, "mutual", "", *common, "-certificate", f"{file}.crt", "-key", f"{file}.key")
    assert done.stdout.strip() == "mutual", done.stderr
    assert written_and_read(go_client, "nobody", "", *common).returncode == 1


def test_kafka_python_with_tokens(secured: dict[str, Any], pki: Pki, issuer: Issuer) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token()

    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{secured['ports']['SASL_SSL']}",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
        ssl_cafile=pki.ca,
    )
    try:
        assert producer.send("orders", b"from kafka-python").get(30).topic == "orders"
    finally:
        producer.close()


@pytest.mark.java
def test_java_with_a_token_from_a_file(secured: dict[str, Any], pki: Pki, issuer: Issuer, tmp_path: Path) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(issuer.token(scope="all"))
    properties = tmp_path / "client.properties"
    package = "org.apache.kafka.common.security.oauthbearer"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={pki.ca}\nsasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    bootstrap = f"127.0.0.1:{secured['ports']['SASL_SSL']}"
    arguments = ["--bootstrap-server", bootstrap, "--command-config", str(properties), "--list"]
    allowed = {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": token.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.files": str(token),
    }
    done = peers.kafka_tool("TopicCommand", *arguments, properties=allowed)
    assert "orders" in done.stdout, done.stderr
