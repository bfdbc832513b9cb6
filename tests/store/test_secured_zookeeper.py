"""A ZooKeeper that wants to know whom it talks to: TLS with certificates, SASL with a password."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.settings import Settings
from penstock.cluster.zookeeper_process import ZooKeeperProcess, ZooKeeperUnavailable
from penstock.store.interface import ConnectionLost
from penstock.store.zookeeper import ZooKeeperStore
from penstock.testing.ports import free_port
from tests.store.conftest import zookeeper_settings

LOGIN = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_penstock="secret"; };'


class Authority:
    """Certificates of one authority, made by openssl: PEM files that hold key and certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trust = folder / "authority.pem"
        self._run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "authority.key", "-out", "authority.pem",
                  "-subj", "/CN=authority", "-days", "2")  # fmt: skip

    def issue(self, name: str) -> Path:
        self._run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                  f"/CN={name}")  # fmt: skip
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        self._run("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key",
                  "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names")  # fmt: skip
        both = self.folder / f"{name}.pem"
        both.write_text((self.folder / f"{name}.key").read_text() + (self.folder / f"{name}.crt").read_text())
        return both

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeperProcess, int]]:
    """One server: SASL is demanded on its plain port, certificates and SASL on its secure one."""
    folder = tmp_path_factory.mktemp("zookeeper")
    (folder / "login.conf").write_text(LOGIN)
    secure_port = free_port()
    server = ZooKeeperProcess(
        folder,
        free_port(),
        properties={
            "secureClientPort": str(secure_port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(authority.issue("server")),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(authority.trust),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": "true",
        },
        java_options=[f"-Djava.security.auth.login.config={folder / 'login.conf'}"],
    )
    try:
        server.start()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    yield server, secure_port
    server.stop()


def over_tls(authority: Authority, certificate: Path, port: int, **more: str) -> Settings:
    given = {
        "zookeeper.connect": f"127.0.0.1:{port}/tls",
        "zookeeper.session.timeout.ms": "4000",
        "zookeeper.connection.timeout.ms": "4000",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(authority.trust),
        "zookeeper.ssl.keystore.location": str(certificate),
        "penstock.zookeeper.auth": "sasl:penstock:secret",
    }
    return Settings.load(None, {**given, **more})


def tell(settings: Settings) -> bytes:
    """Write and read one node in a session of its own."""

    async def story() -> bytes:
        store = ZooKeeperStore(settings)
        await store.start()
        try:
            await store.ensure_path("/told")
            await store.set("/told", b"secret")
            return (await store.get("/told")).data
        finally:
            await store.close()

    return asyncio.run(story())


def test_a_password_opens_the_server(secured: tuple[ZooKeeperProcess, int]) -> None:
    login = {"penstock.zookeeper.auth": "sasl:penstock:secret", "zookeeper.set.acl": "true"}
    assert tell(zookeeper_settings(secured[0], "/sasl", **login)) == b"secret"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # kazoo's, of the refused login
@pytest.mark.parametrize("login", [{"penstock.zookeeper.auth": "sasl:penstock:wrong"}, {}])
def test_without_the_password_it_stays_closed(secured: tuple[ZooKeeperProcess, int], login: dict[str, str]) -> None:
    with pytest.raises(ConnectionLost):
        tell(zookeeper_settings(secured[0], "/sasl", **{**login, "zookeeper.connection.timeout.ms": "3000"}))


def test_certificates_open_the_secure_port(secured: tuple[ZooKeeperProcess, int], authority: Authority) -> None:
    assert tell(over_tls(authority, authority.issue("broker"), secured[1])) == b"secret"


def test_a_certificate_of_another_authority_does_not(
    secured: tuple[ZooKeeperProcess, int], authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("stranger")
    with pytest.raises(ConnectionLost):
        tell(over_tls(authority, stranger, secured[1]))


def test_a_server_of_another_authority_is_not_trusted(
    secured: tuple[ZooKeeperProcess, int], authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    settings = over_tls(authority, authority.issue("wary"), secured[1])
    wary = over_tls(
        authority, authority.issue("wary"), secured[1], **{"zookeeper.ssl.truststore.location": str(other.trust)}
    )
    with pytest.raises(ConnectionLost):
        tell(wary)
    assert tell(settings) == b"secret"
