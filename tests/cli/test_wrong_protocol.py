"""A listener that speaks another security.protocol than the command: told at once, with what it takes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from penstock.security.certificates import Authority
from penstock.testing.ports import free_ports

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGIN = "-X sasl.mechanism=PLAIN -X sasl.username=anna -X sasl.password=secret"


@dataclass
class Listeners:
    """One broker, asked in four ways."""

    addresses: dict[str, str]
    authority: Path


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    folder = tmp_path_factory.mktemp("listeners")
    authority = Authority.create()
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "server.pem").write_bytes(authority.issue("localhost", ("localhost", "127.0.0.1")).both)
    first = free_ports(len(PROTOCOLS))
    addresses = {protocol: f"127.0.0.1:{first + index}" for index, protocol in enumerate(PROTOCOLS)}
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_anna="secret";'
    settings = {
        "listeners": ",".join(f"{protocol}://{address}" for protocol, address in addresses.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        **{f"listener.name.{name}.plain.sasl.jaas.config": jaas for name in ("sasl_plaintext", "sasl_ssl")},
    }
    with penstock.Broker(folder / "data", settings=settings):
        yield Listeners(addresses, folder / "ca.pem")


@pytest.mark.parametrize("command", ["topic list", "produce greetings", "consume greetings -B -e"])
@pytest.mark.parametrize(
    ("there", "ours", "says"),
    [
        ("SSL", "PLAINTEXT", "security.protocol=SSL, ssl.ca.location"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "security.protocol=SASL_PLAINTEXT, sasl.mechanism=PLAIN"),
        ("SASL_SSL", "PLAINTEXT", "security.protocol=SASL_SSL, ssl.ca.location, sasl.mechanism=PLAIN"),
        ("PLAINTEXT", "SSL", "speaks PLAINTEXT and was asked in SSL"),
        ("SASL_SSL", "SSL", "security.protocol=SASL_SSL, sasl.mechanism=PLAIN"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "takes no SASL"),
    ],
)
def test_it_says_what_the_listener_takes(
    command: str,
    there: str,
    ours: str,
    says: str,
    listeners: Listeners,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    words = [*command.split(), "-b", listeners.addresses[there], "-X", f"security.protocol={ours}"]
    words += ["-X", f"ssl.ca.location={listeners.authority}"] if "SSL" in ours else []
    words += LOGIN.split() if "SASL" in ours else []
    code = main.run(words)
    shown = capsys.readouterr()
    assert code == 5, shown.err
    assert says in shown.err and "-X NAME=VALUE" in shown.err
    assert len(shown.err.splitlines()) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_comes_in_the_right_way_is_served(
    protocol: str, listeners: Listeners, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-b", listeners.addresses[protocol], "-X", f"security.protocol={protocol}"]
    words += ["-X", f"ssl.ca.location={listeners.authority}"] if "SSL" in protocol else []
    words += LOGIN.split() if "SASL" in protocol else []
    assert main.run(["topic", "list", *words]) == 0, capsys.readouterr().err
