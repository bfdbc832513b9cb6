"""TLS: certificates that change while the broker runs, clients that show theirs, limits of versions and suites."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import penstock
from penstock.client.errors import AuthenticationFailed
from penstock.client.sync import SyncClient
from penstock.operate.doctor_limits import certificates
from penstock.operate.session import Session
from penstock.protocol.errors import ErrorCode
from penstock.testing.ports import free_port
from tests.security.pki import Pki


class Running:
    """A broker with a plain and a TLS listener."""

    def __init__(self, folder: Path, pki: Pki, **settings: str) -> None:
        self.ports = {"PLAINTEXT": free_port(), "SSL": free_port()}
        self.certificate = folder / "server.pem"
        self.pki = pki
        self.renew()
        given = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": pki.ca,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.broker = penstock.Broker(folder / "data", settings=given)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports['PLAINTEXT']}", "log_level": 0})

    def renew(self, name: str = "localhost", hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> None:
        self.certificate.write_bytes(self.pki.authority.issue(name, hosts).both)

    def change(self, **settings: str | None) -> None:
        entries = [
            ConfigEntry(
                name,
                value or "",
                incremental_operation=AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def shake_hands(self, context: ssl.SSLContext | None = None) -> tuple[str | None, int, str]:
        """TLS version, serial number of the server's certificate, cipher suite; ssl.SSLError if it fails."""
        context = context or self.context()
        with (
            socket.create_connection(("127.0.0.1", self.ports["SSL"]), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            # In TLS 1.3 a missing certificate is only said after the handshake.
            sock.sendall(bytes.fromhex("00000012001200000000000700086b6b6b6b6b6b6b6b"))
            if not sock.recv(4):
                raise ssl.SSLError("closed")
            return sock.version(), int(sock.getpeercert()["serialNumber"], 16), sock.cipher()[0]

    def context(self, client: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.pki.ca)
        if client:
            context.load_cert_chain(client)
        return context


@pytest.fixture
def running(tmp_path: Path, pki: Pki) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**settings: str) -> Running:
        made = Running(tmp_path, pki, **settings)
        started.append(made)
        made.broker.start()
        return made

    yield start
    for one in started:
        vars(one).pop("admin", None)
        one.broker.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_refused_large_produce_leaves_the_connection_usable(running: Callable[..., Running]) -> None:
    """What is dropped of it may wait inside the TLS layer, and the next request behind it."""
    from raw_client import RawClient, batch, ensure_topic, produce_request, request_frame

    one = running()
    ensure_topic(one.ports["PLAINTEXT"], "usual")
    large = request_frame("produce", 9, produce_request("usual", batch(bytes(5 << 20))))
    small = request_frame("produce", 9, produce_request("usual", batch(b"small")))
    with RawClient(one.ports["SSL"]) as client:
        client.socket = one.context().wrap_socket(client.socket, server_hostname="localhost")
        for data in (large, small, large + small, large, small):
            client.send(data)
            for _ in range(2 if len(data) > len(large) else 1):
                _, answer = client.read_response("produce", 9)
                told = answer.responses[0].partition_responses[0].error_code
                assert told in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)
        assert told == ErrorCode.NONE


