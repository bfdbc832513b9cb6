"""Security from properties in the words of librdkafka and of Java clients."""

from __future__ import annotations

import ssl

import pytest

from penstock.client.client import Client
from penstock.client.security import Security


def test_without_properties_the_connection_is_plain() -> None:
    security = Security.from_properties({"bootstrap.servers": "x:1"})
    assert (security.protocol, security.tls, security.sasl) == ("PLAINTEXT", False, False)
    assert security.ssl_context() is None


def test_librdkafkas_words() -> None:
    security = Security.from_properties(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ada",
            "sasl.password": "geheim",
            "enable.ssl.certificate.verification": "false",
        }
    )
    assert (security.protocol, security.mechanism, security.username) == ("SASL_SSL", "SCRAM-SHA-512", "ada")
    context = security.ssl_context()
    assert context is not None and context.verify_mode == ssl.CERT_NONE
    assert "geheim" not in repr(security)


def test_javas_words() -> None:
    security = Security.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="ada" password="a \\"b\\" c";',
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (security.username, security.password) == ("ada", 'a "b" c')
    assert not security.verify_host_name


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"security.protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "t.jks"}, "ssl.ca.location"),
    ],
)
def test_what_is_missing_is_named(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Security.from_properties(properties)


def test_a_client_needs_to_know_where_to_start() -> None:
    with pytest.raises(ValueError, match=r"bootstrap\.servers is missing"):
        Client.from_properties({"security.protocol": "PLAINTEXT"})
