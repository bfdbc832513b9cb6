"""TLS listeners: real clients over certificates made for the test, frames of all sizes, clients without TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from raw_client import RawClient, batch, fetch_request, metadata, produce_request, request_frame

import penstock
from penstock.protocol.batch import crc_matches, iterate_batches

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(key and certificate in one file, certificate)."""
    folder = tmp_path_factory.mktemp("tls")
    key, crt, both = folder / "key.pem", folder / "crt.pem", folder / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", str(key), "-out", str(crt)], check=True, capture_output=True)
    both.write_text(key.read_text() + crt.read_text())
    return both, crt


@pytest.fixture(scope="module")
def tls_broker(certificate: tuple[Path, Path]) -> Iterator[penstock.Broker]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate[0]),
    }
    with penstock.Broker(settings=settings) as broker:
        yield broker


@pytest.mark.parametrize("ending", ["", "\n"])
def test_key_and_certificate_may_stand_in_the_settings_themselves(certificate: tuple[Path, Path], ending: str) -> None:
    chain = certificate[1].read_text().strip()
    key = certificate[0].read_text().removesuffix(certificate[1].read_text()).strip()
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain + ending,
        "ssl.keystore.key": key + ending,
    }
    with penstock.Broker(settings=settings) as broker, TlsClient(broker.port, certificate[1]) as client:
        assert metadata(client, "x", create=False)


class TlsClient(RawClient):
    def __init__(self, port: int, authority: Path) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cafile=str(authority))
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def test_librdkafka_writes_and_reads_over_tls(tls_broker: penstock.Broker, certificate: tuple[Path, Path]) -> None:
    config = {
        "bootstrap.servers": tls_broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificate[1]),
    }
    producer = Producer(config)
    values = [b"%d" % n * 50_000 for n in range(10)]
    for value in values:
        producer.produce("over-tls", value)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("over-tls", 0, 0)])
    try:
        found = []
        for _ in range(600):
            found += [message.value() for message in consumer.consume(10, 0.1) if message.error() is None]
            if len(found) == 10:
                break
        assert found == values
    finally:
        consumer.close()


def test_frames_of_many_sizes_come_through(tls_broker: penstock.Broker, certificate: tuple[Path, Path]) -> None:
    with TlsClient(tls_broker.port, certificate[1]) as client:
        while metadata(client, "sizes").error_code != 0:
            pass
        for size in (1, 100, 16_000, 16_384, 17_000, 65_536, 300_000, 900_000):
            answer = client.call("produce", 9, produce_request("sizes", batch(b"x" * size)))
            offset = answer.responses[0].partition_responses[0].base_offset
            fetched = client.call("fetch", 12, fetch_request("sizes", offset, max_bytes=2 << 20))
            assert b"x" * size in bytes(fetched.responses[0].partitions[0].records)


def test_large_batches_in_flight_are_stored_as_they_were_sent(
    tls_broker: penstock.Broker, certificate: tuple[Path, Path]
) -> None:
    """The log writes them from the receive buffer, and TLS reads on before the end of the wake-up."""
    values = [bytes([number]) * 20_000 for number in range(100)]
    with TlsClient(tls_broker.port, certificate[1]) as client:
        while metadata(client, "in-flight").error_code != 0:
            pass
        for start in range(0, len(values), 10):
            for value in values[start : start + 10]:
                client.send(request_frame("produce", 9, produce_request("in-flight", batch(value))))
            for number in range(start, start + 10):
                _, answer = client.read_response("produce", 9)
                stored = answer.responses[0].partition_responses[0]
                assert (stored.error_code, stored.base_offset) == (0, number)
        for number, value in enumerate(values):
            fetched = client.call("fetch", 12, fetch_request("in-flight", number, max_bytes=1))
            data = bytes(fetched.responses[0].partitions[0].records)
            (header,) = iterate_batches(data)
            assert crc_matches(data, header) and header.base_offset == number
            assert value in data


def test_a_client_without_tls_is_closed_and_others_go_on(
    tls_broker: penstock.Broker, certificate: tuple[Path, Path]
) -> None:
    with RawClient(tls_broker.port) as plain:
        plain.send(b"\x00\x00\x00\x10this is not TLS!")
        while data := plain.socket.recv(100):  # at most a TLS alert
            assert data[0] == 21
    with socket.create_connection(("127.0.0.1", tls_broker.port)):
        pass  # connects and leaves
    with TlsClient(tls_broker.port, certificate[1]) as client:
        metadata(client, "x", create=False)


def test_a_listener_without_a_certificate_says_what_is_missing() -> None:
    broker = penstock.Broker(
        settings={"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL", "ssl.keystore.type": "PEM"}
    )
    with pytest.raises(Exception, match=r"ssl\.keystore\.location"):
        broker.start()