def refused(one: Running, context: ssl.SSLContext | None = None) -> bool:
    try:
        one.shake_hands(context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_a_new_certificate_file_is_used_without_a_restart(running: Callable[..., Running]) -> None:
    one = running()
    first = one.shake_hands()[1]
    one.renew()
    until(lambda: one.shake_hands()[1] != first)


def test_a_certificate_for_another_name_or_garbage_leaves_the_old_one(
    running: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    one = running()
    first = one.shake_hands()[1]
    one.renew("someone else")
    until(lambda: "ssl.allow.dn.changes" in caplog.text)
    one.certificate.write_text("not a certificate")
    until(lambda: "cannot be loaded" in caplog.text)
    assert one.shake_hands()[1] == first


def test_a_certificate_with_fewer_names_needs_a_word(
    running: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    one = running()
    first = one.shake_hands()[1]
    one.renew(hosts=("localhost",))
    until(lambda: "ssl.allow.san.changes" in caplog.text)
    assert one.shake_hands()[1] == first
    one.broker.stop()
    allowing = running(ssl_allow_san_changes="true")
    second = allowing.shake_hands()[1]
    allowing.renew(hosts=("localhost",))
    until(lambda: allowing.shake_hands()[1] != second)


def test_a_certificate_may_be_changed_by_configuration_and_a_bad_one_is_refused(
    running: Callable[..., Running], tmp_path: Path, pki: Pki
) -> None:
    one = running()
    first = one.shake_hands()[1]
    other = tmp_path / "other.pem"
    other.write_bytes(pki.authority.issue("localhost", ("localhost", "127.0.0.1")).both)
    one.change(**{"listener.name.ssl.ssl.keystore.location": str(other)})
    assert one.shake_hands()[1] != first
    for bad in ("/nowhere.pem", pki.ca):
        with pytest.raises(KafkaException, match="cannot be loaded"):
            one.change(**{"listener.name.ssl.ssl.keystore.location": bad})
    with pytest.raises(KafkaException, match="no listener has this name"):
        one.change(**{"listener.name.sssl.ssl.keystore.location": str(other)})
    one.broker.restart()
    assert one.shake_hands()[1] != first


def test_client_certificates_are_demanded_as_soon_as_somebody_says_so(
    running: Callable[..., Running], pki: Pki
) -> None:
    one = running()
    anna = pki.issue("anna.pem", "anna", organisation="Trade")
    assert not refused(one)
    one.change(**{"ssl.client.auth": "required"})
    assert refused(one)
    assert not refused(one, one.context(anna))
    one.broker.restart()
    assert refused(one)
    assert not refused(one, one.context(anna))
    one.change(**{"ssl.client.auth": None})
    assert not refused(one)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=anna,O=Trade"),
        ("RULE:^CN=(.*?),O=Trade$/$1/,DEFAULT", "anna"),
        ("RULE:^CN=(.*?),.*$/$1@trade/U", "ANNA@TRADE"),
    ],
)
def test_a_certificate_names_its_client_by_rules(
    running: Callable[..., Running], pki: Pki, rules: str, name: str
) -> None:
    one = running(
        ssl_client_auth="required",
        ssl_principal_mapping_rules=rules,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users=f"User:{name};User:ANONYMOUS",
    )
    anna, bo = pki.issue("anna.pem", "anna", organisation="Trade"), pki.issue("bo.pem", "bo", organisation="Trade")
    for certificate, allowed in ((anna, True), (bo, False)):
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{one.ports['SSL']}",
                "security.protocol": "SSL",
                "ssl.ca.location": pki.ca,
                "ssl.certificate.location": f"{certificate}.crt",
                "ssl.key.location": f"{certificate}.key",
            }
        )
        outcome = admin.create_topics([NewTopic(Path(certificate).stem, 1, 1)])[Path(certificate).stem]
        if allowed:
            outcome.result(30)
        else:
            with pytest.raises(KafkaException, match="AUTHORIZATION"):
                outcome.result(30)


def test_a_certificate_that_no_rule_fits_is_nobody(running: Callable[..., Running], pki: Pki) -> None:
    one = running(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*),O=Trade$/$1/")
    assert refused(one, one.context(pki.issue("stray.pem", "stray")))


@pytest.mark.parametrize(("versions", "expected"), [("TLSv1.2", "TLSv1.2"), ("TLSv1.3", "TLSv1.3")])
def test_versions_are_limited(running: Callable[..., Running], versions: str, expected: str) -> None:
    one = running(ssl_enabled_protocols=versions)
    assert one.shake_hands()[0] == expected
    other = one.context()
    if expected == "TLSv1.2":
        other.minimum_version = ssl.TLSVersion.TLSv1_3
    else:
        other.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(one, other)


def test_suites_are_limited(running: Callable[..., Running]) -> None:
    one = running(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    assert one.shake_hands()[::2] == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
    other = one.context()
    other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    assert refused(one, other)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.2 and TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "one by one"),
        ({"ssl_cipher_suites": "TLS_NO_SUCH_SUITE"}, "known"),
        ({"ssl_client_auth": "required", "ssl_truststore_location": ""}, "truststore"),
        ({"ssl_keystore_type": "JKS"}, "only PEM and PKCS12"),
        ({"ssl_principal_mapping_rules": "RULE:((/x/"}, "regular expression"),
        ({"ssl_principal_mapping_rules": "CN=.*"}, "not understood"),
    ],
)
def test_what_tls_cannot_do_is_refused_at_the_start(
    tmp_path: Path, pki: Pki, settings: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint):
        Running(tmp_path, pki, **settings).broker.start()


def test_a_pkcs12_store_is_read(running: Callable[..., Running], tmp_path: Path, pki: Pki) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    issued = pki.authority.issue("localhost", ("localhost", "127.0.0.1"))
    key: Any = serialization.load_pem_private_key(issued.key, None)
    store = tmp_path / "server.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server",
            key,
            x509.load_pem_x509_certificate(issued.certificate),
            None,
            serialization.BestAvailableEncryption(b"store secret"),
        )
    )
    one = running(ssl_keystore_type="PKCS12", ssl_keystore_location=str(store), ssl_keystore_password="store secret")
    expected = x509.load_pem_x509_certificate(issued.certificate).serial_number
    assert one.shake_hands()[1] == expected


def test_new_connections_come_only_so_fast(running: Callable[..., Running]) -> None:
    one = running(**{"listener.name.ssl.max.connection.creation.rate": "5"})
    begun = time.monotonic()
    for _ in range(10):  # five at once, five within the next second
        one.shake_hands()
    assert time.monotonic() - begun > 0.8
    one.change(**{"listener.name.ssl.max.connection.creation.rate": "1000"})
    with pytest.raises(KafkaException, match="at least 0"):
        one.change(**{"listener.name.ssl.max.connection.creation.rate": "-1"})


def test_a_listener_has_room_of_its_own(running: Callable[..., Running]) -> None:
    one = running(**{"listener.name.ssl.max.connections": "1"})
    with socket.create_connection(("127.0.0.1", one.ports["SSL"]), timeout=20) as first:
        first.sendall(b"\x16")
        waiting = socket.create_connection(("127.0.0.1", one.ports["SSL"]), timeout=20)
        assert one.admin.list_topics(timeout=20).brokers  # the other listener is not affected
        assert len(next(x for x in one.broker._broker.listeners if x.name == "SSL").connections) <= 1
    with waiting, one.context().wrap_socket(waiting, server_hostname="localhost") as sock:
        assert sock.version()  # its turn has come


def test_a_certificate_that_has_ended_is_told_by_metrics_doctor_log_and_client(
    tmp_path: Path, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    running = Running(tmp_path, pki, **{"penstock.metrics.listener": f"127.0.0.1:{port}"})
    running.certificate.write_bytes(pki.authority.issue("localhost", ("127.0.0.1",), days=0).both)
    with running.broker:
        session = Session(f"127.0.0.1:{running.ports['PLAINTEXT']}", None, None)
        ((severity, what, hint),) = certificates(session)
        assert (severity, what) == ("problem", "broker 1, listener SSL: its certificate has ended, clients refuse it")
        assert "ssl.keystore.location" in hint
        with pytest.raises(AuthenticationFailed, match="has expired: it must be renewed"):
            SyncClient.from_properties(
                {
                    "bootstrap.servers": f"127.0.0.1:{running.ports['SSL']}",
                    "security.protocol": "SSL",
                    "ssl.ca.location": pki.ca,
                }
            ).metadata([])
        until(lambda: "its certificate has ended" in caplog.text)
        session.close()
    assert caplog.text.count("its certificate has ended") == 1
